"""OverFeat, the fast model, with the layers of tf_cnn_benchmarks.

Sermanet, Eigen, Zhang, Mathieu, Fergus, LeCun: OverFeat: Integrated Recognition,
Localization and Detection using Convolutional Networks, ICLR 2014, arXiv:1312.6229.
"""

import tensorflow as tf

from models.image_networks import imagenet, logits, throughput_recipe
from models.layers import Layers
from models.model import Model


def _halve(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    return nn.max_pool(x, 2, 2, "VALID")


def conv1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """231 -> 56 -> 28."""
    x = nn.conv(x, 96, 11, 4, padding="VALID", activation=tf.nn.relu)
    return _halve(x, nn)


def conv2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """28 -> 24 -> 12."""
    return _halve(nn.conv(x, 256, 5, padding="VALID", activation=tf.nn.relu), nn)


def conv3(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """12 -> 12."""
    return nn.conv(x, 512, 3, activation=tf.nn.relu)


def conv4(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """12 -> 12."""
    return nn.conv(x, 1024, 3, activation=tf.nn.relu)


def conv5(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """12 -> 6."""
    return _halve(nn.conv(x, 1024, 3, activation=tf.nn.relu), nn)


def _dense(x: tf.Tensor, nn: Layers, units: int) -> tf.Tensor:
    return nn.dropout(nn.dense(x, units, activation=tf.nn.relu), 0.5)


def dense6(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """3072 rectified units, half of them dropped in training."""
    return _dense(nn.flatten(x), nn, 3072)


def dense7(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """4096 rectified units, half of them dropped in training."""
    return _dense(x, nn, 4096)


def overfeat() -> Model:
    """OverFeat's fast model, with the settings of `throughput_recipe`."""
    return Model(
        name="overfeat",
        blocks=(
            ("conv1", conv1),
            ("conv2", conv2),
            ("conv3", conv3),
            ("conv4", conv4),
            ("conv5", conv5),
            ("dense6", dense6),
            ("dense7", dense7),
            ("logits", logits),
        ),
        inputs=imagenet(231),
        recipe=throughput_recipe(
            32,
            published="39.28 % top-1, 17.12 % top-5 error (arXiv:1312.6229, table 2)",
        ),
        num_parameters=145_920_872 + 4096 + 1,
    )
