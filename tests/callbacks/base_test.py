"""Which steps a callback sees."""

from absl.testing import absltest

from tests import trainer
from towers.callbacks.base import NEVER, Callback


class _Sees(Callback):
    def __init__(self):
        self.alone = self.inside = 0

    def after_run(self, run_context, run_values):
        self.alone += 1

    def after_steps(self, step, losses, seconds):
        self.inside += len(losses)


class _SeesNone(_Sees):
    def next_due(self, step):
        return NEVER


class CallbackTest(absltest.TestCase):
    def test_sees_each_step_alone_unless_it_says_otherwise(self):
        for sees, wanted in ((_Sees(), (8, 0)), (_SeesNone(), (0, 8))):
            training = trainer.Trainer().add_loop().start()
            training.run([sees], 8, steps_per_loop=8)
            self.assertEqual((sees.alone, sees.inside), wanted)
