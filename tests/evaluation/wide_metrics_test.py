"""Sums of wide metrics, and pictures, are those of all examples at once."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import Inputs, Model, Recipe, Schedule, metrics
from models.logits import cross_entropy
from towers.compute import tower
from towers.data import from_arrays
from towers.data.example_source import ExampleSource
from towers.data.source import Request
from towers.evaluation import eval_graph
from towers.layout import placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_EXAMPLES, _CLASSES = 197, 5
_RANDOM = np.random.RandomState(3)
_IMAGES = _RANDOM.uniform(size=(_EXAMPLES, 4, 3, 1)).astype(np.float32)
_LABELS = _RANDOM.randint(0, _CLASSES, _EXAMPLES).astype(np.int32)
_WEIGHTS = _RANDOM.uniform(0.0, 0.01, _EXAMPLES).astype(np.float32)


def _body(x, nn):
    image = x["image"]
    return nn.dense(nn.flatten(image), 8, activation=tf.nn.relu), image


def _heads(x, nn):
    hidden, image = x
    return {"logits": nn.dense(hidden, _CLASSES), "image": image}


def _measured(outputs, labels):
    logits = outputs["logits"]
    return {
        "accuracy": metrics.accuracy(logits, labels),
        "matrix": metrics.confusion_matrix(logits, labels),
        "sums": metrics.regression_sums(logits[:, 0], labels),
        "scores": metrics.score_histogram(tf.sigmoid(logits[:, 1]), labels > 2),
    }


def _model():
    return Model(
        name="wide",
        blocks=(("body", _body), ("heads", _heads)),
        inputs=Inputs(
            features={"image": tf.TensorSpec([4, 3, 1])},
            labels=tf.TensorSpec([], tf.int32),
            num_classes=_CLASSES,
        ),
        recipe=Recipe(batch_size=8, schedule=Schedule(rates=(0.3,))),
        loss=lambda outputs, labels: cross_entropy(outputs["logits"], labels),
        metrics=_measured,
        pictures=lambda outputs, labels: {
            "inputs": outputs["image"],
            "bright": tf.cast(outputs["image"] * 255, tf.uint8),
        },
    )


def _evaluated(
    *, towers=1, batch_size=100, weights=None, model=None, num_examples=None, **task
):
    """(what an evaluation finds, the variables' values)."""
    model = model or _model()
    devices = task["pipeline"].stages if "pipeline" in task else 1
    devices = task["shards"].devices if "shards" in task else devices
    where = placement.local(towers * devices, kind="cpu", num_stages=devices)
    request = Request(
        shape=(),
        kind="examples",
        features=model.inputs.features,
        labels=model.inputs.labels,
    )
    examples = from_arrays({"image": _IMAGES}, _LABELS, weights=weights)
    with tf.Graph().as_default():
        mode = VARIABLE_UPDATES["parameter_server"](where, seed=1)
        attached = eval_graph.attach(
            tower.TowerSpec(model, _CLASSES, training=False, **task),
            ExampleSource(examples, request, training=False),
            placement=where,
            mode=mode,
            batch_size=batch_size,
            num_examples=num_examples,
        )
        with v1.Session(config=placement.session_config(where)) as session:
            session.run(v1.global_variables_initializer())
            result = eval_graph.run(attached, session, 5)
            return result, session.run(mode.variables)


@functools.cache
def _logits():
    """The logits of all examples, by numpy; seeds give each evaluation these."""
    _, values = _evaluated()
    x = _IMAGES.reshape(_EXAMPLES, -1)
    x = np.maximum(x @ values["body/dense/kernel"] + values["body/dense/bias"], 0)
    return x @ values["heads/dense/kernel"] + values["heads/dense/bias"]


_WAYS = {
    "1x100": dict(towers=1, batch_size=100),
    "4x33": dict(towers=4, batch_size=33),
    "3x8": dict(towers=3, batch_size=8),
    "more towers than examples are left": dict(towers=4, batch_size=64),
    "stages": dict(towers=2, batch_size=32, pipeline=Pipeline(2, 4)),
    "compiled": dict(towers=2, batch_size=33, compiled=True),
}


class SumsTest(parameterized.TestCase):
    @parameterized.product(way=tuple(_WAYS), weighted=(False, True))
    def test_are_those_of_all_examples(self, way, weighted):
        weights = _WEIGHTS if weighted else None
        result, _ = _evaluated(weights=weights, **_WAYS[way])
        each = np.float64(_WEIGHTS) if weighted else np.ones(_EXAMPLES)
        logits, guess = _logits(), _logits().argmax(1)
        matrix = np.zeros((_CLASSES, _CLASSES))
        np.add.at(matrix, (_LABELS, guess), each)
        self.assertGreater(np.count_nonzero(matrix), _CLASSES)
        # Counts are exact, and so are, in float64, sums of weights but for their order.
        np.testing.assert_allclose(result.sums["matrix"], matrix, rtol=1e-13 * weighted)
        self.assertAlmostEqual(
            result.means["accuracy"], np.trace(matrix) / each.sum(), places=6
        )
        label = np.float64(_LABELS)
        rows = [np.ones(_EXAMPLES), label, label**2, (logits[:, 0] - label) ** 2]
        np.testing.assert_allclose(result.sums["sums"], rows @ each, rtol=1e-6)
        np.testing.assert_allclose(
            result.sums["scores"].sum(1),
            [each[_LABELS <= 2].sum(), each[_LABELS > 2].sum()],
            rtol=1e-13,
        )
        self.assertEqual({*result.means}, {"loss", "accuracy"})
        self.assertEqual(result.num_examples, _EXAMPLES)

    def test_each_has_its_dtype(self):
        sums = _evaluated()[0].sums
        self.assertEqual({x.dtype for x in sums.values()}, {np.dtype(np.float64)})

    def test_of_a_classifier_in_shards(self):
        """Logits in pieces: the counts of the whole."""

        def logits(x, nn):
            return nn.dense(nn.flatten(x["image"]), _CLASSES)

        model = dataclasses.replace(
            _model(),
            blocks=(("logits", logits),),
            loss=cross_entropy,
            metrics=lambda outputs, labels: {
                "accuracy": metrics.accuracy(outputs, labels),
                "matrix": metrics.confusion_matrix(outputs, labels),
                "counts": metrics.class_counts(outputs, labels),
            },
            pictures=lambda outputs, labels: {},
        )
        whole, _ = _evaluated(model=model)
        spread, _ = _evaluated(model=model, shards=Shards(2))
        for name, sums in whole.sums.items():
            np.testing.assert_array_equal(spread.sums[name], sums)
        self.assertEqual(spread.means["accuracy"], whole.means["accuracy"])
        self.assertGreater(np.count_nonzero(whole.sums["matrix"]), _CLASSES)


class PicturesTest(parameterized.TestCase):
    @parameterized.parameters(*_WAYS)
    def test_are_of_the_first_examples_in_order(self, way):
        result, _ = _evaluated(weights=_WEIGHTS, **_WAYS[way])
        np.testing.assert_array_equal(result.pictures["inputs"], _IMAGES[:64])
        bright = np.floor(_IMAGES[:64] * 255) / 255
        np.testing.assert_allclose(result.pictures["bright"], bright, rtol=1e-6)

    def test_random_numbers_are_the_same_each_time(self):
        """As those of a variational autoencoder; in stages, too."""

        def noise(x, nn):
            hidden, image = x
            return _heads((hidden, nn.normal(image)), nn)

        blocks = (("body", _body), ("noise", noise))
        model = dataclasses.replace(_model(), blocks=blocks)
        first, *others = (
            _evaluated(model=model, **_WAYS[way])[0].pictures["inputs"]
            for way in ("1x100", "1x100", "3x8", "stages")
        )
        self.assertAlmostEqual(np.std(first), 1, delta=0.1)
        for other in others:
            np.testing.assert_allclose(other, first, rtol=1e-6)

    def test_are_not_more_than_there_are_examples(self):
        result, _ = _evaluated(towers=2, batch_size=8, num_examples=11)
        np.testing.assert_array_equal(result.pictures["inputs"], _IMAGES[:11])


class TrainingTest(parameterized.TestCase):
    def test_towers_that_train_have_neither(self):
        model = _model()
        features = {"image": tf.TensorSpec([8, 4, 3, 1])}
        template = tower.trace(
            tower.TowerSpec(model, _CLASSES),
            features,
            tf.TensorSpec([8], tf.int32),
            create=lambda *_, **options: None,
        )
        self.assertEqual([*template.metrics], ["accuracy"])
