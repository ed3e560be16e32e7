"""Callbacks of your own, which run between the steps.

    python examples/own_callbacks.py

or, with the command:

    python -m towers.train --model=mlp --num_gpus=2 --device=cpu --num_epochs=5 \\
        --eval_during_training_every_n_epochs=1 --train_dir=run \\
        --callbacks=examples/own_callbacks.py:callbacks
"""

import tensorflow as tf

import towers
from towers.callbacks import CsvLog, KeepBest, ReduceRate, StopEarly
from towers.graph import TrainGraph


class PrintBiggestLoss(tf.compat.v1.train.SessionRunHook):
    """Prints the biggest loss since the last evaluation."""

    def __init__(self, loss: tf.Tensor):
        self._loss = loss
        self._biggest = 0.0

    def before_run(self, run_context):
        """Fetches the loss with the step."""
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        """Compares it."""
        self._biggest = max(self._biggest, float(run_values.results))

    def after_evaluation(self, run_context, step, metrics):
        """Prints it; the run calls this, where there is such a method."""
        print(f"step {step}: biggest loss {self._biggest:.3f}, ", end="")
        print(f"accuracy {metrics['top_1_accuracy']:.3f}")
        self._biggest = 0.0


def callbacks(train: TrainGraph) -> list[tf.compat.v1.train.SessionRunHook]:
    """The callbacks of a run."""
    return [
        PrintBiggestLoss(train.loss),
        CsvLog(every=20),
        KeepBest("top_1_accuracy", best="max"),
        ReduceRate("loss", best="min", patience=2),
        StopEarly("top_1_accuracy", best="max", patience=4),
    ]


def main() -> None:
    """Trains an MLP on the digits."""
    result = towers.fit(
        "mlp",
        "digits",
        num_gpus=2,
        device="cpu",
        num_epochs=5.0,
        eval_during_training_every_n_epochs=1.0,
        train_dir="run",
        callbacks=callbacks,
    )
    print(f"ended at step {result.step}")


if __name__ == "__main__":
    main()
