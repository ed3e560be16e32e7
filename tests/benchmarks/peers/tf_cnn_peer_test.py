"""The driver of tf_cnn_benchmarks, with its modules played."""

import importlib
import json
import os
import sys
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

v1 = tf.compat.v1


class _Benchmark:
    """As `BenchmarkCNN`: a loss on the batches of two towers, in two steps."""

    def __init__(self, params):
        self.params = params
        self.model = types.SimpleNamespace()

    def run(self):
        """Builds and trains."""
        with tf.Graph().as_default(), v1.Session() as session:
            step = v1.train.create_global_step()
            towers = [self.model.get_synthetic_inputs("", 9) for _ in range(2)]
            sums = [tf.reduce_sum(x) + tf.cast(y[0], tf.float32) for x, y in towers]
            tf.constant(0.5, name="learning_rate_tensor")
            saver = v1.train.Saver()
            supervisor = types.SimpleNamespace(saver=saver, global_step=step)
            session.run(v1.global_variables_initializer())
            self.loss, self.after = sum(sums), step.assign_add(1)
            self.benchmark_with_session(session, supervisor, None)

    def benchmark_with_session(self, sess, supervisor, others):
        """Takes the steps."""
        del supervisor, others
        module = sys.modules["benchmark_cnn"]
        for _ in range(2):
            module.benchmark_one_step(sess, self)


def _one_step(sess, benchmark):
    loss = sess.run(benchmark.loss)
    sess.run(benchmark.after)
    return None, loss


class TfCnnPeerTest(absltest.TestCase):
    def test_gives_each_tower_its_batch_of_each_step(self):
        folder = self.create_tempdir().full_path
        images = np.zeros((2, 2, 1, 1, 1, 3), np.float32)
        images[:, :, 0, 0, 0, 0] = [[1, 10], [100, 1000]]
        labels = np.array([[[2], [3]], [[4], [5]]], np.int32)
        np.savez(f"{folder}/batches.npz", images=images, labels=labels)
        modules = {
            "benchmark_cnn": types.SimpleNamespace(
                BenchmarkCNN=_Benchmark,
                benchmark_one_step=_one_step,
                make_params=dict,
                setup=lambda params: params,
            ),
            "cnn_util": types.SimpleNamespace(log_fn=print),
            "convnet_builder": types.SimpleNamespace(
                ConvNetBuilder=type("ConvNetBuilder", (), {"dropout": None})
            ),
            "tensorflow.compat.v1": v1,
        }
        with mock.patch.dict(sys.modules, modules):
            driver = importlib.import_module("benchmarks.peers.tf_cnn_peer")
            driver.run(
                {},
                f"{folder}/batches.npz",
                f"{folder}/run",
                dropout=False,
                saved=[0, 2],
            )
        sys.modules.pop("benchmarks.peers.tf_cnn_peer", None)
        with open(f"{folder}/run/steps.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file), [[16.0, 0.5], [1109.0, 0.5]])
        for step, is_saved in enumerate((True, False, True)):
            path = f"{folder}/run/model.ckpt-{step}.index"
            self.assertEqual(os.path.exists(path), is_saved, path)
