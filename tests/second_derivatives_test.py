"""Gradients of gradients: of every layer in every compute dtype, and in training."""

import functools
import math
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.sequences import SequenceLayers
from tests import trainer
from towers.compute import kernels, sufficient_factors
from towers.compute.precision import COMPUTE_DTYPES
from towers.layout import processor

v1 = tf.compat.v1

_IMAGES, _ROWS, _SEQUENCES = (4, 8, 8, 6), (16, 8), (4, 5, 8)

# Layer -> the shape of what it reads, and a call of it.
_LAYERS = {
    "conv": (_IMAGES, lambda x, nn: nn.conv(x, 5, 3)),
    "conv, relu": (_IMAGES, lambda x, nn: nn.conv(x, 5, 3, activation=tf.nn.relu)),
    "conv, pointwise": (_IMAGES, lambda x, nn: nn.conv(x, 5, 1)),
    "conv, strided": (_IMAGES, lambda x, nn: nn.conv(x, 5, 1, 2)),
    "conv, padded": (_IMAGES, lambda x, nn: nn.conv(x, 5, 3, 2, padding="FIXED")),
    "conv, wide": ((2, 4, 4, 128), lambda x, nn: nn.conv(x, 128, 3)),
    "depthwise_conv": (_IMAGES, lambda x, nn: nn.depthwise_conv(x, 3, 2)),
    "dense": (_ROWS, lambda x, nn: nn.dense(x, 6)),
    "dense, relu": (_ROWS, lambda x, nn: nn.dense(x, 6, activation=tf.nn.relu)),
    "dense, wide": ((16, 512), lambda x, nn: nn.dense(x, 512)),
    "embedding": (
        _SEQUENCES,
        lambda x, nn: x * nn.embedding([[1, 2, 0, 1, 2]] * 4, nn.variable("t", [3, 8])),
    ),
    "batch_norm": (_IMAGES, lambda x, nn: nn.batch_norm(x)),
    "batch_norm, relu": (_IMAGES, lambda x, nn: nn.batch_norm(x, activation=_relu)),
    "max_pool": (_IMAGES, lambda x, nn: nn.max_pool(x, 3, 2)),
    "avg_pool": (_IMAGES, lambda x, nn: nn.avg_pool(x, 3, 2)),
    "global_avg_pool": (_IMAGES, lambda x, nn: nn.global_avg_pool(x)),
    "flatten": (_IMAGES, lambda x, nn: nn.flatten(x)),
    "concat": (_IMAGES, lambda x, nn: nn.concat([x, x * x])),
    "local_response_norm": (
        _IMAGES,
        lambda x, nn: nn.local_response_norm(x, depth_radius=2, alpha=0.5, beta=0.75),
    ),
    "dropout": (_SEQUENCES, lambda x, nn: nn.dropout(x, 0.5)),
    "layer_norm": (_SEQUENCES, lambda x, nn: nn.layer_norm(x)),
    "causal_attention": (_SEQUENCES, lambda x, nn: nn.causal_attention(x, 2)),
    "lstm": (_SEQUENCES, lambda x, nn: nn.lstm(x, 4)),
    "unembed": (_SEQUENCES, lambda x, nn: nn.unembed(x, nn.variable("t", [3, 8]))),
}
# These make variables, states or random numbers, and have no gradient.
_NO_LAYERS = {"channels", "variable", "shared", "uniform", "normal"} | {
    "initial_state",
    "final_state",
}


def _relu(x):
    return tf.nn.relu(x)


class SecondDerivativesTest(parameterized.TestCase, tf.test.TestCase):
    def test_every_layer_is_here(self):
        methods = {
            name
            for kind in SequenceLayers.__mro__
            for name, value in vars(kind).items()
            if callable(value) and not name.startswith("_")
        }
        self.assertEqual(
            methods - _NO_LAYERS, {name.partition(",")[0] for name in _LAYERS}
        )

    @parameterized.product(
        layer=tuple(_LAYERS),
        dtype=tuple(COMPUTE_DTYPES),
        instructions=("", "avx512f", "avx512f amx_bf16"),
    )
    def test_are_those_of_plain_operations(self, layer, dtype, instructions):
        """In float32, and nothing is missing or lost."""
        has = mock.patch.object(processor, "has", instructions.split().__contains__)
        dtype = COMPUTE_DTYPES[dtype]
        with has:
            derivatives = _second(layer, dtype, kind="cpu")
        wanted = _of_plain_operations(layer)
        self.assertEqual(len(derivatives), len(wanted))
        self.assertNotEmpty(derivatives)
        bound = 1e-5 if dtype == tf.float32 else 0.04
        for value, right in zip(derivatives, wanted, strict=True):
            size = np.max(np.abs(right))
            self.assertGreater(size, 0)
            self.assertAllLess(np.abs(value - right) / size, bound)

    @parameterized.product(kind=("cpu", "gpu"), beta=(0.75, 0.6))
    def test_of_a_local_response_norm_is_that_of_its_formula(self, kind, beta):
        """TensorFlow has none to compare with."""
        draw = np.random.default_rng(9).normal(size=(2, 3, 3, 4))
        derivatives = []
        for by_kernel in (True, False):
            with tf.Graph().as_default(), v1.Session() as session:
                x = tf.constant(draw, tf.float32)
                with kernels.gradients(kind=kind, dtype=tf.float32):
                    y = tf.nn.local_response_normalization(x, 1, 2.0, 0.5, beta)
                if not by_kernel:
                    band = np.abs(np.subtract.outer(np.arange(4), np.arange(4))) <= 1
                    sums = tf.tensordot(x * x, tf.constant(band, tf.float32), 1)
                    y = x / (2.0 + 0.5 * sums) ** beta
                [dx] = tf.gradients(y**3, [x])
                derivatives.append(session.run([y, dx, *tf.gradients(dx**2, [x])]))
        for value, wanted in zip(*derivatives):
            self.assertAllClose(value, wanted, rtol=1e-4, atol=1e-5)

    @parameterized.product(dtype=tuple(COMPUTE_DTYPES), as_factors=(False, True))
    def test_a_gradient_penalty_in_training(self, dtype, as_factors):
        """Four towers take the steps of one, and the penalty counts in each dtype."""
        how = mock.patch.object(sufficient_factors, "_are_less", lambda *_: as_factors)
        plain, one_tower = _of_one_tower(0.0), _of_one_tower(0.1)
        with how:
            four = _trained(4, 0.1, COMPUTE_DTYPES[dtype])
        bound = {"float32": 1e-5, "float16": 0.1, "bfloat16": 0.2}[dtype]
        self.assertGreater(trainer.difference(plain, one_tower), 1)
        self.assertLess(trainer.difference(one_tower, four), bound)


def _second(layer: str, dtype: tf.DType, kind: str) -> list[np.ndarray]:
    """The gradients, by x and the layer's variables, of the squares of those of a
    weighted sum of squares by x."""
    shape, call = _LAYERS[layer]
    variables = []

    def get(getter, name, shape=None, dtype=None, initializer=None, **options):
        del getter, name, initializer, options
        draw = np.random.default_rng(len(variables)).normal(size=shape)
        draw *= 0.5 / math.sqrt(shape[0]) if len(shape) > 1 else 0.5
        variables.append(tf.cast(tf.constant(draw, tf.bfloat16), dtype))
        return variables[-1]

    draw = np.random.default_rng(9).normal(size=shape)
    with tf.Graph().as_default(), v1.Session() as session:
        # Values that bfloat16 represents exactly.
        x = tf.cast(tf.constant(draw, tf.bfloat16), dtype)
        nn = SequenceLayers(training=True, num_classes=5, dtype=dtype)
        with (
            v1.variable_scope("", custom_getter=get, use_resource=True),
            kernels.gradients(kind=kind, dtype=dtype),
        ):
            y = call(x, nn)
        weights = np.linspace(-1, 1, math.prod(y.shape)).reshape(y.shape)
        target = tf.reduce_sum(weights * tf.cast(y, tf.float32) ** 2) / 16
        [dx] = tf.gradients(target, [x])
        penalty = tf.reduce_sum(tf.cast(dx, tf.float32) ** 2)
        by = [g for g in tf.gradients(penalty, [x, *variables]) if g is not None]
        wide = [tf.cast(tf.convert_to_tensor(g), tf.float32) for g in by]
        return session.run(wide)


@functools.cache
def _of_plain_operations(layer: str) -> list[np.ndarray]:
    """In float32, as on a GPU, where no layer has a gradient of its own."""
    return _second(layer, tf.float32, kind="gpu")


@functools.cache
def _of_one_tower(factor: float) -> dict[str, np.ndarray]:
    return _trained(1, factor, tf.float32)


def _trained(towers: int, factor: float, dtype: tf.DType) -> dict[str, np.ndarray]:
    """The variables after steps with a penalty on the gradient by the images."""

    def critic(x, nn):
        images = x
        x = nn.conv(x, 4, 3, activation=tf.nn.relu)
        x = nn.dense(nn.flatten(x), 16, activation=tf.nn.relu)
        y = nn.dense(x, nn.num_classes)
        [slope] = tf.gradients(y, [images])
        norm = tf.reduce_sum(tf.cast(slope, tf.float32) ** 2, [1, 2, 3])
        return y, norm

    def loss(outputs, labels):
        y, norm = outputs
        plain = tf.nn.sparse_softmax_cross_entropy_with_logits(
            labels=labels, logits=tf.cast(y, tf.float32)
        )
        return plain + factor * norm

    model = trainer.model_of(
        critic, loss=loss, metrics=lambda outputs, labels: {"norm": outputs[1]}
    )
    training = trainer.Trainer(
        model, towers=towers, batch_size=8 // towers, dtype=dtype
    )
    return training.start().steps(5)
