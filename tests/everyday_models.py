"""Twelve everyday models, each with examples as its users have them.

A row of `EVERYDAY` is a function that returns a model and its `Examples`.  There are 70
of them: of steps of 32 the third is short, and most of four towers have none of it.
"""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from models import Inputs, Model, Recipe, Schedule
from towers.data import from_arrays, from_dataset, from_source
from towers.data.example_source import ExampleSource
from towers.data.examples import Examples
from towers.data.source import Request

EXAMPLES = 70

Spec = tf.TensorSpec
_IMAGE = Spec([8, 8, 1])
_CLASS = Spec([], tf.int32)

# The weights of 32 examples; their sum is about 0.1.
WEIGHTS = np.random.default_rng(3).uniform(0, 0.006, EXAMPLES).astype(np.float32)


def request(model: Model) -> Request:
    """The examples that a model asks for."""
    return Request(
        shape=(),
        kind="examples",
        features=model.inputs.features,
        labels=model.inputs.labels,
        num_classes=4,
        seed=5,
    )


def source(model: Model, examples: Examples) -> ExampleSource:
    """Examples, shuffled anew in each epoch."""
    return ExampleSource(examples, request(model), training=True)


def rows(model: Model) -> tuple:
    """Random (features, labels) as a model reads them; integers are 0 to 3."""
    rng = np.random.default_rng(7)

    def drawn(spec):
        shape, dtype = (EXAMPLES, *spec.shape), spec.dtype.as_numpy_dtype
        floats = rng.standard_normal(shape), rng.integers(0, 4, shape)
        return floats[not spec.dtype.is_floating].astype(dtype)

    return tf.nest.map_structure(drawn, (model.inputs.features, model.inputs.labels))


def _model(features, labels, *blocks, loss, metrics=lambda outputs, labels: {}):
    return Model(
        name="everyday",
        blocks=tuple((block.__name__.strip("_"), block) for block in blocks),
        inputs=Inputs(features=features, labels=labels, num_classes=4),
        recipe=Recipe(batch_size=8, schedule=Schedule(rates=(0.3,))),
        loss=loss,
        metrics=metrics,
    )


def _with_arrays(model, **arrays):
    return model, from_arrays(*rows(model), **arrays)


def _cross_entropy(outputs, labels):
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=outputs)


def _hidden(x, nn):
    return nn.dropout(nn.dense(nn.flatten(x), 8, activation=tf.nn.tanh), 0.2)


def _logits(x, nn):
    return nn.dense(x, nn.num_classes)


def _value(x, nn):
    return nn.dense(x, 1)[:, 0]


def _squared(outputs, target):
    return tf.square(outputs - target)


def regression():
    """Numbers to a number."""
    return _with_arrays(
        _model(Spec([10]), Spec([]), _hidden, _value, loss=_squared),
    )


def segmentation():
    """An image to the class of each of its pixels."""

    def features(x, nn):
        return nn.conv(x, 4, 3, activation=tf.nn.tanh)

    def pixels(x, nn):
        return nn.conv(x, nn.num_classes, 3)

    def loss(outputs, mask):
        mask = tf.cast(mask, tf.int32)
        return tf.reduce_mean(_cross_entropy(outputs, mask), [1, 2])

    mask = Spec([8, 8], tf.uint8)
    return _with_arrays(_model(_IMAGE, mask, features, pixels, loss=loss))


def two_inputs():
    """An image and a table, in a dict, to a number; nests between the blocks, too."""

    def join(x, nn):
        image = nn.conv(x["image"], 4, 3, activation=tf.nn.tanh)
        return {"image": nn.flatten(image), "rest": (x["table"],)}

    def mix(x, nn):
        y = tf.concat([x["image"], x["rest"][0]], 1)
        return nn.dropout(nn.dense(y, 8, activation=tf.nn.tanh), 0.2), x["rest"]

    def value(x, nn):
        hidden, (table,) = x
        return _value(tf.concat([hidden, table], 1), nn)

    return _with_arrays(
        _model(
            {"image": _IMAGE, "table": Spec([5], tf.float64)},
            Spec([]),
            join,
            mix,
            value,
            loss=_squared,
            metrics=lambda outputs, target: {"error": tf.abs(outputs - target)},
        )
    )


def several_labels():
    """An image to what of three things it shows."""

    def loss(outputs, labels):
        labels = tf.cast(labels, outputs.dtype)
        return tf.reduce_mean(
            tf.nn.sigmoid_cross_entropy_with_logits(labels, outputs), 1
        )

    def shown(x, nn):
        return nn.dense(x, 3)

    return _with_arrays(_model(_IMAGE, Spec([3], tf.bool), _hidden, shown, loss=loss))


def two_heads():
    """Two heads, whose labels are a dict; features of other dtypes than float32."""

    def trunk(x, nn):
        pixels = nn.flatten(tf.cast(x["pixels"], nn.dtype))
        row = tf.gather(nn.variable("table", [4, 3]), x["id"])
        flags = tf.cast(x["flags"], nn.dtype)
        return nn.dense(tf.concat([pixels, row, flags], 1), 8, activation=tf.nn.tanh)

    def heads(x, nn):
        return {"class": _logits(x, nn), "size": _value(x, nn)}

    return _with_arrays(
        _model(
            {
                "pixels": Spec([2, 2], tf.uint8),
                "id": Spec([], tf.int64),
                "flags": Spec([3], tf.bool),
            },
            {"class": _CLASS, "size": Spec([])},
            trunk,
            heads,
            loss=lambda outputs, labels: (
                _cross_entropy(outputs["class"], labels["class"])
                + _squared(outputs["size"], labels["size"])
            ),
        )
    )


def sample_weights():
    """Examples that weigh less than 1 together."""
    model = two_inputs()[0]
    return _with_arrays(model, weights=WEIGHTS)


def padded_sequences():
    """Padded sequences of tokens with their lengths, a class each."""

    def embed(x, nn):
        tokens, length = x
        words = nn.embedding(tokens, nn.variable("words", [4, 6]))
        return words, tf.sequence_mask(length, 5, nn.dtype)

    def logits(x, nn):
        words, mask = x
        return _logits(tf.reduce_sum(words * mask[:, :, None], 1), nn)

    features = Spec([5], tf.int32), Spec([], tf.int32)
    return _with_arrays(_model(features, _CLASS, embed, logits, loss=_cross_entropy))


def ctc():
    """Sequences to shorter sequences, padded with 0."""

    def features(x, nn):
        return nn.dense(x, 6, activation=tf.nn.tanh)

    def loss(outputs, labels):
        steps = tf.fill([outputs.shape[0]], outputs.shape[1])
        lengths = tf.math.count_nonzero(labels, 1, dtype=tf.int32)
        return tf.nn.ctc_loss(
            labels, outputs, lengths, steps, logits_time_major=False, blank_index=0
        )

    model = _model(Spec([7, 3]), Spec([3], tf.int32), features, _logits, loss=loss)
    features, labels = rows(model)
    return model, from_arrays(features, -np.sort(-labels, 1))


def autoencoder():
    """No labels, and a code with noise, as a variational one has it."""

    def code(x, nn):
        mean = nn.dense(x, 3, activation=tf.nn.tanh)
        return mean + 0.3 * nn.normal(mean) * nn.uniform(mean), x

    def decode(x, nn):
        return nn.dense(x[0], 6), x[1]

    return _with_arrays(
        _model(
            Spec([6]),
            (),
            code,
            decode,
            loss=lambda outputs, labels: tf.reduce_mean(_squared(*outputs), 1),
        )
    )


def triplets():
    """Three images, of which the first two are to be close and the third far."""

    def embed(x, nn):
        images = nn.conv(tf.concat(x, 0), 4, 3, activation=tf.nn.tanh)
        # No bias: distances do not depend on it.
        return tuple(tf.split(nn.dense(nn.flatten(images), 5, use_bias=False), 3))

    def distances(x, nn):
        first, same, other = x
        return {
            "near": tf.reduce_sum(_squared(first, same), 1),
            "far": tf.reduce_sum(_squared(first, other), 1),
        }

    def loss(outputs, labels):
        return tf.nn.softplus(outputs["near"] - outputs["far"])

    names = ("anchor", "positive", "negative")
    images = tuple(Spec([8, 8, 1], name=name) for name in names)
    return _with_arrays(_model(images, (), embed, distances, loss=loss))


def generator():
    """A generator of Python's, in its own order."""
    model = regression()[0]
    features, labels = rows(model)

    def make():
        return tf.data.Dataset.from_generator(
            lambda: zip(features, labels),
            output_signature=(model.inputs.features, model.inputs.labels),
        )

    return model, from_dataset(make, num_examples=EXAMPLES)


class _Rows:
    """A data set as those of PyTorch are."""

    def __init__(self, features, labels):
        self._features, self._labels = features, labels

    def __len__(self):
        return len(self._labels)

    def __getitem__(self, index):
        return self._features[index], self._labels[index]


def getitem():
    """An object with `__len__` and `__getitem__`."""
    model = regression()[0]
    return model, from_source(_Rows(*rows(model)))


EVERYDAY: dict[str, Callable[[], tuple[Model, Examples]]] = {
    row.__name__: row
    for row in (
        regression,
        segmentation,
        two_inputs,
        several_labels,
        two_heads,
        sample_weights,
        padded_sequences,
        ctc,
        autoencoder,
        triplets,
        generator,
        getitem,
    )
}
