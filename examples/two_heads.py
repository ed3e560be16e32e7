"""Two inputs and two heads: an image and a table to a class and a number.

    python examples/two_heads.py

The image is the lower half of a handwritten digit; the table is the ink in each row of
the upper half. One head learns which digit it is, the other how much ink it has.
"""

import tempfile

import numpy as np
import tensorflow as tf

import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import digits, from_arrays
from towers.data.examples import Examples


def data(split: str) -> Examples:
    """The examples of a split, as `--data_name=examples/two_heads.py:data` asks."""
    table = digits.read_table()
    table = table[digits.hold_out(table[:, -1]) == (split != "train")]
    ink = (table[:, :64].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    features = {"image": ink[:, 4:], "table": ink[:, :4].sum((2, 3))}
    labels = {"digit": table[:, -1].astype(np.int32), "ink": ink.mean((1, 2, 3))}
    return from_arrays(features, labels)


def trunk(x, nn):
    """The features that both heads read."""
    image = nn.conv(x["image"], 16, 3, activation=tf.nn.relu)
    both = tf.concat([nn.flatten(image), x["table"]], 1)
    return nn.dense(both, 64, activation=tf.nn.relu)


def heads(x, nn):
    """Logits of the digit, and the ink."""
    return {"digit": nn.dense(x, nn.num_classes), "ink": nn.dense(x, 1)[:, 0]}


def loss(outputs, labels):
    """The cross entropy of the digit and the error of the ink, weighed."""
    digit = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels["digit"], outputs["digit"]
    )
    return digit + 10 * tf.square(outputs["ink"] - labels["ink"])


def metrics(outputs, labels):
    """The accuracy of the digit, and the absolute error of the ink."""
    digit = tf.argmax(outputs["digit"], 1, tf.int32)
    return {
        "accuracy": tf.cast(tf.equal(digit, labels["digit"]), tf.float32),
        "ink_error": tf.abs(outputs["ink"] - labels["ink"]),
    }


def net() -> Model:
    """The model, what it reads, and how it is trained."""
    return Model(
        name="two_heads",
        blocks=(("trunk", trunk), ("heads", heads)),
        inputs=Inputs(
            features={
                "image": tf.TensorSpec([4, 8, 1]),
                "table": tf.TensorSpec([4]),
            },
            labels={"digit": tf.TensorSpec([], tf.int32), "ink": tf.TensorSpec([])},
            num_classes=10,
        ),
        loss=loss,
        metrics=metrics,
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.003,)), num_epochs=20),
    )


def main() -> None:
    """Trains on four towers, and prints both heads' outputs for three test digits."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = towers.fit(
            net(),
            data("train"),
            validation_data=data("test"),
            num_gpus=4,
            batch_size=8,
            optimizer="adam",
            display_every=200,
            train_dir=folder,
        )
        predicted = towers.predict(net(), data("test"), train_dir=folder)
    for logits, ink in zip(predicted["digit"][:3], predicted["ink"]):
        print(f"a {logits.argmax()} of {ink:.2f} ink")
    print(f"accuracy {outcome.metrics['accuracy']:.3f}")


if __name__ == "__main__":
    main()
