"""The Keras models have the layers of this project's models."""

import contextlib
import importlib.util
import io
import re
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from benchmarks import cluster_speed
from benchmarks.lib import process
from benchmarks.lib.cases import BenchmarkCase, Length
from benchmarks.lib.process import TOTAL
from benchmarks.peers import keras_peer
from benchmarks.peers.systems import Places
from models.layers import Layers
from tests import arrays
from tests.benchmarks.peers import peer_models
from tests.processes import programs

v1 = tf.compat.v1

Weights = dict[str, list[list[np.ndarray]]]


def _number(layer) -> int:
    """`conv2d_7` was made before `conv2d_10`, and `conv2d` before both."""
    match = re.search(r"_(\d+)$", layer.name)
    return int(match[1]) if match else 0


def _weights(model) -> Weights:
    """The weights of each layer, by kind of layer, in the order of their making."""
    kinds = {"Conv2D": "conv", "Dense": "dense", "BatchNormalization": "norm"}
    weights: Weights = {kind: [] for kind in kinds.values()}
    for layer in sorted(model.layers, key=_number):
        if kind := kinds.get(type(layer).__name__):
            weights[kind].append(layer.get_weights())
    return weights


def _ours() -> dict[str, list[list[tf.Variable]]]:
    """This graph's variables in the same order; in Keras gamma stands before beta."""
    scopes: dict[str, dict[str, tf.Variable]] = {}
    for variable in v1.global_variables():
        scope, name = variable.op.name.rsplit("/", 1)
        scopes.setdefault(scope, {})[name] = variable
    weights = {"conv": [], "dense": [], "norm": []}
    for leaves in scopes.values():
        names = ["kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance"]
        kind = "norm"
        if "kernel" in leaves:
            kind = "conv" if len(leaves["kernel"].shape) == 4 else "dense"
        weights[kind].append([leaves[name] for name in names if name in leaves])
    return weights


def _run(model, images: np.ndarray, weights: Weights) -> np.ndarray:
    """Our model's outputs on those weights, which must be all that it has."""
    with tf.Graph().as_default(), v1.Session() as session:
        nn = Layers(training=False, num_classes=model.inputs.num_classes)
        outputs = model.run(tf.constant(images), nn)
        values = tf.nest.flatten(weights)
        variables = tf.nest.flatten(_ours())
        assert [v.shape for v in variables] == [v.shape for v in values]
        initial = {v.initializer.inputs[1]: w for v, w in zip(variables, values)}
        session.run([v.initializer for v in variables], initial)
        return session.run(outputs)


class KerasPeerTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(*keras_peer.MODELS)
    def test_computes_what_ours_computes_on_the_same_weights(self, name):
        row = keras_peer.MODELS[name]
        ours = peer_models.ours(name)
        self.assertEqual(row.shape, ours.inputs.shape)
        self.assertEqual(row.num_classes, ours.inputs.num_classes)
        tf.keras.utils.set_random_seed(1)
        peer = keras_peer.build(name)
        for layer in peer.layers:  # so that no batch norm is the identity
            if isinstance(layer, tf.keras.layers.BatchNormalization):
                draw = np.random.uniform
                layer.set_weights(
                    [draw(0.5, 1.5, w.shape) for w in layer.get_weights()]
                )
        images = np.random.uniform(size=[2, *row.shape]).astype(np.float32)
        expected = peer(images, training=False).numpy()
        actual = _run(ours, images, _weights(peer))
        scale = np.abs(expected).max()
        arrays.assert_close(actual / scale, expected / scale, rtol=0.0, atol=1e-5)

    def test_trains(self):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            keras_peer.main(
                ["--model=mlp", "--num_batches=3", "--num_warmup_batches=1", "--no-xla"]
            )
        self.assertTrue(TOTAL.match(output.getvalue()))

    def test_trains_on_a_cluster(self):
        """As `benchmarks.cluster_speed` has it, with Keras 2."""
        if importlib.util.find_spec("tf_keras") is None:
            self.skipTest("no tf-keras here")
        programs.need_private_networks()
        places = Places(*[sys.executable] * 2, "", sys.executable)
        command = cluster_speed.keras_ps(
            BenchmarkCase("mlp", 4, 8), Length(3, 1), places
        )
        finished = process.run(command, timeout=programs.PATIENCE)
        self.assertIsNotNone(finished.images_per_second, finished.lines)

    def test_an_epoch_warms_up_and_another_is_timed(self):
        watch = keras_peer.EpochStopwatch()
        clock = mock.Mock(perf_counter=mock.Mock(side_effect=[10, 30, 40, 45]))
        with mock.patch.object(keras_peer, "time", clock):
            for epoch in range(2):
                watch.on_epoch_begin(epoch)
                watch.on_epoch_end(epoch)
        self.assertEqual(watch.seconds, 5)
