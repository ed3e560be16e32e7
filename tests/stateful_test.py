"""A state goes from step to step in every way to train, evaluate and resume."""

import contextlib
import dataclasses
import io

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import towers
from tests import exact_settings, stateful_models, trainer
from towers.checkpoints import checkpoint
from towers.compute.tower import TowerSpec
from towers.data.arrays import from_arrays
from towers.data.example_source import ExampleSource
from towers.data.source import Request
from towers.evaluation import eval_graph
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.loss_scale import LossScaling
from towers.optimizers.optimizer import Update

_STEPS = 15  # two and a half epochs

_WAYS = {
    **exact_settings.of_batch(stateful_models.ROWS),
    "one": {},
    "in turn": dict(towers=4, at_a_time=1),
    "averages of the first": dict(towers=4, batch_norm_averages="first_tower"),
}


def _trainer(model=None, *, towers=1, rate=2.0**-6, **options):
    model = model or stateful_models.two()
    return trainer.Trainer(
        model,
        stateful_models.source(),
        towers=towers,
        update=Update("sgd", Piecewise((rate,))),
        **{"batch_size": stateful_models.ROWS // towers, **options},
    )


class StatefulTest(parameterized.TestCase, tf.test.TestCase):
    def test_by_numpy(self):
        values = _trainer(stateful_models.one(), rate=1.0).start().steps(_STEPS)
        totals = stateful_models.totals(_STEPS)
        self.assertEqual(values["first/weight"], -totals.mean(1).sum())
        self.assertAllEqual(values["carried/state/first/total"][:, 0], totals[-1])

    @parameterized.named_parameters((way, options) for way, options in _WAYS.items())
    def test_as_one_tower(self, options):
        one_tower = _trainer().start().steps(_STEPS)
        self.assertNotEqual(one_tower["second/weight"], 0)
        other = _trainer(**options).start().steps(_STEPS)
        self.assertLess(trainer.difference(one_tower, other), 1e-6)

    def test_inside_the_graph(self):
        one_tower = _trainer().start().steps(_STEPS)
        inside = _trainer(towers=2).add_loop().start()
        inside.run([], _STEPS, steps_per_loop=4)
        self.assertLess(trainer.difference(one_tower, inside.values()), 1e-6)

    def test_a_step_that_is_skipped_keeps_no_state(self):
        """Its values may not be finite, and would stay until the epoch's end."""
        scaling = LossScaling(2.0**127, 1000)
        values = _trainer(stateful_models.one(), loss_scaling=scaling).start().steps(1)
        self.assertEqual(values["carried/loss_scale/skipped"], 1)
        self.assertAllEqual(
            values["carried/state/first/total"], np.zeros((stateful_models.ROWS, 1))
        )

    @parameterized.parameters("staged", "relaxed")
    def test_modes_that_read_or_apply_late(self, mode):
        values = (
            _trainer(stateful_models.one(), towers=2, variable_update=mode)
            .start()
            .steps(_STEPS)
        )
        self.assertAllEqual(
            values["carried/state/first/total"][:, 0],
            stateful_models.totals(_STEPS)[-1],
        )

    @parameterized.parameters("independent", "asynchronous")
    def test_towers_that_step_apart_are_refused(self, mode):
        with self.assertRaisesRegex(ValueError, f"variable_update={mode}: summed pas"):
            _trainer(towers=2, variable_update=mode)


class ResumeTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(1, 4)
    def test_with_another_number_of_towers(self, towers):
        folder = self.create_tempdir().full_path
        begun = _trainer(towers=2).start()
        begun.steps(4)
        begun.save(folder)
        resumed = _trainer(towers=towers).start(folder).steps(_STEPS)
        self.assertLess(trainer.difference(begun.steps(_STEPS), resumed), 1e-6)

    def test_every_bit(self):
        folder = self.create_tempdir().full_path
        begun = _trainer(towers=2).start()
        begun.steps(4)
        begun.save(folder)
        resumed = _trainer(towers=2).start(folder).steps(_STEPS)
        trainer.assert_same_bits(begun.steps(_STEPS), resumed)

    def _saved(self, training, variables):
        folder = self.create_tempdir().full_path
        with training.train.graph.as_default():
            saver = checkpoint.Checkpoints(folder, variables)
        saver.save(training.session, 4)
        return folder

    def test_another_number_of_rows_is_refused(self):
        begun = _trainer().start()
        begun.steps(4)
        folder = self._saved(begun, begun.train.saved | begun.train.constants)
        other = _trainer(batch_size=4)
        with other.train.graph.as_default():
            both = other.train.saved | other.train.constants
            saver = checkpoint.Checkpoints(folder, both)
        with self.assertRaisesRegex(
            ValueError, "states of 8 rows, and a step .* has 4"
        ):
            saver.restore(other.session)

    def test_a_checkpoint_without_states(self):
        """As those of lstm_lm before it was stateful."""
        begun = _trainer(stateful_models.one(), rate=1.0).start()
        begun.steps(4)
        saved = begun.train.saved.items()
        old = {name: v for name, v in saved if not name.startswith("carried/")}
        folder = self._saved(begun, old)
        resumed = _trainer(stateful_models.one(), rate=1.0).start(folder).steps(5)
        last = stateful_models.totals(5)[-1] - stateful_models.totals(4)[-1]
        self.assertAllEqual(resumed["carried/state/first/total"][:, 0], last)


class EvaluationTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((1, 1), (1, 8), (3, 4), (2, 4, Pipeline(1, 2)))
    def test_counts_each_example_once_from_zero(self, towers, batch_size, how=None):
        model = stateful_models.one()
        training = _trainer(model, towers=towers, batch_size=2)
        with training.train.graph.as_default():
            graph = eval_graph.attach(
                TowerSpec(model, 1, training=False, pipeline=how),
                stateful_models.source(training=False),
                placement=training.placement,
                mode=eval_graph.AveragedVariables(training.train.mode, {}),
                batch_size=batch_size,
            )
        weight = training.start().steps(3)["first/weight"]
        rows = towers * batch_size
        steps = -(-stateful_models.EXAMPLES // rows)
        padded = np.zeros(rows * steps)
        padded[: stateful_models.EXAMPLES] = stateful_models.values()[:, 0]
        totals = (
            padded.reshape(rows, steps)
            .cumsum(1)
            .reshape(-1)[: stateful_models.EXAMPLES]
        )
        states = training.values()["carried/state/first/total"]
        for follows in (False, True):
            result = eval_graph.run(graph, training.session, 3, follows=follows)
            self.assertAllClose(result.means["output"], weight * totals.mean())
        self.assertAllEqual(training.values()["carried/state/first/total"], states)


class CallsTest(parameterized.TestCase):
    def test_fit_evaluate_predict(self):
        folder = self.create_tempdir().full_path
        model = stateful_models.one()
        data = from_arrays({"x": stateful_models.values()})
        settings = dict(train_dir=folder, device="cpu")
        with contextlib.redirect_stdout(io.StringIO()):
            for epochs in (1, 2.4):  # rounded up to 15 steps
                result = towers.fit(
                    model,
                    data,
                    num_gpus=2,
                    batch_size=4,
                    num_epochs=epochs,
                    **settings,
                )
            single = dict(settings, num_gpus=1, eval_batch_size=1)
            means = towers.evaluate(model, data, **single)
            outputs = towers.predict(model, data, **single)
            with self.assertRaisesRegex(
                ValueError, "eval_batch_size=4: .* write 1, on"
            ):
                towers.predict(model, data, **{**single, "eval_batch_size": 4})
            with self.assertRaisesRegex(ValueError, "states of 8 rows, and a step of"):
                towers.fit(model, data, num_gpus=1, batch_size=4, **settings)
        self.assertEqual(result.step, _STEPS)
        weight = -stateful_models.totals(_STEPS).mean(1).sum()
        wanted = weight * np.cumsum(stateful_models.values())
        np.testing.assert_allclose(outputs[:, 0], wanted, rtol=1e-5)
        np.testing.assert_allclose(means["output"], wanted.mean(), rtol=1e-5)


class MistakesTest(tf.test.TestCase):
    def _refused(self, block, words, **parts):
        with self.assertRaisesRegex(ValueError, words):
            _trainer(stateful_models.model(("odd", block), **parts))

    def test_each_is_a_sentence(self):
        def unkept(x, nn):
            return x["x"] + nn.initial_state("total", [*x["x"].shape])

        def unasked(x, nn):
            nn.final_state("total", x["x"])
            return x["x"]

        def longer(x, nn):
            state = nn.initial_state("total", [*x["x"].shape])
            nn.final_state("total", tf.concat([state, state], 1))
            return x["x"]

        self._refused(
            unkept, "'odd' asks for initial_state of odd/total and keeps none"
        )
        self._refused(unasked, r"ask for initial_state of that name .*there is none")
        self._refused(longer, r"has \(2,\) for each row; .* \(it is \(1,\)\)")
        self._refused(unkept, "give the Model stateful=True", stateful=False)

    def test_data_that_cannot_be_in_rows(self):
        model = stateful_models.one()
        few = dataclasses.replace(
            from_arrays({"x": stateful_models.values()}), num_examples=5
        )
        request = Request(shape=(), kind="examples", features=model.inputs.features)
        source = ExampleSource(few, request)
        with self.assertRaisesRegex(ValueError, "has too few for a window of each"):
            trainer.Trainer(model, source)
        in_sequence = dataclasses.replace(few, read=None, open=lambda seed: None)
        with self.assertRaisesRegex(ValueError, "are read in sequence"):
            trainer.Trainer(model, ExampleSource(in_sequence, request))
        with self.assertRaisesRegex(ValueError, "has no in_rows"):
            trainer.Trainer(model, object())
