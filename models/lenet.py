"""LeNet-5 in the shape of TensorFlow's MNIST tutorial and of tf_cnn_benchmarks.

LeCun, Bottou, Bengio, Haffner: Gradient-Based Learning Applied to Document
Recognition, Proceedings of the IEEE, 1998.
"""

import tensorflow as tf

from models.image_networks import logits
from models.layers import Layers
from models.model import Images, Model, Recipe, Schedule


def conv1(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """32 filters, then half the size."""
    return nn.max_pool(nn.conv(x, 32, 5, activation=tf.nn.relu), 2, 2)


def conv2(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """64 filters, then half the size."""
    return nn.max_pool(nn.conv(x, 64, 5, activation=tf.nn.relu), 2, 2)


def dense(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """512 rectified units on the flattened activation."""
    return nn.dense(nn.flatten(x), 512, activation=tf.nn.relu)


def lenet() -> Model:
    """Two convolutions and a dense layer; trains on the embedded digits in seconds.

    The shape is tf_cnn_benchmarks' synthetic one, so that throughput compares; the
    recipe is for the digits.
    """
    return Model(
        name="lenet",
        blocks=(
            ("conv1", conv1),
            ("conv2", conv2),
            ("dense", dense),
            ("logits", logits),
        ),
        inputs=Images(shape=(28, 28, 3), num_classes=1001, data_name="digits"),
        recipe=Recipe(
            batch_size=32,
            # It works from 1 to 16 towers, so the rate does not depend on their number.
            # With the long warm-up, rounding errors at ReLUs whose input is near 0 do
            # not grow into another training in the first steps.
            schedule=Schedule(rates=(0.05, 0.005), epochs=(30,), warmup_epochs=10),
            num_epochs=40,
            weight_decay=0.005,
            published="98.6 % of the digits, 98.3 to 99.2 over six seeds (measured "
            "here, 4 towers)",
        ),
        num_parameters=2_173_353,
    )
