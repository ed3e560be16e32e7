"""A data set with `__len__` and `__getitem__`, as PyTorch's are, read by two processes.

    python examples/indexed_data.py

The processes import this file. It does not import TensorFlow itself, and `towers` only
when it trains, so they start in half a second.
"""

import pathlib
import sys

import numpy as np

import towers


class Digits:
    """The project's handwritten digits, each moved by up to one pixel.

    Args:
      train: whether they are for training; one in five is for testing.
    """

    def __init__(self, *, train: bool):
        path = pathlib.Path(towers.__file__).with_name("data") / "digits.csv.gz"
        table = np.loadtxt(path, delimiter=",", dtype=np.uint8)
        self.table = table[(np.arange(len(table)) % 5 > 0) == train]

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int32]:
        # A function of the index alone, so that a run can be repeated.
        shift = np.random.default_rng(index).integers(-1, 2, 2)
        *pixels, digit = self.table[index]
        image = np.roll(np.reshape(pixels, [8, 8, 1]), shift, (0, 1))
        return image.astype(np.uint8) * 15, np.int32(digit)


def main() -> int:
    """Trains the project's perceptron on two towers."""
    outcome = towers.fit(
        "mlp",
        towers.data.from_source(Digits(train=True), workers=2),
        validation_data=towers.data.from_source(Digits(train=False)),
        num_gpus=2,
        batch_size=32,
        num_epochs=20,
    )
    print(f"accuracy {outcome.metrics['top_1_accuracy']:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
