"""The numbers of a run as a CSV file."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from towers.callbacks.base import RunContext, TrainingRun
from towers.callbacks.csv_table import CsvTable, file_path
from towers.callbacks.every import Recorder

v1 = tf.compat.v1

_EVALUATION = "eval_"  # prefix of the columns of evaluations


class CsvLog(Recorder):
    """Writes the loss, learning rate and metrics, and the results of evaluations.

    Every `every` steps it writes a row with the columns `step`, `loss`,
    `learning_rate` and the model's metrics; after each evaluation, a row with `step`,
    `eval_loss` and so on.  A run that continues from a checkpoint continues the file.

    Args:
      path: of the file; `log.csv` in the run's `train_dir` by default.
      every: steps between two rows.
    """

    def __init__(self, path: str | None = None, *, every: int = 10):
        super().__init__(every)
        self._path = path

    def set_up(self, run: TrainingRun) -> None:
        """Finds the tensors to fetch and the path of the file.

        Raises:
          ValueError: there is neither a path nor a `train_dir`.
        """
        train = run.train
        rate = train.learning_rate
        super().set_up(run)
        self.wanted = {"loss": train.loss, "learning_rate": rate, **train.metrics}
        path = file_path(self, self._path, "log.csv", run)
        self._table = CsvTable(path, list(self.wanted), run.side)
        self._evaluated = -1

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Opens the file and removes rows of later steps than the current one."""
        super().after_create_session(session, coord)
        rows = self._table.open(self.step)
        evaluated = [int(r["step"]) for r in rows if r.get(f"{_EVALUATION}loss")]
        self._evaluated = max(evaluated, default=-1)

    def record(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Writes the row of a step."""
        self._table.add(step, values)

    def after_evaluation(
        self, run_context: RunContext, step: int, metrics: Mapping[str, float]
    ) -> None:
        """Writes the row of an evaluation."""
        if step > self._evaluated:
            named = {f"{_EVALUATION}{name}": v for name, v in metrics.items()}
            self._table.add(step, named)
            self._evaluated = step
