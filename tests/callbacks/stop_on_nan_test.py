"""A run ends at the first loss that is not finite, and saves nothing of it."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.callbacks.save_checkpoints import SaveCheckpoints
from towers.callbacks.stop_on_nan import NanLossError, StopOnNan
from towers.checkpoints import checkpoint
from towers.checkpoints.saving import Saving
from towers.data import inputs, records
from towers.optimizers.loss_scale import LossScaling


def _trainer(source=None, **options):
    options = {"towers": 2, "batch_size": 4, **options}
    return trainer.Trainer(source=source, **options).add_loop().start()


class StopOnNanTest(parameterized.TestCase):
    def _stop(self, training):
        with training.train.graph.as_default():
            return StopOnNan(
                training.train, checkpoint.FiniteCheck(training.train.saved)
            )

    def _source(self, poison, example):
        images = np.random.default_rng(1).normal(size=(64, 4, 4, 1)).astype(np.float32)
        images[example] = poison
        examples = images, np.arange(64) % 5  # `from_arrays` would refuse them
        return inputs.DatasetSource(
            records.from_dataset(
                lambda: tf.data.Dataset.from_tensor_slices(examples),
                num_examples=64,
                num_classes=5,
            ),
            inputs.Request(shape=()),
            training=False,
        )

    @parameterized.product(steps_per_loop=(1, 3, 50), poison=(np.nan, np.inf))
    def test_names_the_step_and_no_checkpoint_is_written_after_it(
        self, steps_per_loop, poison
    ):
        # Of the 8 examples of step 6, one is bad.
        training = _trainer(self._source(poison, 43))
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            saver = checkpoint.Checkpoints(directory, training.train.saved)
        around = [
            self._stop(training),
            SaveCheckpoints(training.train, Saving(saver), steps=2),
        ]
        with self.assertRaisesRegex(
            NanLossError,
            "^the loss of step 6 is (nan|inf); lower init_learn",
        ):
            training.run(around, 8, steps_per_loop)
        self.assertTrue(checkpoint.latest(directory).endswith("model.ckpt-4"))

    def test_an_infinite_loss_among_steps_inside_the_graph(self):
        stop = self._stop(_trainer())
        with self.assertRaisesRegex(NanLossError, "^the loss of step 9 is inf"):
            stop.after_steps(10, np.float32([1.0, np.inf, 1.0]), 1.0)

    @parameterized.parameters(1, 3)
    def test_no_learning_rate_is_to_blame_for_the_first_loss(self, steps_per_loop):
        training = _trainer(self._source(np.nan, 3))
        with self.assertRaisesRegex(
            NanLossError,
            "^the loss of step 1 is nan; it is that of the initial",
        ):
            training.run([self._stop(training)], 8, steps_per_loop)

    def test_nor_for_the_first_loss_after_a_checkpoint(self):
        training = _trainer(self._source(np.nan, 43))
        training.steps(5)
        with self.assertRaisesRegex(
            NanLossError,
            "^the loss of step 6 is nan; it is that of the checkp",
        ):
            training.run([self._stop(training)], 8)

    def test_a_loss_scale_that_is_too_large(self):
        training = _trainer(dtype=tf.float16, loss_scaling=LossScaling(2.0**120))
        with self.assertRaisesRegex(NanLossError, " or fp16_loss_scale$"):
            training.run([self._stop(training)], 8)

    def test_finite_losses_pass(self):
        training = _trainer()
        self.assertEqual(training.run([self._stop(training)], 6, 4), 6)
