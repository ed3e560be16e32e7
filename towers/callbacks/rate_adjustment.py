"""How callbacks change the learning rate of their run."""

import tensorflow as tf

from towers.callbacks.base import TrainingRun
from towers.layout import graph_names
from towers.optimizers.learning_rate import ADJUSTMENT

v1 = tf.compat.v1


class RateAdjustment:
    """The learning rate is factor x the schedule's rate + offset; both are saved.

    Args:
      run: its schedule is an `AdjustableRate`, as in every run with callbacks.
    """

    def __init__(self, run: TrainingRun):
        variable = run.train.saved[ADJUSTMENT]
        assert isinstance(variable, tf.Variable)
        self._factors = {} if run.rate_factors is None else run.rate_factors
        with tf.device(variable.device), v1.name_scope(graph_names.VARIABLES):
            self._value = variable.read_value()
            self._given = v1.placeholder(tf.float32, [2])
            self._assign = variable.assign(self._given, read_value=False)

    def factor(self, session: v1.Session) -> float:
        """The factor for the next steps."""
        return float(session.run(self._value)[0])

    def change(self, session: v1.Session, step: int, factor: float) -> None:
        """Sets the factor for the steps after `step`, and notes it."""
        self._factors[step] = factor
        self.write(session, factor)

    def repeat(self, session: v1.Session, step: int) -> None:
        """Sets the factor that was noted for the steps after `step`, if any."""
        if step in self._factors:
            self.write(session, self._factors[step])

    def write(self, session: v1.Session, factor: float, offset: float = 0.0) -> None:
        """Sets factor and offset for the next steps."""
        session.run(self._assign, {self._given: (factor, offset)})
