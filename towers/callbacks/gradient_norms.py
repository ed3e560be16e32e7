"""The norms of the mean gradients."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from towers.callbacks.base import TrainingRun
from towers.callbacks.csv_table import CsvTable, file_path
from towers.callbacks.every import Recorder
from towers.layout import graph_names, parts

v1 = tf.compat.v1


class GradientNorms(Recorder):
    """Writes the Euclidean norm of each variable's gradient, averaged over towers.

    It is the gradient of the loss, without the loss scale, before weight decay and
    clipping.  Every `every` steps the file gets a row: `step`, `all` (the norm of all
    gradients together), and a column for each variable.  Other steps compute no norms.
    If every tower updates by itself, it is the gradient of the first tower.

    Args:
      path: of the file; `gradient_norms.csv` in the run's `train_dir` by default.
      every: steps between two rows.

    Attributes:
      norms: the last row, by column.
    """

    def __init__(self, path: str | None = None, *, every: int = 100):
        super().__init__(every)
        self._path = path
        self.norms: dict[str, float] = {}

    def set_up(self, run: TrainingRun) -> None:
        """Adds the norms to the graph.

        Raises:
          ValueError: there is neither a path nor a `train_dir`.
        """
        super().set_up(run)
        train = run.train
        squares: dict[str, list[tf.Tensor]] = {}
        with v1.name_scope(f"{graph_names.SUMMARIES}gradient_norms/"):
            held = ((name, train.mode.held(name)) for name in train.template.trainable)
            names = [name for name, whole in held for _ in parts.each(whole)]
            for name, gradient in zip(names, train.gradients, strict=True):
                if gradient is not None:
                    squares.setdefault(name, []).append(_square(gradient))
            with tf.device(train.placement.master):
                sums = {name: tf.add_n(values) for name, values in squares.items()}
                self.wanted = {"all": tf.sqrt(tf.add_n(list(sums.values())))}
                self.wanted |= {name: tf.sqrt(value) for name, value in sums.items()}
        path = file_path(self, self._path, "gradient_norms.csv", run)
        self._table = CsvTable(path, list(self.wanted), run.side)

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Opens the file and removes rows of later steps than the current one."""
        super().after_create_session(session, coord)
        self._table.open(self.step)

    def record(self, step: int, values: Mapping[str, np.ndarray]) -> None:
        """Writes the row of a step."""
        self.norms = {name: float(value) for name, value in values.items()}
        self._table.add(step, self.norms)


def _square(gradient: tf.Tensor | tf.IndexedSlices) -> tf.Tensor:
    """The sum of squares of a gradient, a float32 scalar on the gradient's device."""
    values = getattr(gradient, "values", gradient)
    with tf.device(values.device):
        if isinstance(gradient, tf.IndexedSlices):  # rows can be repeated
            rows, places = tf.unique(gradient.indices)
            values = tf.math.unsorted_segment_sum(values, places, tf.size(rows))
        return tf.reduce_sum(tf.square(tf.cast(values, tf.float32)))
