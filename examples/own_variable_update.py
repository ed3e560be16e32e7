"""A variable update of your own: one class and one row.

    python examples/own_variable_update.py

Local SGD: every tower trains a replica of its own, and every few steps the replicas are
replaced by their mean (Stich 2019, arXiv:1805.09767). The mode derives from
`Independent`, which has a replica per tower and exchanges nothing.
"""

import tensorflow as tf

import models
from towers import graph
from towers.callbacks.base import Callback
from towers.data import inputs
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.variable_update.synchronous import Independent

PERIOD = 5  # steps between two means
STEPS = 60


class LocalSGD(Independent):
    """A replica per tower; every few steps each becomes the mean of all."""

    description = "a replica per tower; the mean of all every few steps"

    def average(self) -> tf.Operation:
        """The operation that replaces the replicas of every variable by their mean."""
        changes = []
        for replicas in self.replicas.values():
            values = [replica.read_value() for replica in replicas]
            with tf.device(replicas[0].device):
                mean = tf.add_n(values) / len(values)
            changes += [replica.assign(mean, read_value=False) for replica in replicas]
        return tf.group(*changes)


class Average(Callback):
    """Runs an operation every few steps."""

    def __init__(self, operation: tf.Operation):
        self._operation = operation
        self._steps = 0

    def after_run(self, run_context, run_values):
        """Counts the step, and averages if it is time."""
        self._steps += 1
        if self._steps % PERIOD == 0:
            run_context.session.run(self._operation)


def main() -> None:
    """Trains four replicas of an MLP on the digits, and prints the loss."""
    devices = placement.local(4, kind="cpu")
    model = models.get("mlp")
    request = inputs.Request(shape=(8, 8, 1), num_classes=10, kind="images")
    train = graph.build(
        model,
        inputs.get("digits", request, split="train", training=True),
        Update("sgd", Piecewise((0.1,))),
        placement=devices,
        options=graph.Options(batch_size=16, variable_update="local_sgd"),
        modes={**VARIABLE_UPDATES, "local_sgd": LocalSGD},
    )
    with train.graph.as_default():
        average = train.mode.average()
    config = placement.session_config(devices)
    with tf.compat.v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, restore=lambda session: None)
        for last_step in range(10, STEPS + 1, 10):
            step = loop.run(train, session, [Average(average)], last_step=last_step)
            loss = session.run(train.loss)
            print(f"step {step}: loss of the first tower {loss:.3f}")


if __name__ == "__main__":
    main()
