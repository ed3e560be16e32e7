"""Gradients of our networks are those of Keras's on the same random weights.

Keras's own networks where it has them, else a few of its layers.  What is compared is
the gradient of a random sum of the logits, by the norm of each variable's.
"""

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
    make = getattr(keras.applications, name)
    return make(
        weights=None, input_shape=shape, classes=_CLASSES, classifier_activation=None
    )


def _densenet40(name, shape):
    """Huang et al.'s, without bottlenecks; Keras's own have them."""
    layers = keras.layers

    def conv(x, filters, kernel):
        return layers.Conv2D(filters, kernel, padding="same", use_bias=False)(x)

    def rectified(x):
        return layers.ReLU()(layers.BatchNormalization(epsilon=1e-5)(x))

    images = layers.Input(shape)
    x = conv(images, 16, 3)
    for stage in range(3):
        for _ in range(12):
            x = layers.Concatenate()([x, conv(rectified(x), 12, 3)])
        if stage < 2:
            x = layers.AveragePooling2D(2)(conv(rectified(x), x.shape[-1], 1))
    x = layers.GlobalAveragePooling2D()(rectified(x))
    return keras.Model(images, layers.Dense(_CLASSES)(x))


def _inception3():
    """Keras's has a mean in place of the maximum in its last module, and no head."""
    model = models.get("tf_cnn_inception3")
    last = functools.partial(inception.module_e, pool="avg")
    blocks = [(n, last if n == "mixed_7c" else block) for n, block in model.blocks]
    return dataclasses.replace(model, blocks=blocks)


# Ours -> (our model, Keras's network, its name there, shape of an image).  Sizes are
# such that all pad alike, though Keras pads resnet50's pools on all sides.
_NETWORKS = {
    "vgg16": (_application, "VGG16", (32, 32, 3)),
    "resnet50": (_application, "ResNet50", (33, 33, 3)),
    "mobilenet": (_application, "MobileNetV2", (64, 64, 3)),
    "tf_cnn_inception3": (_application, "InceptionV3", (75, 75, 3)),
    "densenet40_k12": (_densenet40, "", (16, 16, 3)),
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


def _of_keras(name, images, factors, *, training):
    """The values and gradients of variables, in order, by name, shape and `kernel`.

    That is the shape of the kernel before the variable, which tells norms apart.
    """
    keras.backend.clear_session()  # so that layers are numbered from 0
    make, theirs, _ = _NETWORKS[name]
    network = make(theirs, images.shape[1:])
    for layer in network.layers:  # as `_smooth` does in ours
        if isinstance(layer, keras.layers.Activation):
            layer.activation = keras.activations.softplus
    variables = []
    for layer in _ordered(network.layers):
        names = _WEIGHTS.get(type(layer).__name__, ())
        if not getattr(layer, "scale", True):  # a batch norm without gamma
            names = names[1:]
        for ours, variable in zip(names, layer.weights):
            if ours in ("gamma", "moving_variance"):
                variable.assign(np.random.uniform(0.5, 1.5, variable.shape))
            variables.append((ours, variable))
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


# In Keras, the rectifiers of these networks are layers that cannot be replaced.
_ROUGH = ("vgg16", "mobilenet", "densenet40_k12")


class KerasGradientsTest(parameterized.TestCase):
    @parameterized.product(name=tuple(_NETWORKS), training=(False, True))
    def test_on_the_same_weights(self, name, training):
        if training and name == "tf_cnn_inception3":
            # Its last norms are of four numbers: 2e-4 in float32.
            self.skipTest("too small an image for statistics of its batch")
        keras.utils.set_random_seed(1)
        shape = _NETWORKS[name][2]
        images = np.random.uniform(-1, 1, [_BATCH, *shape]).astype(np.float32)
        factors = np.random.normal(size=[_BATCH, _CLASSES]).astype(np.float32)
        weights = _of_keras(name, images, factors, training=training)
        ours = _inception3() if "inception" in name else models.get(name)
        with tf.Graph().as_default(), v1.Session() as session, _smooth(name):
            nn = Layers(training=training, num_classes=_CLASSES)
            nn.dropout = lambda x, rate: x
            total = tf.reduce_sum(ours.run(tf.constant(images), nn) * factors)
            wanted, kernel = {}, ()
            for variable in v1.global_variables():
                of = variable.op.name.rpartition("/")[2]
                shape = tuple(variable.shape)
                kernel = shape if of == "kernel" else kernel
                value, gradient = weights[of, shape, kernel].pop(0)
                wanted[variable.op.name] = gradient
                variable.load(value, session)
            trained = v1.trainable_variables()
            gradients = session.run(tf.gradients(total, trained))
        wanted = [wanted[variable.op.name] for variable in trained]
        # Batch norm takes some offsets away again: their gradients are only rounding.
        least = 1e-3 * max(map(np.linalg.norm, wanted))
        errors = {
            variable.op.name: np.linalg.norm(a - b) / max(np.linalg.norm(b), least)
            for variable, a, b in zip(trained, gradients, wanted)
        }
        worst = max(errors, key=errors.get)
        self.assertLess(errors[worst], 1e-4, worst)
        # All of Keras's are here, but for biases that a batch norm takes away again.
        left = {of for (of, *_), several in weights.items() if several}
        self.assertLessEqual(left, {"bias"})


def _smooth(name):
    """Rectifiers without a kink, where rounding would take another derivative."""
    rough = tf.nn.relu if name in _ROUGH else tf.nn.softplus
    return mock.patch.object(tf.nn, "relu", rough)
