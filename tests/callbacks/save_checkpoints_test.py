"""Checkpoints hold the values of their steps; a save that failed is repeated."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.callbacks import every
from towers.callbacks.base import Callback
from towers.callbacks.save_checkpoints import SaveCheckpoints
from towers.checkpoints import checkpoint
from towers.checkpoints.saving import Saving


def _trainer():
    return trainer.Trainer(towers=2, batch_size=4).add_loop().start()


class SaveCheckpointsTest(parameterized.TestCase):
    @parameterized.product(steps_per_loop=(1, 7), in_thread=(False, True))
    def test_the_values_are_those_of_the_step(self, steps_per_loop, in_thread):
        training, other = _trainer(), _trainer()
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            saver = checkpoint.Checkpoints(
                directory, training.train.saved, max_to_keep=2
            )
            saving = Saving(saver, in_thread=in_thread)
        with saving:
            save = SaveCheckpoints(training.train, saving, steps=3)
            training.run([save], 10, steps_per_loop)
        paths = checkpoint.all_paths(directory)
        self.assertEqual([path.rsplit("-")[-1] for path in paths], ["6", "9"])
        for path, step in zip(paths, (6, 9)):
            reader = tf.train.load_checkpoint(path)
            values = {name: reader.get_tensor(name) for name in training.train.saved}
            trainer.assert_same_bits(values, other.steps(step))

    def test_after_a_failure_it_is_tried_again_in_a_while(self):
        now, tried = [0.0], []
        training = _trainer()
        saver = mock.create_autospec(Saving, instance=True)
        saver.has_failed.return_value = False

        def attempt(session, step):
            tried.append(step)
            return len(tried) > 2

        saver.attempt.side_effect = attempt

        class Tick(Callback):  # 4 seconds each
            def after_run(self, run_context, run_values):
                now[0] += 4

        save = SaveCheckpoints(training.train, saver, steps=2)
        with mock.patch.object(every.time, "monotonic", lambda: now[0]):
            training.run([save, Tick()], 12)
        self.assertEqual(tried, [2, 5, 8, 10, 12])

    def test_one_of_a_thread_that_failed_is_tried_again_in_a_while(self):
        now, tried = [0.0], []
        training = _trainer()
        saver = mock.create_autospec(Saving, instance=True)
        saver.attempt.side_effect = lambda session, step: tried.append(step) or True
        saver.has_failed.side_effect = lambda: len(tried) == 1 and now[0] == 16

        class Tick(Callback):  # 4 seconds each
            def after_run(self, run_context, run_values):
                now[0] += 4

        save = SaveCheckpoints(training.train, saver, steps=3)
        with mock.patch.object(every.time, "monotonic", lambda: now[0]):
            training.run([save, Tick()], 9)
        self.assertEqual(tried, [3, 8, 9])  # not 6
