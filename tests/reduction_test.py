"""Every reduction gives the mean: the sum of the towers' shares."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers import reduction

v1 = tf.compat.v1


def _run(tensors, num_devices=8):
    config = v1.ConfigProto(device_count={"CPU": num_devices})
    with v1.Session(config=config) as session:
        return session.run(tensors)


class ReductionTest(parameterized.TestCase):
    @parameterized.product(
        text=(
            *reduction.REDUCTIONS,
            "xring#2",
            "pscpu/pscpu",
            "tree/xring",
            "pscpu:24:rechd#2",
            "pscpu:8:tree:64:xring",
        ),
        num_towers=(1, 2, 3, 4, 8),
    )
    def test_every_spec_gives_the_mean_on_every_device(self, text, num_towers):
        rng = np.random.default_rng(num_towers)
        values = rng.integers(-8, 8, (num_towers, 5, 3)).astype(np.float32)
        devices = [f"/device:CPU:{i}" for i in range(num_towers)]
        hosts = [
            devices[num_towers // 2 * (k >= num_towers // 2)] for k in range(num_towers)
        ]
        with tf.Graph().as_default():
            shares = []
            for device, value in zip(devices, values):
                with tf.device(device):
                    shares.append([tf.constant(value), tf.constant(value[0])])
            reduce = reduction.from_spec(text, hosts)
            means = reduction.mean(
                shares, [devices, devices], reduce_all=reduction.each(reduce)
            )
            self.assertLen(means[1], num_towers)
            found = _run(means)
        for copies, wanted in zip(found, (values.sum(0), values[:, 0].sum(0))):
            for copy in copies:
                np.testing.assert_array_equal(copy, wanted)

    def test_by_default_each_mean_is_formed_where_its_variable_lies(self):
        with tf.Graph().as_default():
            shares = [[tf.ones([2]), tf.ones([3])]] * 2
            wanted = ["/device:CPU:1", "/device:CPU:0"]
            means = reduction.mean(shares, [[device] for device in wanted])
            self.assertEqual([copies[0].device for copies in means], wanted)
            np.testing.assert_array_equal(_run(means[1][0]), [2, 2, 2])

    def test_sparse_rows_stay_sparse_and_each_stands_once(self):
        with tf.Graph().as_default():
            shares = [
                [tf.IndexedSlices(tf.ones([2, 3]) * k, [0, k], [4, 3])] for k in (1, 2)
            ]
            [copies] = reduction.mean(shares, [["/device:CPU:0", "/device:CPU:1"]])
            self.assertLen(copies, 2)
            values, indices = _run((copies[1].values, copies[1].indices))
        np.testing.assert_array_equal(indices, [0, 1, 2])
        np.testing.assert_array_equal(values[:, 0], [3, 1, 2])

    def test_none_in_all_towers_stays_none(self):
        self.assertEqual(reduction.mean([[None], [None]], [["d"]]), [[None]])

    def test_gradients_that_differ_in_kind_are_an_error_that_names_the_variables(self):
        with tf.Graph().as_default():
            dense, rows = tf.ones([2]), tf.IndexedSlices(tf.ones([1]), [0], [2])
            shares = [
                [dense, dense, None],
                [None, dense, rows],
                [dense, dense, None],
                [None, dense, dense],
            ]
            with self.assertRaises(ValueError) as caught:
                reduction.mean(shares, [["/device:CPU:0"]] * 3, names=["a", "b", "c"])
        self.assertEqual(
            str(caught.exception),
            "the towers' gradients differ in kind: 'a' has a dense gradient in tower 0 "
            "and a missing one in tower 1, 3; 'c' has a missing gradient in tower 0 "
            "and a sparse one in tower 1, 3; all towers must compute the same",
        )


if __name__ == "__main__":
    tf.test.main()
