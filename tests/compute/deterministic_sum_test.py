"""A sum whose order does not depend on which tower is faster."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.compute import deterministic_sum
from towers.layout import placement

v1 = tf.compat.v1


def _session(num_devices):
    config = placement.session_config(
        placement.local(num_devices, kind="cpu"), intra_threads=1, inter_threads=4
    )
    config.use_per_session_threads = True
    return v1.Session(config=config)


class DeterministicSumTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 3, 5, 8, 9, 17, 32)
    def test_adds(self, count):
        values = np.arange(6.0 * count, dtype="f4").reshape(count, 2, 3)
        with tf.Graph().as_default(), _session(1) as session:
            actual = session.run(
                deterministic_sum.sum_in_order([tf.constant(v) for v in values])
            )
        np.testing.assert_array_equal(actual, values.sum(0))

    @parameterized.parameters(
        (2**16, [12]), (2**16 + 1, [3, 4, 4, 4]), (None, [3, 4, 4, 4])
    )
    def test_at_most_four_large_tensors_wait_for_each_other(self, size, wanted):
        with tf.Graph().as_default() as graph:
            deterministic_sum.sum_in_order(
                [v1.placeholder(tf.float32, [size]) for _ in range(12)]
            )
            sums = [op for op in graph.get_operations() if op.type == "AddN"]
        self.assertEqual([len(op.inputs) for op in sums], wanted)

    def test_inputs_are_held_until_the_sum_is_done(self):
        """So none but the first two is ever free for the sum to begin with."""
        with tf.Graph().as_default():
            tensors = [tf.ones([2]) for _ in range(5)]
            total = deterministic_sum.sum_in_order(tensors)
            (holder,) = total.op.control_inputs
            self.assertEqual(list(holder.inputs), tensors[2:])
            self.assertEqual([op.type for op in holder.control_inputs], ["AddN"])

    def test_repeats_beside_other_readers_of_its_inputs(self):
        """`tf.add_n` in its place gave two results in 3000 runs of this."""
        rng = np.random.default_rng(0)
        with tf.Graph().as_default(), _session(4) as session:
            tensors, readers = [], []
            for k in range(4):
                with tf.device(f"/device:CPU:{k}"):
                    start = tf.constant(rng.normal(size=20001).astype("f4"))
                    start = v1.placeholder_with_default(start, start.shape)
                    tensors.append(1.5 * start)
                    readers.append(tf.reduce_sum(tf.sin(tensors[-1])))
            with tf.device("/device:CPU:0"):
                total = deterministic_sum.sum_in_order(tensors)
            run = session.make_callable([total, *readers])
            self.assertLen({run()[0].tobytes() for _ in range(500)}, 1)


class DifferentiateTest(tf.test.TestCase):
    def test_what_comes_back_from_many_places_is_added_in_pairs(self):
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            x = tf.constant([1.0, 2.0])
            y = tf.add_n([x * x, 3.0 * x, tf.sin(x), tf.exp(x)])
            [gradient] = deterministic_sum.differentiate(tf.reduce_sum(y), [x])
            [wanted] = tf.gradients(tf.reduce_sum(y), [x])
            sums = [
                op
                for op in graph.get_operations()
                if op.type == "AddN" and op.name.startswith("gradients/")
            ]
            self.assertNotEmpty(sums)
            self.assertEqual({len(op.inputs) for op in sums}, {2})
            arrays.assert_close(*session.run([gradient, wanted]), rtol=1e-6)
