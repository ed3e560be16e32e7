"""Towers on all devices: batch norm over the batches of all of them."""

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer


def _normed() -> Model:
    """Two batch norms, one of them after another's output."""

    def block(x, nn):
        x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
        x = nn.batch_norm(nn.conv(x, 3, 2, use_bias=False), scale=False)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(block)


def _trained(towers: int, steps: int = 6, **options):
    made = trainer.Trainer(
        _normed(),
        trainer.random_source(),
        towers=towers,
        batch_size=24 // towers,
        **options,
    )
    return made.start().steps(steps)


class SyncBatchNormTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, "parameter_server"), (3, "parameter_server"), (4, "replicated")
    )
    def test_towers_are_one_on_the_joined_batch(self, towers, mode):
        """Gradients, moving averages and all; against TensorFlow's own batch norm."""
        one = _trained(1)
        other = _trained(towers, batch_norm="sync", variable_update=mode)
        self.assertLess(trainer.difference(one, other), 1e-5)

    def test_each_by_itself_is_not(self):
        self.assertGreater(trainer.difference(_trained(1), _trained(4)), 1e-3)

    @parameterized.parameters("independent", "asynchronous")
    def test_towers_that_do_not_step_together_cannot(self, mode):
        with self.assertRaisesRegex(ValueError, "batch_norm=sync: the towers must"):
            _trained(2, batch_norm="sync", variable_update=mode)


if __name__ == "__main__":
    tf.test.main()
