"""Gradients of our networks are those of Keras's on the same random weights.

Keras's own networks where it has them, else a few of its layers.  What is compared is
the gradient of a random sum of the logits, by the norm of each variable's.
"""

import contextlib
import dataclasses
import functools
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import inception
from models.layers import Layers
from tests.models.placeholder_getter import PlaceholderGetter

v1 = tf.compat.v1
keras = tf.keras

_CLASSES, _BATCH = 7, 4
# Keras's layers -> the names of ours, in the order of Keras's weights.
_WEIGHTS = {
    "Conv2D": ("kernel", "bias"),
    "DepthwiseConv2D": ("kernel",),
    "Dense": ("kernel", "bias"),
    "BatchNormalization": ("gamma", "beta", "moving_mean", "moving_variance"),
}


def _application(name, shape):
    """The network, and its layers in the order of our variables."""
    make = getattr(keras.applications, name)
    network = make(
        weights=None, input_shape=shape, classes=_CLASSES, classifier_activation=None
    )
    return network, _ordered(network.layers)


class _OrderedLayers(list):
    """Layers of a network that a test makes, in the order of our variables."""

    def conv(self, x, filters, kernel, strides=1, **options):
        options = {"padding": "same", "use_bias": False} | options
        options["kernel_initializer"] = "he_normal"
        self.append(keras.layers.Conv2D(filters, kernel, strides, **options))
        return self[-1](x)

    def normalised(self, x):
        self.append(keras.layers.BatchNormalization(epsilon=1e-5))
        return keras.layers.Activation("relu")(self[-1](x))

    def network(self, images, x):
        """The network of which x comes before the mean over pixels."""
        self.append(keras.layers.Dense(_CLASSES))
        x = keras.layers.GlobalAveragePooling2D()(x)
        return keras.Model(images, self[-1](x)), self


def _halved(x):
    return keras.layers.MaxPooling2D(3, 2, padding="same")(x)


def _densenet40(name, shape):
    """Huang et al.'s, without bottlenecks; Keras's own have them."""
    layers, images = _OrderedLayers(), keras.layers.Input(shape)
    x = layers.conv(images, 16, 3)
    for stage in range(3):
        for _ in range(12):
            y = layers.conv(layers.normalised(x), 12, 3)
            x = keras.layers.Concatenate()([x, y])
        if stage < 2:
            x = layers.conv(layers.normalised(x), x.shape[-1], 1)
            x = keras.layers.AveragePooling2D(2)(x)
    return layers.network(images, layers.normalised(x))


def _resnet50_v2(name, shape):
    """He et al.'s; in Keras's own the last unit of a stage has its stride."""
    layers, images = _OrderedLayers(), keras.layers.Input(shape)
    x = keras.layers.ZeroPadding2D(3)(images)
    x = layers.conv(x, 64, 7, 2, padding="valid")
    x = _halved(layers.normalised(x))
    for stage, units in enumerate((3, 4, 6, 3)):
        for unit in range(units):
            filters, strides = 64 * 2**stage, 2 if stage and not unit else 1
            y = layers.normalised(x) if stage or unit else x
            if not unit:
                x = layers.conv(y, 4 * filters, 1, strides)
            y = layers.normalised(layers.conv(y, filters, 1, strides))
            y = layers.normalised(layers.conv(y, filters, 3))
            x = keras.layers.Add()([x, layers.conv(y, 4 * filters, 1)])
    return layers.network(images, layers.normalised(x))


def _googlenet(name, shape):
    """Szegedy et al.'s table 1, which says the filters; Keras has no such network."""
    layers, images = _OrderedLayers(), keras.layers.Input(shape)

    def conv(x, filters, kernel, strides=1):
        x = layers.conv(x, filters, kernel, strides, use_bias=True)
        return keras.layers.ReLU()(x)

    x = _halved(conv(images, 64, 7, 2))
    x = _halved(conv(conv(x, 64, 1), 192, 3))
    modules = {
        "3a": (64, 96, 128, 16, 32, 32),
        "3b": (128, 128, 192, 32, 96, 64),
        "4a": (192, 96, 208, 16, 48, 64),
        "4b": (160, 112, 224, 24, 64, 64),
        "4c": (128, 128, 256, 24, 64, 64),
        "4d": (112, 144, 288, 32, 64, 64),
        "4e": (256, 160, 320, 32, 128, 128),
        "5a": (256, 160, 320, 32, 128, 128),
        "5b": (384, 192, 384, 48, 128, 128),
    }
    for module, filters in modules.items():
        filters_1, reduced_3, filters_3, reduced_5, filters_5, pooled = filters
        x = keras.layers.Concatenate()(
            [
                conv(x, filters_1, 1),
                conv(conv(x, reduced_3, 1), filters_3, 3),
                conv(conv(x, reduced_5, 1), filters_5, 5),
                conv(keras.layers.MaxPooling2D(3, 1, padding="same")(x), pooled, 1),
            ]
        )
        if module in ("3b", "4e"):
            x = _halved(x)
    return layers.network(images, x)


def _inception3():
    """Keras's has a mean in place of the maximum in its last module, and no head."""
    model = models.get("tf_cnn_inception3")
    last = functools.partial(inception.module_e, pool="avg")
    blocks = [(n, last if n == "mixed_7c" else block) for n, block in model.blocks]
    return dataclasses.replace(model, blocks=blocks)


# Ours -> (our model, Keras's network, its name there, shape of an image).  Sizes are
# such that all pad alike, though Keras pads resnet50's pools on all sides, and that
# inception3's last norms are of several pixels.
_NETWORKS = {
    "vgg16": (_application, "VGG16", (32, 32, 3)),
    "resnet50": (_application, "ResNet50", (33, 33, 3)),
    "mobilenet": (_application, "MobileNetV2", (64, 64, 3)),
    "tf_cnn_inception3": (_application, "InceptionV3", (107, 107, 3)),
    "densenet40_k12": (_densenet40, "", (16, 16, 3)),
    "resnet50_v2": (_resnet50_v2, "", (33, 33, 3)),
    "googlenet": (_googlenet, "", (33, 33, 3)),
}


def _ordered(layers):
    """Keras's layers; a projection of resnet50 after the convolutions beside it."""
    places: dict[str, int] = {}
    keys = []
    for place, layer in enumerate(layers):
        if auto := re.fullmatch(
            r"(?:conv2d|batch_normalization)(?:_(\d+))?", layer.name
        ):
            # in the order in which Keras made them
            keys.append((int(auto[1] or 0), 0, place))
            continue
        block, number = re.fullmatch(
            r"(?:(\w+_block\d+)_(\d)_)?.*", layer.name
        ).groups()
        first = places.setdefault(block or layer.name, place)
        keys.append((first, 9 if number == "0" else 0, place))
    return [layers[place] for *_, place in sorted(keys)]


def _variables(name):
    """Keras's network, and its variables by their names here, in our order."""
    keras.backend.clear_session()  # so that layers are numbered from 0
    make, theirs, shape = _NETWORKS[name]
    network, ordered = make(theirs, shape)
    for layer in network.layers:  # as `_smooth` does in ours
        if isinstance(layer, keras.layers.Activation):
            layer.activation = keras.activations.softplus
        elif isinstance(layer, keras.layers.ReLU) and name not in _ROUGH:
            layer.call = keras.activations.softplus
    variables = []
    for layer in ordered:
        names = _WEIGHTS.get(type(layer).__name__, ())
        if not getattr(layer, "scale", True):  # a batch norm without gamma
            names = names[1:]
        for ours, variable in zip(names, layer.weights):
            if ours in ("gamma", "moving_variance"):
                variable.assign(np.random.uniform(0.5, 1.5, variable.shape))
            variables.append((ours, variable))
    return network, variables


def _of_keras(network, variables, images, factors, *, training):
    """The values and gradients of variables, in order, by name, shape and `kernel`.

    That is the shape of the kernel before the variable, which tells norms apart.
    """
    # before training changes the averages
    values = [variable.numpy() for _, variable in variables]
    with tf.GradientTape() as tape:
        total = tf.reduce_sum(network(images, training=training) * factors)
    gradients = tape.gradient(total, [variable.value for _, variable in variables])
    weights: dict[tuple, list] = {}
    kernel: tuple = ()
    for (ours, _), value, gradient in zip(variables, values, gradients):
        kernel = value.shape if ours == "kernel" else kernel
        gradient = None if gradient is None else gradient.numpy()
        weights.setdefault((ours, value.shape, kernel), []).append((value, gradient))
    return weights


def _of_ours(name, weights, images, factors, *, training):
    """Variable -> (our gradient, Keras's); takes the values out of `weights`."""
    model = _inception3() if "inception" in name else models.get(name)
    reads = PlaceholderGetter()
    with tf.Graph().as_default(), v1.Session() as session, _smooth(name):
        nn = Layers(training=training, num_classes=_CLASSES)
        nn.dropout = lambda x, rate: x
        with v1.variable_scope("", custom_getter=reads):
            total = tf.reduce_sum(model.run(tf.constant(images), nn) * factors)
        feeds, wanted, kernel = {}, {}, ()
        for variable, read in reads.all.items():
            of, shape = variable.rpartition("/")[2], tuple(read.shape)
            kernel = shape if of == "kernel" else kernel
            feeds[read], wanted[variable] = weights[of, shape, kernel].pop(0)
        trained = reads.trainable
        gradients = session.run(tf.gradients(total, list(trained.values())), feeds)
    return {n: (gradient, wanted[n]) for n, gradient in zip(trained, gradients)}


def _errors(pairs):
    """Variable -> relative error of its gradient.

    Batch norm takes some offsets away again: their gradients are only rounding.  They
    are measured against larger ones.
    """
    least = 1e-3 * max(np.linalg.norm(wanted) for _, wanted in pairs.values())
    return {
        variable: np.linalg.norm(gradient - wanted) / max(np.linalg.norm(wanted), least)
        for variable, (gradient, wanted) in pairs.items()
    }


# In Keras, the rectifiers of the first are in its convolutions.  In googlenet without
# kinks, pixels become so alike that rounding chooses the largest of a pool.
_ROUGH = ("vgg16", "googlenet")


def _smooth(name):
    """Rectifiers without a kink, where rounding would take another derivative."""
    if name in _ROUGH:
        return contextlib.nullcontext()
    smooth = dict.fromkeys(("relu", "relu6"), tf.nn.softplus)
    return mock.patch.multiple(tf.nn, **smooth)


class KerasGradientsTest(parameterized.TestCase):
    @parameterized.parameters(*_NETWORKS)
    def test_on_the_same_weights(self, name):
        keras.utils.set_random_seed(1)
        images = np.random.uniform(-1, 1, [_BATCH, *_NETWORKS[name][2]]).astype("f4")
        factors = np.random.normal(size=[_BATCH, _CLASSES]).astype("f4")
        network, variables = _variables(name)
        norms = any(ours == "moving_mean" for ours, _ in variables)
        for training in (False, True) if norms else (True,):
            with self.subTest(training=training):
                data = images, factors
                weights = _of_keras(network, variables, *data, training=training)
                pairs = _of_ours(name, weights, *data, training=training)
                errors = _errors(pairs)
                worst = max(errors, key=errors.get)
                self.assertLess(errors[worst], 1e-4, worst)
                # All of Keras's are here, but for biases that a norm takes away again.
                left = {of for (of, *_), several in weights.items() if several}
                self.assertLessEqual(left, {"bias"})
