"""Modes with stale gradients take exactly the steps of their equations."""

import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Images, Model, Recipe, Schedule
from tests import arrays, trainer
from towers.data import inputs
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Hyperparameters, Update

v1 = tf.compat.v1

_RATE, _MOMENTUM = 0.125, 0.5
_EXAMPLES, _UNITS, _BATCH, _TOWERS = 24, 3, 2, 4
_UPDATE = Update(
    "momentum",
    Piecewise((_RATE,)),
    settings=Hyperparameters(momentum=_MOMENTUM, nesterov=False),
)


def _linear() -> Model:
    """Loss (x w - y)^2 / 2 of an example."""

    def block(x, nn):
        return nn.flatten(x) @ nn.variable("w", [_UNITS, 1], v1.ones_initializer())

    def loss(outputs, labels):
        return 0.5 * (outputs[:, 0] - tf.cast(labels, tf.float32)) ** 2

    return Model(
        name="linear",
        blocks=(("linear", block),),
        inputs=Images(shape=(1, 1, _UNITS), num_classes=4),
        recipe=Recipe(batch_size=_BATCH, schedule=Schedule(rates=(_RATE,))),
        loss=loss,
        metrics=lambda outputs, labels: {},
    )


def _data():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(_EXAMPLES, 1, 1, _UNITS)).astype("f4")
    return x, rng.integers(0, 4, _EXAMPLES)


def _trainer(mode: str, **options) -> trainer.Trainer:
    source = inputs.from_arrays(*_data(), num_classes=4, training=False)
    options = {"towers": _TOWERS, "batch_size": _BATCH, "update": _UPDATE, **options}
    return trainer.Trainer(_linear(), source, variable_update=mode, **options)


def _numpy(steps: int, late: str) -> np.ndarray:
    """The variable after steps of a mode that is late, in float64."""
    x, y = _data()
    x, rows = x.reshape([_EXAMPLES, _UNITS]).astype("f8"), _BATCH * _TOWERS
    w = before = np.ones(_UNITS)
    slot = deferred = np.zeros(_UNITS)
    for step in range(steps):
        mine = np.arange(step * rows, (step + 1) * rows) % _EXAMPLES
        read = before if late == "staged" else w
        gradient = x[mine].T @ (x[mine] @ read - y[mine]) / rows
        if late == "relaxed":
            gradient, deferred = deferred, gradient
        slot = _MOMENTUM * slot + gradient
        before, w = w, w - _RATE * slot
    return w


class ExactSemanticsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("staged", "relaxed")
    def test_steps_are_those_of_numpy(self, mode):
        training = _trainer(mode).start()
        for steps in (1, 2, 9):
            values = training.steps(steps)["linear/w"][:, 0]
            np.testing.assert_allclose(values, _numpy(steps, mode), rtol=2e-5)
        arrays.assert_apart(values, _numpy(steps, "not at all").astype("f4"), rtol=1e-3)

    def test_numpy_is_right_where_nothing_is_late(self):
        values = _trainer("parameter_server").start().steps(9)["linear/w"][:, 0]
        np.testing.assert_allclose(values, _numpy(9, "not at all"), rtol=2e-5)

    @parameterized.parameters("staged", "relaxed")
    def test_a_resumed_run_is_the_one_never_stopped(self, mode):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        first = _trainer(mode).start()
        first.steps(4)
        first.save(directory)
        whole = first.steps(7)
        for towers, batch_size in ((4, 2), (2, 4)):
            training = _trainer(mode, towers=towers, batch_size=batch_size)
            resumed = training.start(directory).steps(7)
            if towers == 4:
                trainer.assert_same_bits(first.everything(), training.everything())
            self.assertLess(trainer.difference(whole, resumed), 1e-5)

    @parameterized.parameters("staged", "relaxed", "parameter_server")
    def test_a_checkpoint_goes_from_one_mode_to_another(self, first):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        training = _trainer(first).start()
        before = training.steps(4)["linear/w"]
        training.save(directory)
        plain = _trainer("parameter_server").start(directory).steps(5)["linear/w"]
        for then in ("staged", "relaxed", "replicated"):
            resumed = _trainer(then).start(directory)
            arrays.assert_same_bits(resumed.values()["linear/w"], before)
            if first != then and then != "relaxed":
                # The gradient in flight is not saved: the first one is computed from
                # the restored variables.
                arrays.assert_close(resumed.steps(5)["linear/w"], plain, rtol=1e-5)


class StalenessTest(tf.test.TestCase, parameterized.TestCase):
    def test_one_tower_alone_is_never_stale(self):
        training = _trainer("asynchronous", towers=1).start()
        values = training.steps(9)
        self.assertEqual(dict(training.train.loop.staleness), {0: 9})
        same = _trainer("parameter_server", towers=1).start().steps(9)
        trainer.assert_same_bits(same, values)

    @parameterized.parameters(0, 1, 3, 5)
    def test_the_bound_holds(self, bound):
        options = {"max_staleness": bound}
        training = _trainer("asynchronous", exchange=options).start()
        training.steps(200)
        self.assertLessEqual(max(training.train.loop.staleness), bound)

    def test_variables_are_read_after_the_number_of_their_updates(self):
        """Else an update could be staler than it says."""
        train = _trainer("asynchronous").train
        reads = [
            op
            for op in train.graph.get_operations()
            if op.name.startswith("variables/read/ReadVariableOp")
        ]
        self.assertNotEmpty(reads)
        for op in reads:
            [version] = op.control_inputs
            [value] = version.inputs
            self.assertIs(value.op.inputs[0].op, train.global_step.handle.op)

    def test_every_update_counts_and_every_batch_is_taken_once(self):
        training = _trainer("asynchronous").start()
        values = training.steps(100)
        self.assertEqual(values["global_step"], 100)
        self.assertEqual(values["position"], 100 * _BATCH)
        self.assertEqual(sum(training.train.loop.staleness.values()), 100)

    def test_the_rate_is_divided_by_the_staleness(self):
        """A tower's update, run by hand after the reads have become stale."""
        for divided in (False, True):
            update = Update("sgd", Piecewise((_RATE,)))
            options = {"exchange": {"staleness_lr": divided}, "update": update}
            training = _trainer("asynchronous", towers=2, **options).start()
            version = training.train.mode._version
            w = training.values()["linear/w"][:, 0]
            training.session.run(training.train.train_op, {version: -4})
            moved = training.values()["linear/w"][:, 0] - w
            x, y = _data()
            x = x.reshape([_EXAMPLES, _UNITS])[:_BATCH]
            full = -_RATE * x.T @ (x @ w - y[:_BATCH]) / _BATCH
            self.assertAllClose(moved, full / (4 if divided else 1), rtol=1e-5)
