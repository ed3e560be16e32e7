"""What travels is rounded, what stays is not."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.gradients.transfer import Wire

v1 = tf.compat.v1
_HERE, _THERE = "/device:CPU:0", "/device:CPU:1"


class WireTest(parameterized.TestCase):
    @parameterized.parameters(tf.bfloat16, tf.float16)
    def test_numbers_against_numpy(self, dtype):
        values = np.random.default_rng(1).normal(size=99).astype("f4")
        rounded = values.astype(dtype.as_numpy_dtype).astype("f4")
        self.assertFalse(np.array_equal(values, rounded))
        wire = Wire(dtype)
        with tf.Graph().as_default():
            with tf.device(_HERE):
                tensor = tf.constant(values)
            found = {
                "carried": wire.carry(tensor, _HERE, _THERE),
                "copied": wire.copy(tensor, _HERE, _THERE),
                "rounded": wire.rounded(tensor, _HERE),
                "spread": wire.spread(tensor, _HERE, [_HERE, _THERE]),
                # A second hop of what is rounded takes nothing more off.
                "on": wire.carry(wire.rounded(tensor, _HERE), _HERE, _THERE),
            }
            kept = wire.carry(tensor, _HERE, _HERE), wire.copy(tensor, _HERE, _HERE)
            for tensors in (kept, *found.values()):
                for each in tf.nest.flatten(tensors):
                    self.assertEqual(each.dtype, tf.float32)
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
                found, kept = session.run((found, kept))
        for name, value in found.items():
            for copy in value if name == "spread" else [value]:
                np.testing.assert_array_equal(copy, rounded, err_msg=name)
        for value in kept:
            np.testing.assert_array_equal(value, values)

    def test_float32_costs_nothing(self):
        wire = Wire()
        self.assertFalse(wire.narrow)
        with tf.Graph().as_default() as graph:
            tensor = tf.ones([3])
            before = len(graph.get_operations())
            self.assertIs(wire.carry(tensor, _HERE, _THERE), tensor)
            self.assertIs(wire.rounded(tensor, _HERE), tensor)
            self.assertEqual(wire.spread(tensor, _HERE, "ab"), [tensor, tensor])
            self.assertLen(graph.get_operations(), before)
            self.assertEqual(wire.copy(tensor, _HERE, _THERE).device, _THERE)


if __name__ == "__main__":
    tf.test.main()
