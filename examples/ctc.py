"""Lines of handwriting to text: padded sequences, and a loss that aligns them (CTC).

    python examples/ctc.py

A line is an image of one to five digits side by side. Its label is the digits, without
their positions. Connectionist temporal classification (Graves et al. 2006) sums over
all positions.
"""

import itertools
import tempfile

import numpy as np
import tensorflow as tf

import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import digits, from_arrays
from towers.data.examples import Examples

MOST = 5  # digits in a line
WIDTH = 8 * MOST  # columns of a line, each 8 pixels
BLANK = 0  # the class of no digit; digit k is the class k + 1


def lines(split: str) -> tuple[dict, np.ndarray]:
    """Lines with their widths, and their classes padded with 0."""
    table, rng = digits.read_table(), np.random.default_rng(0)
    table = table[digits.hold_out(table[:, -1]) == (split != "train")]
    lengths = rng.integers(1, MOST + 1, len(table))
    chosen = rng.integers(len(table), size=[len(table), MOST])
    shown = np.arange(MOST) < lengths[:, None]
    ink = table[chosen, :64].reshape(-1, MOST, 8, 8) * shown[:, :, None, None] / 16
    # One digit beside the other, column by column.
    columns = ink.transpose(0, 1, 3, 2).reshape(-1, WIDTH, 8).astype(np.float32)
    features = {"columns": columns, "width": 8 * lengths}
    return features, (table[chosen, -1].astype(np.int32) + 1) * shown


def data(split: str) -> Examples:
    """The examples of a split, as `--data_name=examples/ctc.py:data` asks."""
    return from_arrays(*lines(split))


def look(x, nn):
    """Features of each column, from the columns around it."""
    y = tf.pad(x["columns"], [[0, 0], [4, 4], [0, 0]])
    windows = tf.concat([y[:, k : k + WIDTH] for k in range(9)], 2)
    return {**x, "columns": nn.dense(windows, 128, activation=tf.nn.relu)}


def tell(x, nn):
    """Logits of the classes at each column, and the widths."""
    y = nn.dense(x["columns"], 64, activation=tf.nn.relu)
    return {"logits": nn.dense(y, 11), "width": x["width"]}


def loss(outputs, classes):
    """The negative log-likelihood of each line's text, over all alignments."""
    return tf.nn.ctc_loss(
        classes,
        outputs["logits"],
        tf.math.count_nonzero(classes, 1, dtype=tf.int32),
        outputs["width"],
        logits_time_major=False,
        blank_index=BLANK,
    )


def net() -> Model:
    """The model, what it reads, and how it is trained."""
    return Model(
        name="ctc",
        blocks=(("look", look), ("tell", tell)),
        inputs=Inputs(
            features={
                "columns": tf.TensorSpec([WIDTH, 8]),
                "width": tf.TensorSpec([], tf.int32),
            },
            labels=tf.TensorSpec([MOST], tf.int32),
        ),
        loss=loss,
        metrics=lambda outputs, classes: {},
        recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.003,)), num_epochs=20),
    )


def text(logits: np.ndarray, width: int) -> str:
    """The text: the best class of each column, without repetitions and blanks."""
    best = [k for k, _ in itertools.groupby(logits[:width].argmax(1))]
    return "".join(str(k - 1) for k in best if k != BLANK)


def main() -> None:
    """Trains on two towers, and prints the text of lines of the test set."""
    with tempfile.TemporaryDirectory() as folder:
        towers.fit(
            net(),
            data("train"),
            num_gpus=2,
            batch_size=16,
            optimizer="adam",
            display_every=100,
            train_dir=folder,
        )
        predicted = towers.predict(net(), data("test"), train_dir=folder)
    _, classes = lines("test")
    written = ["".join(str(k - 1) for k in line if k) for line in classes]
    read = [text(*line) for line in zip(predicted["logits"], predicted["width"])]
    for pair in list(zip(written, read))[:5]:
        print("{} is read as {}".format(*pair))
    right = np.mean([a == b for a, b in zip(written, read)])
    print(f"{right:.1%} of {len(read)} lines are read without an error")


if __name__ == "__main__":
    main()
