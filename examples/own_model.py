"""A model of your own: a chain of blocks, trained with two towers.

    python examples/own_model.py

`python -m towers.train --model=examples/own_model.py:tiny --num_gpus=2` does the same
from the command line, which has more settings.
"""

import sys

import tensorflow as tf

from flags import config
from models import Images, Model, Recipe, Schedule
from towers import planning, run
from towers.session.progress import Console


def features(x, nn):
    """Two convolutions with batch norm and a residual connection."""
    x = nn.conv(x, 16, 3, activation=tf.nn.relu)
    return tf.nn.relu(x + nn.batch_norm(nn.conv(x, 16, 3, use_bias=False)))


def logits(x, nn):
    """One number per class."""
    return nn.dense(nn.dropout(nn.flatten(x), 0.2), nn.num_classes)


def tiny() -> Model:
    """The model, what it reads, and how it is trained."""
    return Model(
        name="tiny",
        blocks=(("features", features), ("logits", logits)),
        inputs=Images(shape=(8, 8, 1), num_classes=10, data_name="digits"),
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.02,)), num_epochs=5),
    )


def main() -> int:
    """Trains the model and prints its accuracy on the test images."""
    settings = config.make(num_gpus=2, device="cpu", batch_size=16)
    plan = planning.make(settings, lambda name: tiny())
    return run.train(plan, Console(sys.stdout))


if __name__ == "__main__":
    sys.exit(main())
