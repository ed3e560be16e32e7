"""A callback of a run whose tests ask which examples each step took."""

import json
import os
import time

import tensorflow as tf

from towers import callbacks

v1 = tf.compat.v1


class LogExamples(callbacks.Callback):
    """Appends (step, [(first example, number of examples) of each tower]) to a file.

    The file is `STEP_EXAMPLES`; each step takes `STEP_SECONDS` longer.  Both are
    variables of the environment.
    """

    def set_up(self, run: callbacks.TrainingRun) -> None:
        """Keeps the tensors to fetch."""
        train = run.train
        firsts = [batch.first for batch in train.feed.batches]
        sizes = [tf.size(batch.weights) for batch in train.feed.batches]
        self._fetches = train.step, firsts, sizes

    def before_run(self, run_context: v1.train.SessionRunContext):
        """Asks for them."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context, run_values) -> None:
        """Writes a line."""
        step, firsts, sizes = run_values.results
        ranges = [[int(first), int(size)] for first, size in zip(firsts, sizes)]
        with open(os.environ["STEP_EXAMPLES"], "a", encoding="utf-8") as file:
            print(json.dumps([int(step), ranges]), file=file)
        time.sleep(float(os.environ.get("STEP_SECONDS", "0")))


def logging() -> list[callbacks.Callback]:
    """The callbacks of a run."""
    return [LogExamples()]
