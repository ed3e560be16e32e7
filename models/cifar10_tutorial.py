"""The network of TensorFlow's CIFAR-10 tutorial, tutorials/image/cifar10.

Krizhevsky: Learning Multiple Layers of Features from Tiny Images, 2009, and his
cuda-convnet; here with the tutorial's initial values, on its 24 x 24 crops.
"""

import tensorflow as tf

from models.layers import Layers
from models.model import Images, Model, Recipe, Schedule

v1 = tf.compat.v1


def _conv(x: tf.Tensor, nn: Layers, bias: float) -> tf.Tensor:
    return nn.conv(
        x,
        64,
        5,
        initializer=v1.truncated_normal_initializer(stddev=5e-2),
        bias_initializer=v1.constant_initializer(bias),
        activation=tf.nn.relu,
    )


def _local(x: tf.Tensor, nn: Layers, units: int) -> tf.Tensor:
    return nn.dense(
        x,
        units,
        initializer=v1.truncated_normal_initializer(stddev=0.04),
        bias_initializer=v1.constant_initializer(0.1),
        activation=tf.nn.relu,
    )


def _norm(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    return nn.local_response_norm(
        x, depth_radius=4, bias=1.0, alpha=0.001 / 9.0, beta=0.75
    )


def conv1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """Convolution, half the size, then normalisation."""
    return _norm(nn.max_pool(_conv(x, nn, bias=0.0), 3, 2), nn)


def conv2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """Convolution, normalisation, then half the size."""
    return nn.max_pool(_norm(_conv(x, nn, bias=0.1), nn), 3, 2)


def local3(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """384 rectified units on the flattened activation."""
    return _local(nn.flatten(x), nn, 384)


def local4(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """192 rectified units."""
    return _local(x, nn, 192)


def softmax_linear(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class."""
    initializer = v1.truncated_normal_initializer(stddev=1 / 192)
    return nn.dense(x, nn.num_classes, initializer=initializer)


def decayed(name: str) -> bool:
    """The tutorial decays the weights of its two hidden dense layers, nothing else."""
    return "local3/dense/kernel" in name or "local4/dense/kernel" in name


def cifar10_tutorial() -> Model:
    """The tutorial's model with the settings of its `cifar10_multi_gpu_train.py`."""
    return Model(
        name="cifar10_tutorial",
        blocks=(
            ("conv1", conv1),
            ("conv2", conv2),
            ("local3", local3),
            ("local4", local4),
            ("softmax_linear", softmax_linear),
        ),
        inputs=Images(
            shape=(24, 24, 3),
            num_classes=10,
            preprocessing="cifar_tutorial",
            num_examples=50_000,
        ),
        recipe=Recipe(
            batch_size=128,
            schedule=Schedule(rates=(0.1, 0.01, 0.001), epochs=(350, 700)),
            num_epochs=256,
            optimizer="sgd",
            weight_decay=0.004,
            decayed=decayed,
            ema_decay=0.9999,
            published="about 86 % accuracy after 100 000 steps, 256 epochs "
            "(docstring of the tutorial's cifar10_train.py)",
        ),
        num_parameters=1_068_298,  # "learnable parameters" (text of the tutorial)
    )
