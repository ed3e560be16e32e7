"""AdamW, LARS and LAMB with their weight decay, against their papers in numpy."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.compute import nodes
from towers.optimizers import adamw_lars_lamb
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import OPTIMIZERS, Hyperparameters, Update

v1 = tf.compat.v1

_RATE, _DECAY, _STEPS = 0.25, 0.125, 7
_OWN = sorted(n for n, row in OPTIMIZERS.items() if not row.decay.in_gradient)
# Not the defaults, so that a setting that is not read shows.
_SETTINGS = Hyperparameters(
    momentum=0.8,
    adam_beta1=0.7,
    adam_beta2=0.96,
    adam_epsilon=0.01,
    lamb_epsilon=0.03,
    lars_eeta=0.5,
    lars_epsilon=0.25,
)


def _by_numpy(name: str, value, gradients, *, decay: float):
    """The values after each gradient, in float64."""
    s, value = _SETTINGS, value.astype("f8")
    m, v, slot, adapts = 0.0, 0.0, 0.0, value.ndim > 1
    norm = np.linalg.norm
    for t, g in enumerate(gradients.astype("f8"), 1):
        m = s.adam_beta1 * m + (1 - s.adam_beta1) * g
        v = s.adam_beta2 * v + (1 - s.adam_beta2) * g**2
        mean, size = m / (1 - s.adam_beta1**t), np.sqrt(v / (1 - s.adam_beta2**t))
        if name == "adamw":
            step = mean / (size + s.adam_epsilon) + decay * value
            value = value - _RATE * step
        elif name == "lamb":
            step = mean / (size + s.lamb_epsilon) + (decay * value if adapts else 0)
            ratio = norm(value) / norm(step) if adapts and norm(value) else 1.0
            value = value - _RATE * ratio * step
        else:
            local = 1.0
            if adapts and norm(value) and norm(g):
                local = norm(g) + decay * norm(value) + s.lars_epsilon
                local = s.lars_eeta * norm(value) / local
            g = g + (decay * value if adapts else 0)
            slot = s.momentum * slot + _RATE * local * g
            value = value - slot
        yield value


def _update(name: str, **options) -> Update:
    return Update(
        name,
        Piecewise((_RATE,)),
        _SETTINGS,
        weight_decay=_DECAY,
        decayed=lambda name: not name.startswith(("free", "logits")),
        **options,
    )


def _train(update: Update, start, gradients):
    """The values of {name: array} after each step, and the optimizer's slots' names."""
    with tf.Graph().as_default(), v1.Session() as session:
        variables = {
            name: v1.get_variable(name, initializer=value, use_resource=True)
            for name, value in start.items()
        }
        fed = {name: v1.placeholder(tf.float32, v.shape) for name, v in start.items()}
        pairs = list(
            zip(update.rules.decay(fed.values(), variables.values()), variables)
        )
        step = update.make(lambda: tf.constant(_RATE)).apply_gradients(
            [(gradient, variables[name]) for gradient, name in pairs]
        )
        session.run(v1.global_variables_initializer())
        values = []
        for k in range(_STEPS):
            session.run(step, {fed[name]: gradients[name][k] for name in start})
            values.append(session.run(variables))
        return values, [v.op.name for v in v1.global_variables()]


class FormulaTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(1)
        self.start = {
            "matrix": rng.normal(size=(4, 3)).astype("f4"),
            "kernel": rng.normal(size=(2, 2, 3, 1)).astype("f4"),
            "free_matrix": rng.normal(size=(5, 2)).astype("f4"),
            "zeros": np.zeros((3, 2), "f4"),
            "vector": rng.normal(size=(6,)).astype("f4"),
            "free_vector": rng.normal(size=(4,)).astype("f4"),
        }
        self.gradients = {
            name: rng.normal(size=(_STEPS, *value.shape)).astype("f4")
            for name, value in self.start.items()
        }
        self.gradients["matrix"][2] = 0.0

    def test_these_three_and_no_others_decay_by_themselves(self):
        self.assertEqual(_OWN, ["adamw", "lamb", "lars"])

    @parameterized.parameters(*_OWN)
    def test_every_step_is_the_papers(self, name):
        actual, _ = _train(_update(name), self.start, self.gradients)
        for variable, value in self.start.items():
            decay = 0.0 if "free" in variable else _DECAY
            steps = _by_numpy(name, value, self.gradients[variable], decay=decay)
            for k, expected in enumerate(steps):
                with self.subTest(f"{variable}, step {k + 1}"):
                    np.testing.assert_allclose(
                        actual[k][variable], expected, rtol=2e-5, atol=2e-6
                    )

    @parameterized.parameters(*_OWN)
    def test_the_decay_has_an_effect_on_what_it_touches_alone(self, name):
        with_it, _ = _train(_update(name), self.start, self.gradients)
        without = dataclasses.replace(_update(name), weight_decay=0.0)
        without, _ = _train(without, self.start, self.gradients)
        moved = {
            variable
            for variable in self.start
            if np.any(with_it[-1][variable] != without[-1][variable])
        }
        touched = {"matrix", "kernel", "zeros"}
        self.assertEqual(moved, touched | ({"vector"} if name == "adamw" else set()))

    @parameterized.parameters(
        ("adamw", ["v/AdamW", "v/AdamW_1", "beta1_power", "beta2_power"]),
        ("lamb", ["v/LAMB", "v/LAMB_1", "beta1_power", "beta2_power"]),
        ("lars", ["v/LARS"]),
    )
    def test_slots_are_variables(self, name, slots):
        arrays = {"v": np.ones((2, 2), "f4")}, {"v": np.ones((_STEPS, 2, 2), "f4")}
        _, names = _train(_update(name), *arrays)
        self.assertCountEqual(names, ["v", *slots])

    @parameterized.parameters(*_OWN)
    def test_a_sparse_gradient_is_its_dense_one(self, name):
        rows = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], "f4")
        dense = np.zeros((4, 2), "f4")
        np.add.at(dense, [2, 0, 2], rows)
        runs = []
        for sparse in (True, False):
            with tf.Graph().as_default(), v1.Session() as session:
                start = np.arange(8, dtype="f4").reshape(4, 2)
                variable = v1.get_variable("v", initializer=start, use_resource=True)
                gradient = tf.constant(dense)
                if sparse:
                    gradient = tf.IndexedSlices(tf.constant(rows), [2, 0, 2], [4, 2])
                step = _update(name).make(_RATE).apply_gradients([(gradient, variable)])
                session.run(v1.global_variables_initializer())
                session.run(step)
                session.run(step)
                runs.append(session.run(variable))
        arrays.assert_same_bits(runs[0], runs[1])


class PenaltyTest(parameterized.TestCase):
    @parameterized.parameters(sorted(OPTIMIZERS))
    def test_no_variable_changes_before_its_gradient_is_there(self, name):
        """Other clients may read it until then."""
        training = trainer.Trainer(
            update=Update(name, Piecewise((0.1,)), weight_decay=0.1)
        )
        known = {n.name: n for n in training.train.graph.as_graph_def().node}
        needed = nodes.needed_by(known, [training.train.train_op.name])
        names = training.train.template.trainable
        for name, gradient in zip(
            names, training.train.towers[0].gradients, strict=True
        ):
            changes = [
                op
                for op in training.train.saved[name].handle.consumers()
                if op.name in needed and op.type != "ReadVariableOp"
            ]
            self.assertNotEmpty(changes)
            for change in changes:
                self.assertIn(
                    gradient.op.name, nodes.needed_by(known, [change.name]), change.name
                )

    @parameterized.parameters(("sgd", 4 + 9), ("lars", 4), ("adamw", 0), ("lamb", 0))
    def test_only_what_is_a_gradient_adds_to_the_loss(self, name, squares):
        with tf.Graph().as_default(), v1.Session() as session:
            variables = [
                v1.get_variable("matrix", initializer=[[2.0]], use_resource=True),
                v1.get_variable("vector", initializer=[3.0], use_resource=True),
                v1.get_variable("free", initializer=[[7.0]], use_resource=True),
            ]
            penalty = _update(name).penalty(
                {v.op.name: v.read_value() for v in variables}
            )
            session.run(v1.global_variables_initializer())
            self.assertEqual(session.run(penalty), _DECAY / 2 * squares)

    def test_words(self):
        words = {row.decay.words for row in OPTIMIZERS.values()}
        self.assertLen(words, 4)
        self.assertEqual(adamw_lars_lamb.IN_GRADIENT.words, "at the update")


class TowersTest(tf.test.TestCase, parameterized.TestCase):
    def _trained(self, name, towers, mode, *, directory=None, steps=8):
        update = dataclasses.replace(
            _update(name),
            learning_rate=Piecewise((0.02,)),
            settings=dataclasses.replace(_SETTINGS, lars_eeta=0.05),
        )
        training = trainer.Trainer(
            towers=towers, batch_size=24 // towers, update=update, variable_update=mode
        ).start(directory)
        return training, training.steps(steps)

    @parameterized.parameters(*_OWN)
    def test_towers_equal_one_tower_and_replicas_are_bit_equal(self, name):
        _, one_tower = self._trained(name, 1, "parameter_server")
        kernels = [n for n in one_tower if n.startswith("hidden/dense/kernel")]
        self.assertLen(kernels, {"adamw": 3, "lamb": 3, "lars": 2}[name])
        _, four = self._trained(name, 4, "parameter_server")
        self.assertLess(trainer.difference(one_tower, four), 1e-5)
        training, replicated = self._trained(name, 4, "replicated")
        self.assertLess(trainer.difference(one_tower, replicated), 1e-5)
        replicas = training.session.run(training.train.mode.replicas)
        self.assertGreater(len(replicas), 4)
        for variable, (first, *others) in replicas.items():
            for other in others:
                arrays.assert_same_bits(first, other, variable)

    @parameterized.parameters(*_OWN)
    def test_a_checkpoint_goes_on_bit_for_bit(self, name):
        directory = self.create_tempdir()
        training, _ = self._trained(name, 2, "replicated", steps=3)
        training.save(directory)
        training.steps(8)
        resumed, _ = self._trained(name, 2, "replicated", directory=directory)
        trainer.assert_same_bits(training.everything(), resumed.everything())
