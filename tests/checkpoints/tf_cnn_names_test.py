"""The names of tf_cnn_benchmarks' variables, for every network that both have."""

import pathlib
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models.layers import Layers
from towers.checkpoints import tf_cnn_names

v1 = tf.compat.v1

_LIST = pathlib.Path(__file__).parent / "tf_cnn_names.txt"

# Models that are those of another row with more or fewer units or classes.
_LIKE = {
    **dict.fromkeys(("vgg16", "vgg19"), "vgg11"),
    **dict.fromkeys(("resnet101", "resnet152"), "resnet50"),
    **{f"tf_cnn_resnet{d}_v2": "tf_cnn_resnet50_v2" for d in (101, 152)},
    **{f"tf_cnn_resnet{d}": "tf_cnn_resnet20" for d in (32, 44, 56, 110)},
    **{f"tf_cnn_resnet{d}_v2": "tf_cnn_resnet20_v2" for d in (32, 44, 56, 110)},
}


def _variables(layer: str) -> dict[str, tuple[int, ...]]:
    """Name -> shape of the variables of a layer in the list."""
    name, dimensions, more = re.fullmatch(r"(.+):([\d,]+)(\+?)", layer).groups()
    shape = tuple(map(int, dimensions.split(",")))
    if "batchnorm" in name:
        roles = ["beta", "moving_mean", "moving_variance", *["gamma"] * bool(more)]
        return {f"v0/cg/{name}/{role}": shape for role in roles}
    kernel = "weights" if "affine" in name else "conv2d/kernel"
    biases = {f"v0/cg/{name}/biases": shape[-1:]} if more else {}
    return {f"v0/cg/{name}/{kernel}": shape, **biases}


def _networks() -> dict[str, dict[str, tuple[int, ...]]]:
    """Model -> name -> shape of its variables in a checkpoint of tf_cnn_benchmarks."""
    networks: dict[str, dict[str, tuple[int, ...]]] = {}
    for line in _LIST.read_text().splitlines()[2:]:
        if line.endswith(" ="):
            networks[line.removesuffix(" =")] = stored = {}
        else:
            for layer in line.split():
                stored |= _variables(layer)
    return networks


_NETWORKS = _networks()


def _ours(name: str) -> dict[str, tuple[int, ...]]:
    """Name -> shape of a model's variables, with as many classes as in the list."""
    model = models.get(name)
    *_, (classes,) = (s for n, s in _NETWORKS[name].items() if n.endswith("/biases"))
    with tf.Graph().as_default():
        nn = Layers(training=True, num_classes=classes)
        model.run(tf.zeros([1, *model.inputs.shape]), nn)
        variables = v1.global_variables()
    return {v.op.name: tuple(v.shape) for v in variables}


class TfCnnNamesTest(parameterized.TestCase):
    @parameterized.parameters(*(name for name in _NETWORKS if name in models.MODELS))
    def test_every_variable_has_one_of_its_shape(self, name):
        ours, stored = _ours(name), _NETWORKS[name]
        pairs = tf_cnn_names.pairs(ours, stored)
        self.assertEqual(set(pairs), set(ours))
        self.assertCountEqual(pairs.values(), stored)
        for variable, theirs in pairs.items():
            self.assertEqual(ours[variable], stored[theirs], variable)

    def test_every_network_is_listed(self):
        missing = [
            name
            for name in models.MODELS
            if name.startswith("tf_cnn_") and _LIKE.get(name, name) not in _NETWORKS
        ]
        self.assertEmpty(missing)
        self.assertContainsSubset(_LIKE.values(), _NETWORKS)

    @parameterized.parameters(*(name for name in _NETWORKS if name in models.MODELS))
    def test_rows_of_nchw_are_in_another_order(self, name):
        """Only where a dense layer reads an image, which our model flattens."""
        model, weights = models.get(name), "v0/cg/affine0/weights"
        rows = np.arange(_NETWORKS[name][weights][0])[:, None]
        expected, flattened = rows[:, 0], []
        with tf.Graph().as_default():
            nn = Layers(training=True, num_classes=9)
            nn.flatten = lambda x: flattened.append(x) or Layers.flatten(nn, x)
            model.run(tf.zeros([1, *model.inputs.shape]), nn)
        for image in flattened[:1]:
            _, height, width, channels = image.shape
            expected = expected.reshape(channels, height, width).transpose(1, 2, 0)
        actual = tf_cnn_names.in_our_order(weights, rows, "NCHW")
        np.testing.assert_array_equal(actual[:, 0], expected.ravel())
        actual = tf_cnn_names.in_our_order(weights, rows, "NHWC")
        np.testing.assert_array_equal(actual, rows)

    def test_a_projection_is_built_first(self):
        pairs = tf_cnn_names.pairs(_ours("resnet50"), _NETWORKS["resnet50"])
        for index, number in enumerate((2, 3, 4, 1)):
            suffix = f"_{index}" if index else ""
            self.assertEqual(
                pairs[f"stage1_unit1/conv{suffix}/kernel"],
                f"v0/cg/resnet_v10/conv{number}/conv2d/kernel",
            )

    def test_slots_and_counters_are_left_out(self):
        ours = [*_ours("lenet"), "conv1/conv/kernel/Momentum", "global_step"]
        slots = "v0/cg/conv0/conv2d/kernel/Momentum", "global_step"
        pairs = tf_cnn_names.pairs(ours, {*_NETWORKS["lenet"], *slots})
        self.assertEqual(pairs["conv1/conv/kernel"], "v0/cg/conv0/conv2d/kernel")
        self.assertLen(pairs, 8)

    @parameterized.parameters(
        ("lenet", "alexnet", "affine2 has a bias in the checkpoint only"),
        ("alexnet", "lenet", "affine2 has a bias in the model only"),
    )
    def test_refuses_another_network(self, ours, theirs, sentence):
        with self.assertRaisesRegex(ValueError, f"another network: {sentence}"):
            tf_cnn_names.pairs(_ours(ours), _NETWORKS[theirs])

    def test_knows_its_checkpoints(self):
        self.assertTrue(tf_cnn_names.are_theirs(_NETWORKS["resnet50"]))
        self.assertFalse(tf_cnn_names.are_theirs(_ours("lenet")))
