"""Keeps the checkpoint at which a metric was best."""

import os

import tensorflow as tf

from towers.callbacks.base import RunContext, TrainingRun
from towers.callbacks.best_so_far import BestSoFar, Standing
from towers.checkpoints.checkpoint import Checkpoints, FiniteCheck
from towers.checkpoints.saving import Saving


class KeepBest(BestSoFar):
    """Keeps the checkpoint with the best value of a metric, in a folder of its own.

    It is an ordinary checkpoint: evaluation, `towers.predict` and training accept its
    folder as `train_dir`.

    Args:
      metric: name of a metric of the evaluations, as `loss`.
      best: `min` or `max`, whichever is better.
      folder: where; `best` in the run's `train_dir` by default.
    """

    def __init__(self, metric: str, *, best: str, folder: str | None = None):
        super().__init__("KeepBest", metric, best)
        self._folder = folder

    def set_up(self, run: TrainingRun) -> None:
        """Adds its state and a saver to the graph.

        Raises:
          ValueError: no folder is given, or the run does not evaluate.
        """
        super().set_up(run)
        if self._folder is None and run.train_dir is None:
            raise ValueError("KeepBest needs train_dir, or a folder of its own")
        folder = self._folder or os.path.join(run.train_dir or "", "best")
        with tf.device(run.train.placement.master):  # whose disk holds the files
            checkpoints = Checkpoints(
                folder,
                run.train.saved | run.train.constants,
                max_to_keep=1,
                finite=FiniteCheck(run.train.saved),
                log=run.log,
            )
        checkpoints.adopt()
        self._saving = Saving(checkpoints, log=run.log)

    def compare(
        self, run_context: RunContext, step: int, standing: Standing, value: float
    ) -> None:
        """Saves if it is the best so far."""
        session = run_context.session
        if step <= standing.step or not self.is_better(value, standing.best):
            return
        if self._saving.attempt(session, step):
            self.write(session, Standing(value, 0, step, 0))
            self.log(f"KeepBest: {self.metric} is best here, {value:.6g}; saved")
