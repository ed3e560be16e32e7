"""How long each tower takes is added up in the graph."""

import time

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer

_SECONDS = 0.05  # of the wait for an example


def _sleep(x):  # TensorFlow does not keep what it calls
    time.sleep(len(x) * _SECONDS)
    return x


def _waiting_model():
    def logits(x, nn):
        x = nn.flatten(x)
        later = tf.numpy_function(_sleep, [x], x.dtype)
        later.set_shape(x.shape)
        return nn.dense(later, nn.num_classes)

    return trainer.model_of(logits)


class TowerTimesTest(parameterized.TestCase):
    @parameterized.parameters(1, 3)
    def test_of_all_steps(self, steps_per_loop):
        training = trainer.Trainer(
            _waiting_model(),
            towers=2,
            tower_batch_sizes=(6, 2),
            at_a_time=0,
            times_towers=True,
        )
        training.add_loop().start().run([], 3, steps_per_loop=steps_per_loop)
        first, second = training.session.run(training.train.tower_seconds)
        self.assertGreater(first, 3 * 6 * _SECONDS)
        self.assertGreater(second, 3 * 2 * _SECONDS)
        self.assertLess(second, 0.8 * first)

    def test_nobody_asks(self):
        training = trainer.Trainer(towers=2)
        self.assertIsNone(training.train.tower_seconds)
        names = [op.name for op in training.train.graph.get_operations()]
        self.assertNotIn("tower_times", " ".join(names))
