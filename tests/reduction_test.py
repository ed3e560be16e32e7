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
        algorithm=sorted(reduction.REDUCTIONS), num_towers=(1, 2, 3, 4, 8)
    )
    def test_mean_of_small_integers_is_exact(self, algorithm, num_towers):
        rng = np.random.default_rng(num_towers)
        values = rng.integers(-8, 8, (num_towers, 5, 3)).astype(np.float32)
        devices = [f"/device:CPU:{i}" for i in range(num_towers)]
        with tf.Graph().as_default():
            shares = []
            for device, value in zip(devices, values):
                with tf.device(device):
                    shares.append([tf.constant(value), tf.constant(value[0])])
            means = reduction.mean(
                shares,
                [devices[:1], devices],
                reduce=reduction.REDUCTIONS[algorithm],
            )
            self.assertLen(means[1], num_towers)
            found = _run(means)
        np.testing.assert_array_equal(found[0][0], values.sum(0))
        for copy in found[1]:
            np.testing.assert_array_equal(copy, values[:, 0].sum(0))

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
