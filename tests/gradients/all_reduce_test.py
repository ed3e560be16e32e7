"""Every algorithm, any number of devices and shards: the sum, bit-equal everywhere."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.gradients import all_reduce
from towers.gradients.transfer import Wire

v1 = tf.compat.v1
_ALGORITHMS = ("tree", "ring", "halving_doubling", "to_one")


class AllReduceTest(parameterized.TestCase):
    @parameterized.product(
        name=_ALGORITHMS,
        count_and_shards=((1, 1), (2, 1), (3, 1), (8, 1), (6, 2), (4, 3), (3, 64)),
        dtype=(tf.float32, tf.bfloat16),
    )
    def test_sum(self, name, count_and_shards, dtype):
        """Also of fewer elements than towers, chunks or shards, and of none."""
        count, num_shards = count_and_shards
        rng = np.random.default_rng(count)
        devices = [f"/device:CPU:{k}" for k in range(count)]
        integers = rng.integers(-9, 9, (count, 5, 7)).astype("f4")
        real = rng.normal(size=(count, 11)).astype("f4")
        tiny = rng.integers(-9, 9, (count, 1)).astype("f4")
        none = np.zeros((count, 0, 3), "f4")
        algorithm = getattr(all_reduce, name)
        with tf.Graph().as_default():
            sums = []
            for values in (integers, real, tiny, none):
                shares = []
                for device, value in zip(devices, values):
                    with tf.device(device):
                        shares.append(tf.constant(value))
                totals = algorithm(shares, devices, num_shards, Wire(dtype))
                self.assertLen(totals, count)
                self.assertEqual(totals[0].shape, values.shape[1:])
                sums.append(totals)
            config = v1.ConfigProto(device_count={"CPU": count})
            with v1.Session(config=config) as session:
                sums = session.run(sums)
        for totals in sums:
            for total in totals[1:]:
                arrays.assert_same_bits(total, totals[0])
        # Sums of a few small integers have so few bits that no dtype rounds them.
        np.testing.assert_array_equal(sums[0][0], integers.sum(0))
        np.testing.assert_array_equal(sums[2][0], tiny.sum(0))
        # Each of at most K - 1 hops up and the sum round by half a unit in the last
        # place, 2^-9 in bfloat16, of what they carry.
        ulp = 2.0**-9 if dtype == tf.bfloat16 and count > 1 else 2.0**-24
        bound = count * ulp * np.abs(real).sum(0)
        self.assertTrue(np.all(np.abs(sums[1][0] - real.sum(0)) <= bound))

    @parameterized.product(name=_ALGORITHMS, count=(3, 4))
    def test_results_lie_on_their_devices(self, name, count):
        devices = [f"/device:CPU:{k}" for k in range(count)]
        with tf.Graph().as_default():
            shares = [tf.ones([8]) for _ in devices]
            totals = getattr(all_reduce, name)(shares, devices, 1)
        self.assertEqual([total.device for total in totals], devices)

    @parameterized.parameters(tf.float32, tf.bfloat16, tf.float16)
    def test_a_ring_moves_as_little_as_a_ring_can(self, dtype):
        """Bytes into each device: 2 (K - 1) / K of the tensor, in the wire's dtype."""
        count, size = 4, 64
        devices = [f"/device:CPU:{k}" for k in range(count)]
        received = self._received(all_reduce.ring, devices, size, dtype)
        bytes_each = 2 * (count - 1) * size // count * dtype.size
        self.assertEqual(received, dict.fromkeys(devices, bytes_each))

    @parameterized.product(name=_ALGORITHMS, count=(2, 3, 4, 8))
    def test_16_bits_are_half_the_bytes_of_32(self, name, count):
        devices = [f"/device:CPU:{k}" for k in range(count)]
        algorithm = getattr(all_reduce, name)
        wide = self._received(algorithm, devices, 64, tf.float32)
        narrow = self._received(algorithm, devices, 64, tf.bfloat16)
        self.assertGreater(min(wide.values()), 0)
        self.assertEqual({d: 2 * n for d, n in narrow.items()}, wide)

    def _received(self, algorithm, devices, size, dtype, *, shards=1):
        """Bytes that each device gets from others."""
        with tf.Graph().as_default() as graph:
            shares = []
            for device in devices:
                with tf.device(device):
                    shares.append(tf.ones([size]))
            algorithm(shares, devices, shards, Wire(dtype))
            received = dict.fromkeys(devices, 0)
            sent = {
                (tensor.name, op.device): tensor
                for op in graph.get_operations()
                for tensor in op.inputs
                if tensor.device and tensor.device != op.device
            }
        for (_, device), tensor in sent.items():
            received[device] += tensor.shape.num_elements() * tensor.dtype.size
        return received

    def test_the_shards_of_a_tree_have_roots_of_their_own(self):
        devices = [f"/device:CPU:{k}" for k in range(4)]
        with tf.Graph().as_default() as graph:
            all_reduce.tree([tf.ones([64])] * 4, devices, 2)
            added = [op.device for op in graph.get_operations() if "Add" in op.type]
        # Two additions as the root of one half, one in the other half.
        self.assertEqual([added.count(device) for device in devices], [3, 0, 3, 0])

    def test_the_shards_are_summed_on_the_devices_in_turn(self):
        devices = [f"/device:CPU:{k}" for k in range(4)]
        received = self._received(all_reduce.to_one, devices, 64, tf.float32, shards=4)
        self.assertLen(set(received.values()), 1)

    @parameterized.parameters((3, 5, [1] * 3), (7, 3, [3, 2, 2]), (0, 2, [0]))
    def test_no_shard_is_empty(self, size, num_shards, wanted):
        sums = []

        def reduce_shard(pieces, shard, count):
            sums.append(pieces[0].shape.num_elements())
            self.assertEqual((shard, count), (len(sums) - 1, len(wanted)))
            return pieces

        with tf.Graph().as_default():
            devices = ["/device:CPU:0", "/device:CPU:1"]
            shares = [tf.ones([size])] * 2
            all_reduce.sharded(reduce_shard, shares, devices, num_shards)
        self.assertEqual(sums, wanted)

    def test_a_tree_in_16_bits_against_numpy(self):
        """1 sends to 0, and 3 to 2; 2 sends its sum to 0; 0 sends the whole to all."""
        half = tf.bfloat16.as_numpy_dtype
        values = np.random.default_rng(0).normal(size=(4, 50)).astype("f4")

        def sent(numbers):
            return numbers.astype(half).astype("f4")

        pairs = values[0] + sent(values[1]), values[2] + sent(values[3])
        wanted = sent(pairs[0] + sent(pairs[1]))
        self.assertGreater(np.abs(wanted - values.sum(0)).max(), 1e-3)
        devices = [f"/device:CPU:{k}" for k in range(4)]
        with tf.Graph().as_default():
            shares = []
            for value, device in zip(values, devices):
                with tf.device(device):
                    shares.append(tf.constant(value))
            totals = all_reduce.tree(shares, devices, 1, Wire(tf.bfloat16))
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 4})) as session:
                for total in session.run(totals):
                    np.testing.assert_array_equal(total, wanted)
