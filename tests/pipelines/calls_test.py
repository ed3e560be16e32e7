"""Function calls are added to the graph at once, on their devices, in order."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.pipelines import calls

v1 = tf.compat.v1


def _function(body, *names, outputs):
    """A function of float32 vectors of two."""
    traced = tf.function(
        body, autograph=False, experimental_attributes={"_noinline": True}
    )
    with tf.Graph().as_default():
        specs = [tf.TensorSpec([2], name=name) for name in names]
        return calls.function(traced.get_concrete_function(*specs), names, outputs)


def _both(x, y):
    return x + y, x - y


def _asserted(x):
    with tf.control_dependencies([tf.debugging.Assert(x[0] > 0, [x])]):
        return tf.identity(x)


class CallsTest(absltest.TestCase):
    def _placed(self):
        both = _function(_both, "x", "y", outputs=("x", "z"))
        all_calls = calls.Calls()
        x, y = tf.constant([1.0, 2.0]), tf.constant([3.0, 5.0])
        first = all_calls.add(
            both, {"x": x, "y": y}, name="one/a", device="/device:CPU:1"
        )
        values = {"x": first["z"], "y": y}
        [before] = {value.call for value in first.values()}
        second = all_calls.add(
            both, values, name="one/b", device="/device:CPU:0", after=before
        )
        with tf.name_scope("somewhere"), tf.device("/device:CPU:7"):
            all_calls.place()
        return first, second

    def test_a_call_reads_what_is_there_and_what_calls_return(self):
        with tf.Graph().as_default() as graph:
            first, second = self._placed()
            wanted = [value.tensor() for value in (*first.values(), *second.values())]
            config = v1.ConfigProto(device_count={"CPU": 2})
            with v1.Session(graph=graph, config=config) as session:
                values = session.run(wanted)
        expected = [[4, 7], [-2, -3], [1, 2], [-5, -8]]
        np.testing.assert_array_equal(values, expected)
        self.assertTrue(all(tensor.shape == [2] for tensor in wanted))

    def test_name_device_and_order_are_those_said(self):
        with tf.Graph().as_default() as graph:
            self._placed()
            call = graph.get_operation_by_name("one/a/PartitionedCall")
            other = graph.get_operation_by_name("one/b/PartitionedCall")
        self.assertEqual(
            [call.device, other.device], ["/device:CPU:1", "/device:CPU:0"]
        )
        self.assertEqual(other.control_inputs, [call])
        config = v1.ConfigProto.FromString(call.get_attr("config_proto"))
        self.assertFalse(config.allow_soft_placement)

    def test_only_what_has_a_state_is_called_as_such(self):
        asserted = _function(_asserted, "x", outputs=("x",))
        self.assertTrue(asserted.stateful)
        self.assertFalse(_function(_both, "x", "y", outputs=("x", "y")).stateful)
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            all_calls = calls.Calls()
            values = {"x": tf.constant([-1.0, 0.0])}
            outputs = all_calls.add(asserted, values, name="a", device="")
            all_calls.place()
            self.assertEqual(outputs["x"].tensor().op.type, "StatefulPartitionedCall")
            with self.assertRaises(tf.errors.InvalidArgumentError):
                session.run(outputs["x"].tensor())
