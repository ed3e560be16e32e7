"""The steps beside TensorFlow's kernels, on the same sparse gradients."""

from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.optimizers import sparse_updates

v1 = tf.compat.v1

_MAKES = {
    "plain": lambda: sparse_updates.Momentum(0.1, 0.9, nesterov=False),
    "nesterov": lambda: sparse_updates.Momentum(lambda: 0.1, 0.9, nesterov=True),
    "rmsprop": lambda: sparse_updates.RmsProp(0.1, 0.8, momentum=0.7, epsilon=0.5),
    "rate of a callable": lambda: sparse_updates.RmsProp(
        lambda: tf.constant(0.1), 0.8, momentum=0.7, epsilon=0.5
    ),
}


def _train(make) -> dict[str, np.ndarray]:
    """Variable and slots after some steps that touch some rows, one of them twice."""
    rng = np.random.default_rng(0)
    with tf.Graph().as_default(), v1.Session() as session:
        start = rng.normal(size=(6, 3)).astype("f4")
        table = v1.get_variable("table", initializer=start, use_resource=True)
        rows = v1.placeholder(tf.float32, [4, 3])
        indices = v1.placeholder(tf.int32, [4])
        gradient = tf.IndexedSlices(rows, indices, tf.constant([6, 3]))
        step = make().apply_gradients([(gradient, table)])
        session.run(v1.global_variables_initializer())
        for _ in range(5):
            values = rng.normal(size=(4, 3))
            session.run(step, {rows: values, indices: [2, 0, 2, rng.integers(3, 5)]})
        return session.run({v.op.name: v for v in v1.global_variables()})


class SparseUpdatesTest(parameterized.TestCase):
    def test_adam_moves_as_tensorflows(self):
        rates = (0.1, 0.8, 0.95, 1e-3)
        wanted = _train(lambda: v1.train.AdamOptimizer(*rates))
        actual = _train(lambda: sparse_updates.Adam(*rates))
        self.assertEqual(actual.keys(), wanted.keys())
        for name, value in wanted.items():
            np.testing.assert_allclose(actual[name], value, 1e-5, 1e-6, err_msg=name)

    def test_adam_updates_a_table_by_one_kernel(self):
        with tf.Graph().as_default() as graph:
            table = v1.get_variable("table", [6, 3], use_resource=True)
            rows = tf.IndexedSlices(tf.ones([4, 3]), tf.constant([2, 0, 2, 5]))
            sparse_updates.Adam(0.1).apply_gradients([(rows, table)])
            types = [op.type for op in graph.get_operations()]
        self.assertEqual(types.count("ResourceApplyAdam"), 1)
        # After a scatter operation each read of the table would copy it.
        self.assertNotIn("ResourceScatterAdd", types)

    @parameterized.named_parameters(*((name, make) for name, make in _MAKES.items()))
    def test_moves_as_the_kernel_does(self, make):
        wanted = _train(make)
        with mock.patch.object(sparse_updates, "_has_kernel", return_value=False):
            actual = _train(make)
        self.assertEqual(actual.keys(), wanted.keys())
        self.assertGreater(len(wanted), 1)
        for name, value in wanted.items():
            np.testing.assert_allclose(actual[name], value, 1e-5, 1e-6, err_msg=name)
            np.testing.assert_array_equal(actual[name][5], value[5])

    def test_the_kernel_is_on_cpus(self):
        for device, there in (("/device:GPU:1", False), ("/device:CPU:0", True)):
            with tf.Graph().as_default(), tf.device(device):
                table = v1.get_variable("table", [2, 2], use_resource=True)
                self.assertEqual(sparse_updates._has_kernel(table), there)
