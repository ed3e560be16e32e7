"""The stream of examples by number: the same for every layout, from any position."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data.arrays import from_arrays
from towers.data.example_source import ExampleSource
from towers.data.source import ClientShare, Request

_N = 10
_SPECS = {"features": tf.TensorSpec([2]), "labels": tf.TensorSpec([], tf.int32)}
_REQUEST = Request(shape=(), kind="examples", seed=5, **_SPECS)


def _numbered(**options):
    """Example i is [i, -i] with the label i, int64."""
    i = np.arange(_N)
    return from_arrays(np.stack([i, -i], 1).astype(np.float32), i, **options)


def _singly(augment=None):
    """The same, read one at a time by TensorFlow."""

    def read(number):
        i = tf.cast(number, tf.float32)
        return tf.stack([i, -i]), number

    data = dataclasses.replace(_numbered(), read=read, single=True, calls=2)
    return dataclasses.replace(data, augment=augment)


def _opened():
    """The same, from a dataset in its own order."""

    def open_rows(seed):
        del seed
        numbers = tf.data.Dataset.range(_N)
        return numbers.map(lambda i: (i, (tf.cast([i, -i], tf.float32), i)))

    return dataclasses.replace(_numbered(), read=None, open=open_rows)


class ExampleSourceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        layout=("1x12", "4x3", "two_hosts", "unequal"),
        make=(_numbered, _singly),
        position=(0, 7),
    )
    def test_the_stream_is_that_of_one_tower(self, layout, make, position):
        whole = batch_reader.read(
            ExampleSource(_numbered(), _REQUEST), 4, layout="1x12"
        )
        parts = batch_reader.read(
            ExampleSource(make(), _REQUEST), 3, layout=layout, position=position
        )
        for part, all_of_it in zip(parts[:3], whole):
            self.assertAllEqual(part, all_of_it[position : position + 36])
        self.assertEqual(parts[1].dtype, np.int32)
        for epoch in range(4):
            labels = whole[1][epoch * _N : (epoch + 1) * _N]
            self.assertAllEqual(np.sort(labels), np.arange(_N))

    def test_parts_of_a_step_are_the_step(self):
        source = ExampleSource(_numbered(), _REQUEST)
        whole = batch_reader.read(source, 3, layout="1x12")
        clients = [
            batch_reader.read(source, 3, layout="2x2", part=ClientShare(index, 3))
            for index in range(3)
        ]
        steps = [np.split(parts[1], 3) for parts in clients]
        joined = np.concatenate([s[k] for k in range(3) for s in steps])
        self.assertAllEqual(joined, whole[1])

    @parameterized.parameters(_numbered, _singly, _opened)
    def test_the_first_example_again_and_again(self, make):
        request = dataclasses.replace(_REQUEST, repeated=True)
        source = ExampleSource(make(), request)
        for position in (0, 7):
            features, labels, weights, _ = batch_reader.read(
                source, 2, position=position
            )
            self.assertAllEqual(features, np.zeros((24, 2)))
            self.assertAllEqual(labels, np.zeros(24))
            self.assertAllEqual(weights, np.ones(24))
        self.assertEqual(source.number_of(5), 0)
        evaluation = ExampleSource(make(), request, training=False)
        self.assertAllEqual(batch_reader.read(evaluation, 1)[1], [*range(_N), 0, 1])

    def test_evaluation_takes_each_once_in_order(self):
        source = ExampleSource(_numbered(), _REQUEST, training=False)
        _, labels, weights, _ = batch_reader.read(source, 1, limit=_N)
        self.assertAllEqual(labels, [*range(_N), 0, 1])
        self.assertAllEqual(weights, [1] * _N + [0, 0])

    def test_weights_are_those_of_examples(self):
        source = ExampleSource(_numbered(weights=np.arange(_N) / 7), _REQUEST)
        _, labels, weights, _ = batch_reader.read(source, 1, limit=11)
        self.assertAllClose(weights, np.where(np.arange(12) < 11, labels / 7, 0))

    def test_each_client_knows_the_weight_of_the_step(self):
        source = ExampleSource(_numbered(weights=np.arange(_N) / 7), _REQUEST)
        whole = batch_reader.read(source, 2, layout="1x12", limit=20)[2]
        groups, batch_size = batch_reader.LAYOUTS["2x2"]
        for index in range(3):
            with tf.Graph().as_default(), batch_reader.session() as session:
                feed = source.feed(
                    groups,
                    batch_size=batch_size,
                    position=tf.constant(0, tf.int64),
                    limit=20,
                    part=ClientShare(index, 3),
                )
                session.run(feed.initializer)
                for step in range(2):
                    weight, _ = session.run([feed.weight, feed.batches])
                    self.assertAllClose(weight, whole[12 * step : 12 * step + 12].sum())

    def test_weights_that_nobody_else_knows_are_exchanged(self):
        data = dataclasses.replace(_numbered(weights=np.ones(_N)), weights=None)
        groups, batch_size = batch_reader.LAYOUTS["2x2"]
        with tf.Graph().as_default():
            feed = ExampleSource(data, _REQUEST).feed(
                groups,
                batch_size=batch_size,
                position=tf.constant(0, tf.int64),
                part=ClientShare(0, 3),
            )
            self.assertIsNone(feed.weight)
            self.assertIsNone(feed.exchanged_weight(None))
            self.assertEqual(feed.exchanged_weight(36).shape, [])

    def test_augments_by_the_example_in_training_only(self):
        def augment(parts, draws):
            features, label = parts
            return features * 0 + draws[:2], label

        data, drawn = _singly(augment), {}
        for layout in ("1x12", "4x3"):
            drawn[layout] = batch_reader.read(
                ExampleSource(data, _REQUEST), 2, layout=layout
            )[0]
        self.assertAllEqual(drawn["1x12"], drawn["4x3"])
        self.assertLen(np.unique(drawn["1x12"]), 48)
        plain = dataclasses.replace(_REQUEST, augment=False)
        for source in (
            ExampleSource(data, _REQUEST, training=False),
            ExampleSource(data, plain),
        ):
            self.assertAllInSet(batch_reader.read(source, 1)[0], range(-_N, _N))

    def test_images_are_prepared(self):
        images = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3), np.uint8)
        data = from_arrays(images, np.arange(10))
        request = Request(shape=(32, 32, 3), preprocessing="cifar", seed=5)
        single = batch_reader.read(ExampleSource(data, request), 2, layout="1x12")[0]
        several = batch_reader.read(ExampleSource(data, request), 2, layout="4x3")[0]
        self.assertAllEqual(single, several)
        self.assertEqual(single.dtype, np.float32)
        plain = ExampleSource(data, request, training=False)
        self.assertNotAllEqual(single[:12], batch_reader.read(plain, 1)[0])

    @parameterized.parameters(
        ({"features": tf.TensorSpec([10])}, r"features is float32 \[2\], the model "),
        ({"features": tf.TensorSpec([2], tf.int32)}, r"reads int32 \[2\]"),
        (
            {"features": {"x": tf.TensorSpec([2])}},
            "features is .* the model reads noth",
        ),
        (
            {"labels": tf.TensorSpec([])},
            r"labels is int64 \[\], the model reads float32",
        ),
        ({"labels": ()}, "labels is int64 .* the model reads nothing"),
        ({"kind": "images", "shape": (8, 8, 1)}, "the model reads images .*float32 "),
        ({"kind": "tokens", "shape": (2,)}, r"the model reads int32 \[2\]"),
    )
    def test_what_does_not_fit_is_named(self, changes, words):
        request = dataclasses.replace(_REQUEST, **changes)
        if request.kind == "tokens":
            request = dataclasses.replace(request, preprocessing="bytes")
        with self.assertRaisesRegex(ValueError, words):
            ExampleSource(_numbered(), request)
