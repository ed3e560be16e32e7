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

    def test_sparse_rows_stay_sparse_and_add_up(self):
        with tf.Graph().as_default():
            shares = [
                [tf.IndexedSlices(tf.ones([2, 3]) * k, [0, k], [4, 3])] for k in (1, 2)
            ]
            [[mean]] = reduction.mean(shares, [["/device:CPU:0"]])
            self.assertIsInstance(mean, tf.IndexedSlices)
            self.assertEqual(mean.values.shape, [4, 3])
            dense = _run(tf.convert_to_tensor(mean))
        np.testing.assert_array_equal(dense[:, 0], [3, 1, 2, 0])

    def test_none_in_all_towers_stays_none(self):
        self.assertEqual(reduction.mean([[None], [None]], [["d"]]), [[None]])

    def test_none_in_one_tower_is_an_error_that_names_it(self):
        with tf.Graph().as_default():
            shares = [[tf.ones([2])], [None], [tf.ones([2])]]
            with self.assertRaisesRegex(ValueError, "missing in tower 1"):
                reduction.mean(shares, [["/device:CPU:0"]])


if __name__ == "__main__":
    tf.test.main()
