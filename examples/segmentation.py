"""Semantic segmentation: the class of every pixel is a digit, or background.

    python examples/segmentation.py

Two of the project's own digits stand in each image, at random places.
"""

import tempfile

import numpy as np
import tensorflow as tf

import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import digits, from_arrays
from towers.data.examples import Examples

SIZE, NOTHING = 20, 10  # pixels a side; the class of what is no digit


def scenes(split: str) -> tuple[np.ndarray, np.ndarray]:
    """Images, float32 [examples, 20, 20, 1], and the class of each pixel."""
    table, rng = digits.read_table(), np.random.default_rng(0)
    table = table[digits.hold_out(table[:, -1]) == (split != "train")]
    images = np.zeros([len(table), SIZE, SIZE, 1], np.float32)
    classes = np.full([len(table), SIZE, SIZE], NOTHING, np.int32)
    for image, mask in zip(images, classes):
        for left in (0, SIZE // 2):
            *ink, digit = table[rng.integers(len(table))]
            ink = np.reshape(ink, [8, 8]) / 16
            row, column = rng.integers([SIZE - 8, SIZE // 2 - 8]) + (0, left)
            image[row : row + 8, column : column + 8, 0] = ink
            mask[row : row + 8, column : column + 8][ink > 0.2] = digit
    return images, classes


def data(split: str) -> Examples:
    """The examples of a split, as `--data_name=examples/segmentation.py:data` asks."""
    return from_arrays(*scenes(split))


def down(x, nn):
    """Features at half the resolution, beside the image itself."""
    y = nn.conv(x, 32, 5, activation=tf.nn.relu)
    return x, nn.conv(nn.max_pool(y, 2, 2), 64, 5, activation=tf.nn.relu)


def up(x, nn):
    """Both at the full resolution; the logits of each pixel."""
    image, y = x
    y = nn.conv(y, 64, 3, activation=tf.nn.relu)
    y = nn.concat([image, tf.nn.depth_to_space(y, 2, nn.data_format)])
    y = nn.conv(y, 32, 5, activation=tf.nn.relu)
    y = nn.conv(y, NOTHING + 1, 1)
    return tf.transpose(y, [0, 2, 3, 1]) if nn.data_format == "NCHW" else y


def loss(outputs, classes):
    """The mean cross entropy of an image's pixels."""
    return tf.reduce_mean(
        tf.nn.sparse_softmax_cross_entropy_with_logits(classes, outputs), [1, 2]
    )


def net() -> Model:
    """The model, what it reads, and how it is trained."""
    return Model(
        name="segmentation",
        blocks=(("down", down), ("up", up)),
        inputs=Inputs(
            features=tf.TensorSpec([SIZE, SIZE, 1], name="image"),
            labels=tf.TensorSpec([SIZE, SIZE], tf.int32),
        ),
        loss=loss,
        metrics=lambda outputs, classes: {},
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.002,)), num_epochs=12),
    )


def main() -> None:
    """Trains on two towers, and prints the predicted classes of a test image."""
    with tempfile.TemporaryDirectory() as folder:
        towers.fit(
            net(),
            data("train"),
            num_gpus=2,
            batch_size=16,
            optimizer="adam",
            train_dir=folder,
        )
        seen = towers.predict(net(), data("test"), train_dir=folder).argmax(-1)
    _, classes = scenes("test")
    both = [(seen == k) & (classes == k) for k in range(NOTHING + 1)]
    either = [(seen == k) | (classes == k) for k in range(NOTHING + 1)]
    for row in seen[0]:
        print("".join("." if k == NOTHING else str(k) for k in row))
    iou = np.sum(both, (1, 2, 3)) / np.sum(either, (1, 2, 3))
    print(f"mean intersection over union {iou.mean():.3f}")


if __name__ == "__main__":
    main()
