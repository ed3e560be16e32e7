"""Linear regression by gradient descent, compared with the least-squares solution.

    python examples/regression.py

The data are scikit-learn's diabetes: ten numbers of each of 442 patients, and a measure
of their disease a year later. Two towers with 221 patients each train on all of them in
every step.
"""

import sys
import tempfile

import numpy as np
import tensorflow as tf

import towers
from models import Inputs, Model, Recipe, Schedule
from towers.data import from_arrays

try:
    from sklearn.datasets import load_diabetes
except ImportError:
    sys.exit("scikit-learn has the data, and is missing: pip install scikit-learn")


def disease(x, nn):
    """One number for each patient."""
    return nn.dense(x, 1)[:, 0]


def linear() -> Model:
    """The model; its loss is the square of the error."""
    return Model(
        name="linear",
        blocks=(("disease", disease),),
        inputs=Inputs(features=tf.TensorSpec([10]), labels=tf.TensorSpec([])),
        loss=lambda outputs, target: tf.square(outputs - target),
        metrics=lambda outputs, target: {"error": tf.abs(outputs - target)},
        recipe=Recipe(batch_size=221, schedule=Schedule(rates=(0.1,)), num_epochs=600),
    )


def main() -> None:
    """Prints the difference between the two solutions."""
    x, y = load_diabetes(return_X_y=True)
    x, y = (x - x.mean(0)) / x.std(0), (y - y.mean()) / y.std()
    data = from_arrays(x.astype(np.float32), y.astype(np.float32))
    with tempfile.TemporaryDirectory() as folder:
        towers.fit(
            linear(),
            data,
            num_gpus=2,
            optimizer="momentum",
            display_every=200,
            train_dir=folder,
        )
        predicted = towers.predict(linear(), data, train_dir=folder)
    least_squares = x @ np.linalg.lstsq(x, y)[0]
    difference = np.abs(predicted - least_squares).max()
    print(f"R^2 is {1 - np.mean(np.square(predicted - y)):.4f}")
    print(f"from the least squares the predictions differ by {difference:.1e} at most")


if __name__ == "__main__":
    main()
