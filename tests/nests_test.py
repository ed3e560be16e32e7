"""Features and labels in nests, and weights: towers take the steps of one."""

import dataclasses
import functools

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import Inputs, Model, Recipe, Schedule
from tests import trainer
from towers.compute.tower import TowerSpec
from towers.data import inputs
from towers.data.source import Request
from towers.data.stream_source import StreamSource
from towers.evaluation import eval_graph
from towers.layout import placement
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_EXAMPLES = 70  # of steps of 32 the third is short: most towers have none of its rows
_SGD = Update("sgd", Piecewise((0.3,)))


class _Arrays(StreamSource):
    """Examples of arrays in their own order, again and again.

    Args:
      features, labels: nests of arrays [examples, ...].
      weights: float32 [examples], or None.

    Attributes:
      arrays: these.
    """

    num_examples = _EXAMPLES

    def __init__(self, features, labels, weights=None):
        super().__init__(prefetch=1, threads=None)
        self.arrays = features, labels, *([] if weights is None else [weights])

    def batches(self, share, position):
        """As `StreamSource` has it."""

        @tf.autograph.experimental.do_not_convert
        def read(step):
            first = position + step * share.step + share.first
            index = first + tf.range(share.count, dtype=tf.int64)
            features, labels, *weights = tf.nest.map_structure(
                lambda array: tf.gather(array, index % _EXAMPLES), self.arrays
            )
            return features, labels, index, *weights

        return tf.data.Dataset.range(1000).map(read)


def _source(model, weights=None):
    """Arrays as the model's inputs say; integers are 0 to 3."""
    rng = np.random.default_rng(7)

    def drawn(spec):
        shape, dtype = (_EXAMPLES, *spec.shape), spec.dtype.as_numpy_dtype
        floats = rng.standard_normal(shape), rng.integers(0, 4, shape)
        return floats[not spec.dtype.is_floating].astype(dtype)

    read = tf.nest.map_structure(drawn, (model.inputs.features, model.inputs.labels))
    return _Arrays(*read, weights)


def _model(features, labels, *blocks, loss, metrics=lambda outputs, labels: {}):
    return Model(
        name="nested",
        blocks=tuple((block.__name__, block) for block in blocks),
        inputs=Inputs(features=features, labels=labels, num_classes=4),
        recipe=Recipe(batch_size=8, schedule=Schedule(rates=(0.3,))),
        loss=loss,
        metrics=metrics,
    )


def _cross_entropy(labels, logits):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)


def _regression():
    """An image and a table to a number; nests between the blocks, too."""

    def join(x, nn):
        image = nn.conv(x["image"], 4, 3, activation=tf.nn.tanh)
        return {"image": nn.flatten(image), "rest": (x["table"],)}

    def mix(x, nn):
        y = tf.concat([x["image"], x["rest"][0]], 1)
        return nn.dropout(nn.dense(y, 8, activation=tf.nn.tanh), 0.2), x["rest"]

    def value(x, nn):
        hidden, (table,) = x
        return nn.dense(tf.concat([hidden, table], 1), 1)[:, 0]

    return _model(
        {"image": tf.TensorSpec([4, 4, 1]), "table": tf.TensorSpec([5], tf.float64)},
        tf.TensorSpec([]),
        join,
        mix,
        value,
        loss=lambda outputs, target: tf.square(outputs - target),
        metrics=lambda outputs, target: {"error": tf.abs(outputs - target)},
    )


def _heads():
    """Two heads, whose labels are a dict; features of other dtypes than float32."""

    def trunk(x, nn):
        pixels = nn.flatten(tf.cast(x["pixels"], nn.dtype))
        row = tf.gather(nn.variable("table", [4, 3]), x["id"])
        flags = tf.cast(x["flags"], nn.dtype)
        return nn.dense(tf.concat([pixels, row, flags], 1), 8, activation=tf.nn.tanh)

    def heads(x, nn):
        return {"class": nn.dense(x, nn.num_classes), "size": nn.dense(x, 1)}

    return _model(
        {
            "pixels": tf.TensorSpec([2, 2], tf.uint8),
            "id": tf.TensorSpec([], tf.int64),
            "flags": tf.TensorSpec([3], tf.bool),
        },
        {"class": tf.TensorSpec([], tf.int32), "size": tf.TensorSpec([])},
        trunk,
        heads,
        loss=lambda outputs, labels: (
            _cross_entropy(labels["class"], outputs["class"])
            + tf.square(outputs["size"][:, 0] - labels["size"])
        ),
    )


def _sequences():
    """Padded sequences of tokens with their lengths, a label each."""

    def embed(x, nn):
        tokens, length = x
        rows = tf.gather(nn.variable("words", [4, 6]), tokens)
        return rows, tf.sequence_mask(length, 5, nn.dtype)

    def logits(x, nn):
        rows, mask = x
        return nn.dense(tf.reduce_sum(rows * mask[:, :, None], 1), nn.num_classes)

    return _model(
        (tf.TensorSpec([5], tf.int32), tf.TensorSpec([], tf.int32)),
        tf.TensorSpec([], tf.int32),
        embed,
        logits,
        loss=lambda outputs, labels: _cross_entropy(labels, outputs),
    )


def _autoencoder():
    """No labels."""

    def code(x, nn):
        return nn.dense(x, 3, activation=tf.nn.tanh), x

    def decode(x, nn):
        return nn.dense(x[0], 6), x[1]

    return _model(
        tf.TensorSpec([6]),
        (),
        code,
        decode,
        loss=lambda outputs, labels: tf.reduce_mean(
            tf.math.squared_difference(*outputs), 1
        ),
    )


# Their sum over 32 examples is about 0.1.
_WEIGHTS = np.random.default_rng(3).uniform(0, 0.006, _EXAMPLES).astype(np.float32)

_MODELS = {
    "regression": _regression,
    "heads": _heads,
    "sequences": _sequences,
    "autoencoder": _autoencoder,
}
_WAYS = {
    "towers": dict(towers=4),
    "replicated": dict(towers=4, variable_update="replicated"),
    "rounds": dict(towers=4, batch_size=4, accumulate_steps=2),
    "stages": dict(towers=2, pipeline=Pipeline(2, 4)),
    "recomputed": dict(towers=2, pipeline=Pipeline(2, 4, recompute="block")),
    "balanced": dict(towers=1, pipeline=Pipeline(2, 4, balance="time")),
    "compiled": dict(towers=2, xla_compile=True),
}


def _trained(model, source, *, towers=1, steps=3, **options):
    """What three steps change in each variable, by name."""
    trained = trainer.Trainer(
        model,
        source,
        update=_SGD,
        towers=towers,
        **{"batch_size": 32 // towers, "limit": _EXAMPLES, **options},
    ).start()
    before = trained.values()
    after = trained.steps(steps)
    return {name: after[name] - before[name] for name in after}


@functools.cache
def _of_one(name, weighted):
    model = _MODELS[name]()
    return _trained(model, _source(model, _WEIGHTS if weighted else None))


class TowersTest(parameterized.TestCase):
    @parameterized.product(name=tuple(_MODELS), way=tuple(_WAYS))
    def test_they_take_the_steps_of_one(self, name, way):
        weighted = name != "sequences"
        model = _MODELS[name]()
        source = _source(model, _WEIGHTS if weighted else None)
        changes = _trained(model, source, **_WAYS[way])
        self.assertLess(trainer.difference(_of_one(name, weighted), changes), 1e-5)

    def test_the_factor_of_all_weights_makes_no_difference(self):
        model = _regression()
        scaled = _trained(model, _source(model, 1000 * _WEIGHTS))
        self.assertLess(trainer.difference(_of_one("regression", True), scaled), 1e-5)

    def test_weights_make_a_difference(self):
        with_weights, without = (
            _of_one("regression", weighted) for weighted in (True, False)
        )
        self.assertGreater(trainer.difference(with_weights, without), 1e-2)


class EvaluationTest(parameterized.TestCase):
    def _evaluated(self, model, source, towers, batch_size):
        where = placement.local(towers, kind="cpu")
        with tf.Graph().as_default():
            attached = eval_graph.attach(
                TowerSpec(model, 4, training=False),
                source,
                placement=where,
                mode=VARIABLE_UPDATES["parameter_server"](where, seed=1),
                batch_size=batch_size,
            )
            with v1.Session(config=placement.session_config(where)) as session:
                session.run(v1.global_variables_initializer())
                return eval_graph.run(attached, session, 5)

    @parameterized.parameters((1, 70), (4, 9), (2, 8))
    def test_weighs_each_example_and_counts_it_once(self, towers, batch_size):
        model = dataclasses.replace(_regression(), loss=lambda _, target: target)
        source = _source(model, _WEIGHTS)
        result = self._evaluated(model, source, towers, batch_size)
        self.assertEqual(result.num_examples, _EXAMPLES)
        mean = np.average(source.arrays[1].astype(np.float64), weights=_WEIGHTS)
        self.assertAlmostEqual(result.means["loss"], mean, delta=1e-6)

    def test_no_mean_of_what_weighs_nothing(self):
        model = _autoencoder()
        source = _source(model, np.zeros(_EXAMPLES, np.float32))
        with self.assertRaisesRegex(ValueError, "^the 70 examples .* weigh nothing;"):
            self._evaluated(model, source, 1, 8)


class SyntheticTest(parameterized.TestCase):
    @parameterized.parameters(*_MODELS)
    def test_four_towers_hold_what_one_holds(self, name):
        model = _MODELS[name]()
        request = Request(
            shape=(),
            kind="examples",
            features=model.inputs.features,
            labels=model.inputs.labels,
            num_classes=4,
        )
        source = inputs.get("synthetic", request)
        of_one, of_four = (_trained(model, source, towers=n) for n in (1, 4))
        self.assertLess(trainer.difference(of_one, of_four), 1e-5)
