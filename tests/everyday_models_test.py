"""Twelve everyday models: towers, stages and resumed runs take the steps of one."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import exact_settings, trainer
from tests.everyday_models import EVERYDAY, EXAMPLES, WEIGHTS, request, rows, source
from towers.compute.tower import TowerSpec
from towers.data import from_arrays, from_dataset, inputs
from towers.data.example_source import ExampleSource
from towers.data.examples import Examples
from towers.evaluation import eval_graph
from towers.layout import placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_SGD = Update("sgd", Piecewise((0.3,)))

_WAYS = exact_settings.of_batch(32)
_ROTATED = ("recomputed", "balanced", "compiled")  # each model has one of them
_CASES = [
    (name, way)
    for number, name in enumerate(EVERYDAY)
    for way in _WAYS
    if way not in _ROTATED or way == _ROTATED[number % len(_ROTATED)]
]


def _trainer(model, examples, *, towers=1, **options):
    return trainer.Trainer(
        model,
        source(model, examples) if isinstance(examples, Examples) else examples,
        update=_SGD,
        towers=towers,
        **{"batch_size": 32 // towers, "limit": EXAMPLES, **options},
    )


def _changes(model, examples, **options):
    """What three steps change in each variable, by name."""
    trained = _trainer(model, examples, **options).start()
    before, after = trained.values(), trained.steps(3)
    return {name: after[name] - before[name] for name in after}


@functools.cache
def _of_one(name):
    return _changes(*EVERYDAY[name]())


class TowersTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_they_take_the_steps_of_one(self, name, way):
        changes = _changes(*EVERYDAY[name](), **_WAYS[way])
        self.assertLess(trainer.difference(_of_one(name), changes), 1e-5)

    @parameterized.parameters(*EVERYDAY)
    def test_a_resumed_run_is_the_one_that_went_on(self, name):
        folder = self.create_tempdir().full_path
        whole = _trainer(*EVERYDAY[name](), towers=4).start()
        whole.steps(2)
        whole.save(folder)
        resumed = _trainer(*EVERYDAY[name](), towers=4).start(folder)
        trainer.assert_same_bits(resumed.steps(5), whole.steps(5))

    def test_the_factor_of_all_weights_makes_no_difference(self):
        model, _ = EVERYDAY["sample_weights"]()
        scaled = _changes(model, from_arrays(*rows(model), weights=1000 * WEIGHTS))
        self.assertLess(trainer.difference(_of_one("sample_weights"), scaled), 1e-5)

    def test_weights_make_a_difference(self):
        weighted, plain = map(_of_one, ("sample_weights", "two_inputs"))
        self.assertGreater(trainer.difference(weighted, plain), 1e-2)


class EvaluationTest(parameterized.TestCase):
    def _evaluated(self, model, examples, towers, batch_size):
        where = placement.local(towers, kind="cpu")
        with tf.Graph().as_default():
            attached = eval_graph.attach(
                TowerSpec(model, 4, training=False),
                ExampleSource(examples, request(model), training=False),
                placement=where,
                mode=VARIABLE_UPDATES["parameter_server"](where, seed=1),
                batch_size=batch_size,
            )
            with v1.Session(config=placement.session_config(where)) as session:
                session.run(v1.global_variables_initializer())
                return eval_graph.run(attached, session, 5)

    @parameterized.parameters((1, 70), (4, 9), (2, 8))
    def test_weighs_each_example_and_counts_it_once(self, towers, batch_size):
        model, examples = EVERYDAY["sample_weights"]()
        model = dataclasses.replace(model, loss=lambda _, target: target)
        result = self._evaluated(model, examples, towers, batch_size)
        self.assertEqual(result.num_examples, EXAMPLES)
        mean = np.average(rows(model)[1].astype(np.float64), weights=WEIGHTS)
        self.assertAlmostEqual(result.means["loss"], mean, delta=1e-6)

    def test_no_mean_of_what_weighs_nothing(self):
        model, _ = EVERYDAY["autoencoder"]()
        parts = (*rows(model), np.zeros(EXAMPLES, np.float32))
        examples = from_dataset(
            lambda: tf.data.Dataset.from_tensor_slices(parts), num_examples=EXAMPLES
        )
        with self.assertRaisesRegex(ValueError, "^the 70 examples .* weigh nothing;"):
            self._evaluated(model, examples, 1, 8)


class SyntheticTest(parameterized.TestCase):
    @parameterized.parameters(*EVERYDAY)
    def test_four_towers_hold_what_one_holds(self, name):
        model, _ = EVERYDAY[name]()
        synthetic = inputs.get("synthetic", request(model))
        of_one, of_four = (_changes(model, synthetic, towers=n) for n in (1, 4))
        self.assertLess(trainer.difference(of_one, of_four), 1e-5)
