"""Python sources, read in this process or in workers: the same examples."""

import threading
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from tests.squares import Squares
from towers.data import examples, worker_pool
from towers.data.example_source import ExampleSource
from towers.data.python_source import from_source
from towers.data.source import Request

v1 = tf.compat.v1


class FromSourceTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(0, 2)
    def test_reads_examples(self, workers):
        data = from_source(Squares(weighs=True, raises=9), workers)
        self.assertEqual(data.num_examples, 10)
        with tf.Graph().as_default(), v1.Session() as session:
            numbers = v1.placeholder(tf.int64, [2])
            parts = data.read(numbers)
            features, labels, weights = session.run(parts, {numbers: [7, 2]})
            with self.assertRaises(tf.errors.OpError) as caught:
                session.run(parts, {numbers: [7, 9]})
        self.assertAllEqual(features["i"], [[7, 49], [2, 4]])
        self.assertAllEqual(features["n"], [-7, -2])
        self.assertAllEqual(labels, [7, 2])
        self.assertEqual(labels.dtype, np.int32)
        self.assertAllEqual(weights, [3.5, 1])
        self.assertRegex(
            examples.explain_example(caught.exception),
            r"from_source: source\[9\] failed: KeyError: 'nothing there' \(.*:\d+\)$",
        )

    def test_every_worker_has_work(self):
        """Also if the session has one thread, two batches of each are asked for."""
        read, asked, four = worker_pool.WorkerPool.rows, [], threading.Event()

        def rows(pool, numbers):
            asked.append(numbers)
            if len(asked) == 4:
                four.set()
            self.assertTrue(four.wait(20))
            return read(pool, numbers)

        with mock.patch.object(worker_pool.WorkerPool, "rows", rows):
            data = from_source(Squares(), workers=2)
        features, labels = data.specs
        wanted = Request(shape=(), kind="examples", features=features, labels=labels)
        one_thread = v1.ConfigProto(
            inter_op_parallelism_threads=1, use_per_session_threads=True
        )
        with tf.Graph().as_default(), v1.Session(config=one_thread) as session:
            (group,), size = batch_reader.LAYOUTS["1x12"]
            feed = ExampleSource(data, wanted, training=False).feed(
                [group], batch_size=size, position=tf.constant(0, tf.int64)
            )
            session.run(feed.initializer)
            labels = session.run(feed.batches[0].labels)
        self.assertAllEqual(labels, np.arange(12) % 10)

    def test_a_list_is_an_array(self):
        features, label = from_source([([1.0, 2.0], 3)]).specs
        self.assertEqual(features, tf.TensorSpec([2], tf.float64))
        self.assertEqual(label, tf.TensorSpec([], tf.int32))

    @parameterized.parameters(
        (iter([1]), "a list_iterator has no length or no index.* for from_dataset"),
        ([], r"a list: source\[0\] is empty"),
        ([()], r"source\[0\] is a tuple of 0"),
        (Squares(raises=0), r"a Squares: source\[0\] failed: KeyError"),
        ([((), 1)], r"source\[0\] has no features"),
        ([object()], r"source\[0\]: features is of dtype object"),
    )
    def test_what_is_no_source(self, source, words):
        with self.assertRaisesRegex(ValueError, words):
            from_source(source)
