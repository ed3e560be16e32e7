"""Class weights equal sample weights of these classes, on any number of towers."""

import contextlib
import functools
import io

import numpy as np
from absl.testing import parameterized

import towers
from tests import trainer
from tests.everyday_models import EXAMPLES, WEIGHTS, padded_sequences, rows, source
from towers.data import from_arrays, from_source, inputs
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES

_MODEL, _ = padded_sequences()
_FEATURES, _LABELS = rows(_MODEL)
_OF_CLASS = (0.25, 3.0, 0.0, 1.5)
_OF_EXAMPLES = np.float32(_OF_CLASS)[_LABELS]

_WAYS = {
    **{
        mode: dict(towers=4, variable_update=mode)
        for mode, update in VARIABLE_UPDATES.items()
        if update.exact
    },
    "rounds": dict(towers=4, batch_size=4, accumulate_steps=2),
    "stages": dict(towers=2, pipeline=Pipeline(2, 4)),
    "compiled": dict(towers=2, xla_compile=True),
}


def _trainer(examples, *, towers=1, **options):
    return trainer.Trainer(
        _MODEL,
        source(_MODEL, examples),
        update=Update("sgd", Piecewise((0.3,))),
        towers=towers,
        **{"batch_size": 32 // towers, "limit": EXAMPLES, **options},
    )


def _changes(trained):
    """What three steps change in each variable, by name."""
    before, after = trained.start().values(), trained.steps(3)
    return {name: after[name] - before[name] for name in after}


@functools.cache
def _of_one():
    """The changes by one tower with sample weights."""
    examples = from_arrays(_FEATURES, _LABELS, _OF_EXAMPLES)
    return _changes(_trainer(examples))


class StepsTest(parameterized.TestCase):
    @parameterized.parameters(*_WAYS)
    def test_they_are_those_of_one_tower(self, way):
        examples = from_arrays(_FEATURES, _LABELS)
        changes = _changes(_trainer(examples, class_weight=_OF_CLASS, **_WAYS[way]))
        self.assertLess(trainer.difference(_of_one(), changes), 1e-5)

    @parameterized.parameters(*_WAYS, "independent", "staged", "relaxed")
    def test_they_are_those_of_sample_weights(self, way):
        options = _WAYS.get(way, dict(towers=2, variable_update=way))
        plain = from_arrays(_FEATURES, _LABELS)
        weighted = from_arrays(_FEATURES, _LABELS, _OF_EXAMPLES)
        trained = _trainer(plain, class_weight=_OF_CLASS, **options).start()
        other = _trainer(weighted, **options).start()
        trainer.assert_same_bits(trained.steps(3), other.steps(3))

    def test_asynchronous_towers(self):
        """One takes steps in a fixed order; each of two has the loss of its batch."""
        plain = from_arrays(_FEATURES, _LABELS)
        weighted = from_arrays(_FEATURES, _LABELS, _OF_EXAMPLES)
        apart = dict(variable_update="asynchronous")
        by_class = _trainer(plain, class_weight=_OF_CLASS, **apart).start()
        by_example = _trainer(weighted, **apart).start()
        trainer.assert_same_bits(by_class.steps(3), by_example.steps(3))
        losses = []
        for examples, options in (
            (plain, dict(class_weight=_OF_CLASS)),
            (weighted, dict()),
        ):
            of_two = _trainer(examples, towers=2, **apart, **options).start()
            towers_ = of_two.train.towers
            run = of_two.session.make_callable([t.loss for t in towers_])
            # Which tower gets the first batch is not fixed.
            losses.append(sorted(run() + run()))
        np.testing.assert_array_equal(*losses)

    def test_a_resumed_run_is_the_one_that_went_on(self):
        folder = self.create_tempdir().full_path
        options = dict(towers=4, class_weight=_OF_CLASS)
        whole = _trainer(from_arrays(_FEATURES, _LABELS), **options).start()
        whole.steps(2)
        whole.save(folder)
        resumed = _trainer(from_arrays(_FEATURES, _LABELS), **options).start(folder)
        trainer.assert_same_bits(resumed.steps(5), whole.steps(5))

    @parameterized.parameters("arrays", "source")
    def test_sample_weights_are_multiplied(self, kind):
        nested = [
            (tuple(part[i] for part in _FEATURES), _LABELS[i], WEIGHTS[i])
            for i in range(EXAMPLES)
        ]
        both = {
            "arrays": lambda: from_arrays(_FEATURES, _LABELS, WEIGHTS),
            "source": lambda: from_source(nested),
        }[kind]()
        product = from_arrays(_FEATURES, _LABELS, WEIGHTS * _OF_EXAMPLES)
        trained = _trainer(both, towers=4, class_weight=_OF_CLASS).start().steps(3)
        trainer.assert_same_bits(trained, _trainer(product, towers=4).start().steps(3))

    @parameterized.parameters("images", "synthetic")
    def test_other_sources(self, kind):
        """Towers take the step of one, with the weights of the classes."""
        examples = {
            "images": trainer.random_source,
            "synthetic": lambda: inputs.get(
                "synthetic", inputs.Request(shape=(4, 4, 1), num_classes=5)
            ),
        }[kind]()
        losses, changes = [], []
        for count in (1, 4):
            built = trainer.Trainer(
                source=examples,
                towers=count,
                batch_size=32 // count,
                class_weight=(0.25, 3.0, 0.0, 1.5, 1.0),
            ).start()
            before = built.values()
            batches = [
                (batch.labels, batch.weights) for batch in built.train.feed.batches
            ]
            _, held, loss = built.session.run(
                (built.train.train_op, batches, built.train.loss)
            )
            for labels, weights in held:
                wanted = np.float32((0.25, 3.0, 0.0, 1.5, 1.0))[labels]
                np.testing.assert_array_equal(weights, wanted)
            losses.append(loss)
            after = built.values()
            changes.append({name: after[name] - before[name] for name in after})
        self.assertAlmostEqual(*losses, delta=1e-5)
        self.assertLess(trainer.difference(*changes), 1e-5)


class FitTest(parameterized.TestCase):
    def _fit(self, data, **settings):
        folder = self.create_tempdir().full_path
        settings |= dict(num_epochs=2.0, batch_size=8, num_warmup_batches=0)
        settings |= dict(num_gpus=2, device="cpu", train_dir=folder)
        with contextlib.redirect_stdout(io.StringIO()):
            result = towers.fit(
                _MODEL,
                data,
                validation_data=from_arrays(_FEATURES, _LABELS),
                eval_at_end=True,
                **settings,
            )
            outputs = towers.predict(_MODEL, data, train_dir=folder, device="cpu")
        return result.metrics["loss"], outputs

    @parameterized.parameters(list, np.array)
    def test_evaluations_do_not_use_them(self, kind):
        plain = from_arrays(_FEATURES, _LABELS)
        loss, outputs = self._fit(plain, class_weight=kind(_OF_CLASS))
        weighted = from_arrays(_FEATURES, _LABELS, _OF_EXAMPLES)
        other_loss, other_outputs = self._fit(weighted)
        np.testing.assert_array_equal(outputs, other_outputs)
        self.assertEqual(loss, other_loss)
        logits = np.float64(outputs)
        logits -= np.log(np.exp(logits).sum(1, keepdims=True))
        mean = -logits[np.arange(EXAMPLES), _LABELS].mean()
        self.assertAlmostEqual(loss, mean, delta=1e-5)

    @parameterized.parameters(
        ((1.0, 1.0, -1.0, 1.0), "must be at least 0"),
        ((1.0, 1.0, float("nan"), 1.0), "must be finite"),
        (3.0, "must be numbers separated by commas"),
        ((1.0, 3.0), "has 2 weights, and the data 4 classes"),
        ((0.0,) * 4, "is 0 for each class"),
    )
    def test_a_wrong_one_is_a_sentence(self, value, words):
        with self.assertRaisesRegex(ValueError, f"^class_weight=.*: {words}"):
            self._fit(from_arrays(_FEATURES, _LABELS), class_weight=value)

    def test_a_label_that_is_no_class_is_a_sentence(self):
        """Also where the model has a loss of its own."""
        labels = _LABELS.copy()
        labels[33] = 4
        with self.assertRaisesRegex(ValueError, "labels of example 33 is 4; it must"):
            self._fit(from_arrays(_FEATURES, labels), class_weight=_OF_CLASS)
