"""Packed reductions give what the same reduction gives unpacked."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.gradients import packing, reduction

v1 = tf.compat.v1
_SHAPES = [(3,), (5, 4), (1,), (7,), (2, 2, 2)]


class PackingTest(parameterized.TestCase):
    @parameterized.product(
        packed=(
            ("equal", 1),
            ("equal", 3),
            ("equal", 50),
            ("small", 32, 2),
            ("small", 9**9, 3),
        ),
        spec=("pscpu", "xring"),
        num_towers=(1, 2, 4),
    )
    def test_values(self, packed, spec, num_towers):
        rng = np.random.default_rng(1)
        values = [rng.integers(-9, 9, (num_towers, *s)).astype("f4") for s in _SHAPES]
        devices = [f"/device:CPU:{k}" for k in range(num_towers)]
        with tf.Graph().as_default():
            shares = [[tf.constant(v) for v in value] for value in values]
            reduce = reduction.from_spec(spec, [devices[0]] * num_towers)
            kind, *numbers = packed
            pack = getattr(packing, kind)(*numbers, reduce)
            means = pack(shares, [devices] * len(shares))
            config = v1.ConfigProto(device_count={"CPU": num_towers})
            with v1.Session(config=config) as session:
                found = session.run(means)
        for value, copies in zip(values, found):
            self.assertLen(copies, num_towers)
            for copy in copies:
                np.testing.assert_array_equal(copy, value.sum(0))

    def test_few_reductions(self):
        calls = []

        def reduce(shares, devices):
            calls.append(shares[0].shape.num_elements())
            return list(shares)

        with tf.Graph().as_default():
            shares = [[tf.zeros(shape)] for shape in _SHAPES]
            packing.equal(2, reduce)(shares, [["/device:CPU:0"]] * 5)
            self.assertEqual(calls, [20, 19])
            calls.clear()
            packing.small(32, 2, reduce)(shares, [["/device:CPU:0"]] * 5)
            self.assertEqual(calls, [20, 4, 15])
            # Where all gradients are sparse there is nothing to pack.
            self.assertEqual(packing.equal(2, reduce)([], []), [])
            self.assertEqual(packing.small(32, 2, reduce)([], []), [])


if __name__ == "__main__":
    tf.test.main()
