"""The UCI optical digits as a TFDS data set that ships with the project.

Importing this module registers the builder with TFDS under the name `digits`, so that
it takes the same path as any other data set:

    tfds.load("digits", split="train")
"""

import pathlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow_datasets as tfds

_DESCRIPTION = """
1,797 hand-written digits by 13 people, 8x8 pixels of 17 grey levels, here stretched to
0..255: the test set of "Optical Recognition of Handwritten Digits" in the UCI Machine
Learning Repository, in the file that scikit-learn ships.  The file names no split, so
every fifth example of each digit is held out for `test` and the others are `train`.
"""

_CITATION = """
@misc{alpaydin1998optical,
  title  = {Optical Recognition of Handwritten Digits},
  author = {Alpaydin, E. and Kaynak, C.},
  year   = {1998},
  doi    = {10.24432/C50P49},
  publisher = {UCI Machine Learning Repository},
}
"""

_HOLD_OUT = 5  # every fifth example of each digit is for testing


class Digits(tfds.core.GeneratorBasedBuilder):
    """The UCI optical digits: 1,442 images for training and 355 for testing."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=_DESCRIPTION,
            features=tfds.features.FeaturesDict(
                {
                    "image": tfds.features.Image(shape=(8, 8, 1)),
                    "label": tfds.features.ClassLabel(num_classes=10),
                }
            ),
            supervised_keys=("image", "label"),
            homepage="https://archive.ics.uci.edu/dataset/80",
            citation=_CITATION,
            license="CC BY 4.0",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        table = read_table()
        held_out = hold_out(table[:, -1])
        return {
            "train": self._generate_examples(table, np.flatnonzero(~held_out)),
            "test": self._generate_examples(table, np.flatnonzero(held_out)),
        }

    def _generate_examples(
        self, table: np.ndarray, rows: np.ndarray
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        for row in rows.tolist():
            yield row, {"image": image(table[row]), "label": int(table[row, -1])}


def read_table() -> np.ndarray:
    """The table in the file: uint8 [1797, 65], 64 pixels in 0..16 and the digit."""
    path = pathlib.Path(__file__).with_name("digits.csv.gz")
    return np.loadtxt(path, delimiter=",", dtype=np.uint8)


def image(row: np.ndarray) -> np.ndarray:
    """The picture in one row of the table, uint8 [8, 8, 1] in 0..255."""
    return np.rint(row[:64] * (255 / 16)).astype(np.uint8).reshape(8, 8, 1)


def hold_out(labels: np.ndarray) -> np.ndarray:
    """Which examples are for testing: every fifth of each digit, bool [examples].

    Counting within a digit keeps the digits balanced.  Every fifth row would not,
    because the writers wrote the digits in a fixed sequence.
    """
    held_out = np.zeros(len(labels), bool)
    for digit in np.unique(labels):
        held_out[np.flatnonzero(labels == digit)[_HOLD_OUT - 1 :: _HOLD_OUT]] = True
    return held_out
