"""A variational autoencoder of digits, with pictures of its reconstructions.

    python examples/autoencoder.py [FOLDER]

The encoder maps each image to a normal distribution of four numbers. The decoder draws
the image again from a sample of it (Kingma & Welling 2014, arXiv:1312.6114). FOLDER (by
default `autoencoder_run`) gets the checkpoints, and in `eval` a PNG of each evaluation:
digits of the test set, each above its reconstruction.
"""

import sys

import numpy as np
import tensorflow as tf

import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import digits, from_arrays
from towers.data.examples import Examples

CODE = 4  # numbers that an image is reduced to


def data(split: str) -> Examples:
    """The images of a split, without labels."""
    table = digits.read_table()
    table = table[digits.hold_out(table[:, -1]) == (split != "train")]
    return from_arrays((table[:, :64] / 16).astype(np.float32).reshape(-1, 8, 8, 1))


def encode(image, nn):
    """The distribution of the code, and a sample of it for each example."""
    flat = nn.flatten(image)
    hidden = nn.dense(flat, 128, activation=tf.nn.relu)
    mean, log_variance = nn.dense(hidden, CODE), nn.dense(hidden, CODE)
    code = mean + tf.exp(log_variance / 2) * nn.normal(mean)
    return {"flat": flat, "mean": mean, "log_variance": log_variance, "code": code}


def decode(x, nn):
    """The logits of the pixels, from the code alone."""
    hidden = nn.dense(x["code"], 128, activation=tf.nn.relu)
    return {**x, "drawn": nn.dense(hidden, 64)}


def parts(outputs):
    """The two parts of the loss: of the pixels, and of the code's distribution."""
    mean, log_variance = outputs["mean"], outputs["log_variance"]
    pixels = tf.nn.sigmoid_cross_entropy_with_logits(outputs["flat"], outputs["drawn"])
    divergence = tf.exp(log_variance) + tf.square(mean) - 1 - log_variance
    return tf.reduce_sum(pixels, 1), tf.reduce_sum(divergence, 1) / 2


def pictures(outputs, labels):
    """Each image above its reconstruction."""
    del labels
    both = tf.concat([outputs["flat"], tf.sigmoid(outputs["drawn"])], 1)
    return {"digits": tf.reshape(both, [-1, 16, 8, 1])}


def net() -> Model:
    """The model, what it reads, and how it is trained."""
    return Model(
        name="autoencoder",
        blocks=(("encode", encode), ("decode", decode)),
        inputs=Inputs(features=tf.TensorSpec([8, 8, 1], name="image")),
        loss=lambda outputs, labels: tf.add(*parts(outputs)),
        metrics=lambda outputs, labels: {
            name: part for name, part in zip(("pixels", "divergence"), parts(outputs))
        },
        pictures=pictures,
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.003,)), num_epochs=40),
    )


def main() -> None:
    """Trains on two towers."""
    folder = sys.argv[1] if len(sys.argv) > 1 else "autoencoder_run"
    outcome = towers.fit(
        net(),
        data("train"),
        validation_data=data("test"),
        num_gpus=2,
        batch_size=16,
        optimizer="adam",
        display_every=500,
        eval_during_training_every_n_epochs=10.0,
        train_dir=folder,
    )
    print(f"evidence lower bound {-outcome.metrics['loss']:.1f} nats")


if __name__ == "__main__":
    main()
