"""AlexNet on one device, with the layers of tf_cnn_benchmarks.

Krizhevsky, Sutskever, Hinton: ImageNet Classification with Deep Convolutional Neural
Networks, NIPS 2012; the single-tower shape is near to Krizhevsky: One Weird Trick for
Parallelizing Convolutional Neural Networks, arXiv:1404.5997.  What tf_cnn_benchmarks
calls alexnet on CIFAR-10 is the network of TensorFlow's tutorial.
"""

import tensorflow as tf

from models import cifar10_tutorial
from models.image_networks import CIFAR10, dense, imagenet, logits, throughput_recipe
from models.layers import Layers
from models.model import Model, Recipe, Schedule


def _pool(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    return nn.max_pool(x, 3, 2, "VALID")


def conv1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """227 -> 55 -> 27."""
    x = nn.conv(x, 64, 11, 4, padding="VALID", activation=tf.nn.relu)
    return _pool(x, nn)


def conv2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """27 -> 13."""
    return _pool(nn.conv(x, 192, 5, activation=tf.nn.relu), nn)


def conv3(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """13 -> 13."""
    return nn.conv(x, 384, 3, activation=tf.nn.relu)


def conv4(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """13 -> 13; 384 filters, where One Weird Trick has 256."""
    return nn.conv(x, 384, 3, activation=tf.nn.relu)


def conv5(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """13 -> 6."""
    return _pool(nn.conv(x, 256, 3, activation=tf.nn.relu), nn)


def alexnet() -> Model:
    """Five convolutions and three dense layers, with tf_cnn_benchmarks' settings."""
    return Model(
        name="alexnet",
        blocks=(
            ("conv1", conv1),
            ("conv2", conv2),
            ("conv3", conv3),
            ("conv4", conv4),
            ("conv5", conv5),
            ("dense6", dense),
            ("dense7", dense),
            ("logits", logits),
        ),
        inputs=imagenet(227),
        recipe=throughput_recipe(512),
        num_parameters=61_842_345,
    )


def alexnet_cifar10() -> Model:
    """tf_cnn_benchmarks' alexnet for CIFAR-10: the tutorial's on whole images.

    The classifier starts as `Layers.dense` does, and all variables decay.
    """
    return Model(
        name="alexnet_cifar10",
        blocks=(
            ("conv1", cifar10_tutorial.conv1),
            ("conv2", cifar10_tutorial.conv2),
            ("local3", cifar10_tutorial.local3),
            ("local4", cifar10_tutorial.local4),
            ("logits", logits),
        ),
        inputs=CIFAR10,
        recipe=Recipe(
            batch_size=128,
            schedule=Schedule(rates=(0.1, 0.01, 0.001), epochs=(100, 200)),
            num_epochs=300,
            optimizer="sgd",
            weight_decay=4e-5,
        ),
        num_parameters=1_756_426,
    )
