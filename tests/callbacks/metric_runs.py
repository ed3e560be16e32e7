"""Runs on the digits whose evaluations give metrics that the test chooses."""

import contextlib
from unittest import mock

from tests import digit_runs
from towers.callbacks import Callback
from towers.callbacks.base import NEVER
from towers.evaluation import evaluator


class Fails(Callback):
    """Ends the run by an error, after a step or at the evaluation of one."""

    def __init__(self, step, method="after_run"):
        self._step, self._method, self._seen = step, method, 0

    def next_due(self, step):
        return self._step if step < self._step else NEVER

    def after_create_session(self, session, coord):
        self._seen = 0

    def after_steps(self, step, losses, seconds):
        self._seen = step

    def after_run(self, run_context, run_values):
        self._fail("after_run", self._seen + 1)
        self._seen += 1

    def after_evaluation(self, run_context, step, metrics):
        self._fail("after_evaluation", step)

    def _fail(self, method, step):
        if (method, step) == (self._method, self._step):
            raise ZeroDivisionError("as the test wants it")


@contextlib.contextmanager
def metric(name, values):
    """Evaluations in a run have a metric with these values, step by step.

    Args:
      name: of the metric.
      values: global step -> value.
    """
    call = evaluator.Evaluator.__call__

    def evaluate(self, session, step, stopped):
        result = call(self, session, step, stopped)
        self.means = {**self.means, name: values[step]}
        return result

    with mock.patch.object(evaluator.Evaluator, "__call__", evaluate):
        yield


class MetricRuns(digit_runs.Runs):
    """A test case whose runs evaluate every 4 steps."""

    def train(self, *callbacks, values=None, **settings):
        """Trains for 12 steps of two towers; the metric `own` has these values.

        Args:
          *callbacks: of the run.
          values: of the evaluations at steps 4, 8, ...; equal ones by default.
          **settings: that differ.

        Returns:
          The lines that it printed.
        """
        values = dict(enumerate(values or [1.0] * 25, 1))
        settings = {
            "num_gpus": 2,
            "num_batches": 12,
            "num_warmup_batches": 0,
            "eval_during_training_every_n_steps": 4,
            "eval_batch_size": 100,
            "train_dir": self.directory,
            **settings,
        }
        every = settings["eval_during_training_every_n_steps"] or 4
        with metric("own", {every * k: v for k, v in values.items()}):
            return self.run_flags(callbacks=callbacks, **settings)
