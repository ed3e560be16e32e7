"""Every algorithm, any number of devices and shards: the sum, bit-equal everywhere."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers import all_reduce

v1 = tf.compat.v1
_ALGORITHMS = ("tree", "ring", "halving_doubling", "to_one")


class AllReduceTest(parameterized.TestCase):
    @parameterized.product(
        name=_ALGORITHMS, count=(1, 2, 3, 4, 5, 8), num_shards=(1, 2, 3)
    )
    def test_sum(self, name, count, num_shards):
        rng = np.random.default_rng(count)
        devices = [f"/device:CPU:{k}" for k in range(count)]
        integers = rng.integers(-9, 9, (count, 5, 7)).astype("f4")
        real = rng.normal(size=(count, 11)).astype("f4")
        tiny = rng.integers(-9, 9, (count, 1)).astype("f4")
        algorithm = getattr(all_reduce, name)
        with tf.Graph().as_default():
            found = []
            for values in (integers, real, tiny):
                shares = []
                for device, value in zip(devices, values):
                    with tf.device(device):
                        shares.append(tf.constant(value))
                totals = algorithm(shares, devices, num_shards)
                self.assertLen(totals, count)
                self.assertEqual(totals[0].shape, values.shape[1:])
                found.append(totals)
            config = v1.ConfigProto(device_count={"CPU": count})
            with v1.Session(config=config) as session:
                found = session.run(found)
        for totals in found:
            for total in totals[1:]:
                np.testing.assert_array_equal(total, totals[0])
        np.testing.assert_array_equal(found[0][0], integers.sum(0))
        np.testing.assert_allclose(found[1][0], real.sum(0), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(found[2][0], tiny.sum(0))

    @parameterized.parameters(*_ALGORITHMS)
    def test_results_lie_on_their_devices(self, name):
        devices = [f"/device:CPU:{k}" for k in range(4)]
        with tf.Graph().as_default():
            shares = [tf.ones([8]) for _ in devices]
            totals = getattr(all_reduce, name)(shares, devices, 1)
        self.assertEqual([total.device for total in totals], devices)

    def test_a_ring_moves_as_little_as_a_ring_can(self):
        """Bytes into each device: 2 (K - 1) / K of the tensor."""
        count, size = 4, 64
        devices = [f"/device:CPU:{k}" for k in range(count)]
        with tf.Graph().as_default() as graph:
            shares = []
            for device in devices:
                with tf.device(device):
                    shares.append(tf.ones([size]))
            all_reduce.ring(shares, devices, 1)
            received = dict.fromkeys(devices, 0)
            for op in graph.get_operations():
                for tensor in op.inputs:
                    if tensor.device and tensor.device != op.device:
                        received[op.device] += tensor.shape.num_elements()
        self.assertEqual(set(received.values()), {2 * (count - 1) * size // count})


if __name__ == "__main__":
    tf.test.main()
