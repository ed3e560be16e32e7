"""Examples of a tf.data.Dataset: one stream from any position; refusals."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data import inputs
from towers.data.datasets import from_dataset
from towers.data.example_source import ExampleSource
from towers.data.source import Request

_REQUEST = Request(
    shape=(),
    kind="examples",
    features=tf.TensorSpec([2]),
    labels=tf.TensorSpec([], tf.int32),
)


def _numbers(count=10):
    def example(i):
        x = tf.cast(i, tf.float32)
        return tf.stack([x, -x]), i

    return tf.data.Dataset.range(count).map(example)


def _generated():
    def examples():
        for i in range(10):
            yield np.float32([i, -i]), i

    signature = (tf.TensorSpec([2]), tf.TensorSpec([], tf.int64))
    return tf.data.Dataset.from_generator(examples, output_signature=signature)


class FromDatasetTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        make=(_numbers, _generated), layout=("4x3", "two_hosts"), position=(0, 17)
    )
    def test_the_stream_is_that_of_one_tower(self, make, layout, position):
        data = from_dataset(make, num_examples=10, shuffle_buffer=10)
        self.assertEqual(data.in_python, make is _generated)
        whole = batch_reader.read(ExampleSource(data, _REQUEST), 4, layout="1x12")
        parts = batch_reader.read(
            ExampleSource(data, _REQUEST), 2, layout=layout, position=position
        )
        for part, expected in zip(parts[:3], whole):
            self.assertAllEqual(part, expected[position : position + 24])
        epochs = whole[1][:40].reshape(4, 10)
        self.assertAllEqual(np.sort(epochs, 1), np.tile(np.arange(10), (4, 1)))
        self.assertNotAllEqual(epochs[0], epochs[1])

    def test_evaluation_keeps_the_order(self):
        data = from_dataset(_numbers, num_examples=10, shuffle_buffer=10)
        source = ExampleSource(data, _REQUEST, training=False)
        labels, weights = batch_reader.read(source, 1, limit=10)[1:3]
        self.assertAllEqual(labels[:10], np.arange(10))
        self.assertAllEqual(weights, [1] * 10 + [0] * 2)

    def test_examples_may_have_weights_and_no_labels(self):
        def make():
            return tf.data.Dataset.range(4).map(lambda i: (i, (), i))

        data = from_dataset(make, num_examples=4)
        request = dataclasses.replace(
            _REQUEST, features=tf.TensorSpec([], tf.int64), labels=()
        )
        groups, batch_size = batch_reader.LAYOUTS["2x2"]
        with tf.Graph().as_default(), batch_reader.session() as session:
            feed = ExampleSource(data, request).feed(
                groups, batch_size=batch_size, position=tf.constant(0, tf.int64)
            )
            session.run(feed.initializer)
            batches = session.run(feed.batches)
        self.assertAllEqual([b.features for b in batches], [[0, 1], [2, 3]])
        self.assertAllEqual([b.weights for b in batches], [[0, 1], [2, 3]])

    def test_another_number_of_examples_is_named(self):
        def make():
            return _numbers().filter(lambda x, i: i < 7)

        source = ExampleSource(from_dataset(make, num_examples=10), _REQUEST)
        with self.assertRaises(tf.errors.OpError) as caught:
            batch_reader.read(source, 2)
        self.assertRegex(
            inputs.explain(caught.exception, source),
            "from_dataset: num_examples=10, and the dataset has 7",
        )

    @parameterized.parameters(
        (lambda: _numbers().repeat(), 10, r"the dataset is endless; .*take\(10\)"),
        (_numbers, 9, "num_examples=9, and the dataset has 10"),
        (_numbers, 0, "num_examples=0; it must be 1 or more"),
        (
            lambda: _numbers().padded_batch(3),
            4,
            r"features is TensorSpec\(shape=\(None",
        ),
        (lambda: 1 / 0, 1, "make failed: ZeroDivisionError"),
        (lambda: tf.data.Dataset.from_tensors(("a", 1)), 1, "features is .*string"),
    )
    def test_what_is_no_dataset_of_examples(self, make, num_examples, words):
        with self.assertRaisesRegex(ValueError, f"^from_dataset: {words}"):
            from_dataset(make, num_examples=num_examples)
