"""Steps from a checkpoint of tf_cnn_benchmarks."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from benchmarks.lib import our_steps
from towers.compute import kernels

v1 = tf.compat.v1

_SHAPES = {"affine0": (147, 1), "affine1": (1, 4096), "affine2": (4096, 1001)}
_ARGUMENTS = "--device=cpu --batch_size=2 --num_batches=2 --data_name=synthetic".split()
_ARGUMENTS += ["--num_warmup_batches=0", "--optimizer=sgd", "--init_learning_rate=0.1"]


class OurStepsTest(absltest.TestCase):
    def setUp(self):
        """Writes a checkpoint of `trivial` for images of 7 x 7."""
        super().setUp()
        rng = np.random.default_rng(0)
        self.values = {}
        for layer, shape in _SHAPES.items():
            kernel = 0.1 * rng.standard_normal(shape, np.float32)
            self.values[f"v/cg/{layer}/weights"] = kernel
            self.values[f"v/cg/{layer}/biases"] = np.ones(shape[1], np.float32)
        self.path = self.create_tempdir().full_path + "/model.ckpt"
        with tf.Graph().as_default(), v1.Session() as session:
            held = {
                n: v1.get_variable(n, initializer=v) for n, v in self.values.items()
            }
            session.run(v1.global_variables_initializer())
            v1.train.Saver(held).save(session, self.path)
        self.batches = {
            "images": rng.standard_normal((2, 1, 2, 7, 7, 3), np.float32),
            "labels": np.array([[[1, 5]], [[7, 2]]], np.int32),
        }

    def _logits(self, images):
        """The network by numpy."""
        x = images.reshape(len(images), -1)
        for layer in _SHAPES:
            x = x @ self.values[f"v/cg/{layer}/weights"]
            x = x + self.values[f"v/cg/{layer}/biases"]
            x = x if layer == "affine2" else np.maximum(x, 0)
        return x

    def test_starts_at_its_values_on_the_given_batches(self):
        steps = our_steps.take(
            ["--model=trivial", "--weight_decay=0", *_ARGUMENTS],
            self.batches,
            self.path,
            dropout=False,
        )
        logits = self._logits(self.batches["images"][0, 0])
        log_sum = np.log(np.exp(logits).sum(axis=1))
        loss = np.mean(log_sum - logits[[0, 1], self.batches["labels"][0, 0]])
        self.assertAlmostEqual(steps.losses[0], loss, places=4)
        np.testing.assert_allclose(steps.rates, [0.1, 0.1], rtol=1e-6)
        self.assertLen(steps.names, 6)
        bias = "logits/dense/bias"
        self.assertTrue(np.any(steps.first[bias] != self.values["v/cg/affine2/biases"]))
        self.assertTrue(np.any(steps.values[bias] != steps.first[bias]))

    def test_gradients_are_tensorflows_own(self):
        arguments = ["--model=trivial", "--weight_decay=0", *_ARGUMENTS]
        asked = []

        def gradients(**options):
            asked.append(options)
            return contextlib.nullcontext()

        for plain in (False, True):
            with (
                mock.patch.object(kernels, "gradients", gradients),
                our_steps.OurRun(
                    arguments,
                    self.batches,
                    self.path,
                    dropout=False,
                    plain_gradients=plain,
                ),
            ):
                self.assertEqual(bool(asked), not plain)
            asked.clear()

    def test_refuses_the_checkpoint_of_another_network(self):
        batches = {**self.batches, "images": np.zeros((2, 1, 2, 8, 8, 3), np.float32)}
        with self.assertRaisesRegex(ValueError, "of another network"):
            our_steps.take(
                ["--model=lenet", *_ARGUMENTS], batches, self.path, dropout=False
            )
