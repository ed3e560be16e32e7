"""Parts of a graph, one for each device, compute the same as the whole graph."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.compute import split_by_device
from towers.layout.placeholders import shard

v1 = tf.compat.v1


def _graph():
    """A sum of two products, each on a device, and its square there and back."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2], "x")
        weights = [v1.placeholder(tf.float32, [2], f"w{k}") for k in range(2)]
        doubled = tf.multiply(x, 2.0, name="doubled")
        products = []
        for k, weight in enumerate(weights):
            with tf.device(shard(k)):
                products.append(tf.multiply(doubled, weight, name=f"product{k}"))
        total = tf.add_n(products, name="total")
        with tf.device(shard(1)):
            square = tf.multiply(total, total, name="square")
        early = tf.multiply(x, 3.0, name="early")
        with tf.control_dependencies([square]):
            tf.add(early, total, name="end")
        tf.add(x, 1.0, name="unused")
    return graph.as_graph_def()


class SplitByDeviceTest(absltest.TestCase):
    def test_parts_one_after_the_other_are_the_whole(self):
        graph_def, wanted = _graph(), ["end:0", "square:0", "product0:0"]
        given = {"x": [1.0, 2.0], "w0": [3.0, 4.0], "w1": [5.0, 6.0]}
        given = {f"{k}:0": np.array(v, np.float32) for k, v in given.items()}
        with tf.Graph().as_default(), v1.Session() as session:
            values = {name: tf.constant(value) for name, value in given.items()}
            for part in split_by_device.split_by_device(graph_def, wanted):
                self.assertLessEqual(set(part.inputs), set(values))
                with tf.name_scope("part"):
                    values |= part({name: values[name] for name in part.inputs})
            parts = session.run([values[name] for name in wanted])
        total = 2.0 * given["x:0"] * (given["w0:0"] + given["w1:0"])
        product = 2.0 * given["x:0"] * given["w0:0"]
        expected = [3.0 * given["x:0"] + total, total**2, product]
        np.testing.assert_allclose(parts, expected)

    def test_what_waits_for_another_device_alone(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [], "x")
            with tf.device(shard(0)):
                first = tf.add(x, 1.0, name="first")
            with tf.device(shard(1)), tf.control_dependencies([first]):
                tf.multiply(x, 3.0, name="end")
        parts = split_by_device.split_by_device(
            graph.as_graph_def(), ["first:0", "end:0"]
        )
        with tf.Graph().as_default(), v1.Session() as session:
            values = {"x:0": tf.constant(2.0)}
            for part in parts:
                with tf.name_scope("part"):
                    values |= part({name: values[name] for name in part.inputs})
            self.assertEqual(session.run(values["end:0"]), 6.0)

    def test_a_device_is_where_its_operations_are(self):
        parts = split_by_device.split_by_device(_graph(), ["end:0"])
        names = [
            (part.device, {n.name for n in part.graph_def.node if n.op != "Const"})
            for part in parts
        ]
        self.assertEqual(
            names,
            [
                ("", {"doubled"}),
                (shard(0), {"product0"}),
                (shard(1), {"product1"}),
                ("", {"total"}),
                (shard(1), {"square"}),
                ("", {"early", "end"}),
            ],
        )
        for part in parts:
            self.assertEqual({node.device for node in part.graph_def.node}, {""})
        # The inputs include what the part only waits for.
        self.assertEqual(parts[-1].inputs, ("square:0", "total:0", "x:0"))

    def test_constants_may_be_wanted_and_are_where_they_are_read(self):
        with tf.Graph().as_default() as graph:
            two = tf.constant(2.0, name="two")
            with tf.device(shard(0)):
                tf.multiply(v1.placeholder(tf.float32, [], "x"), two, name="end")
        parts = split_by_device.split_by_device(
            graph.as_graph_def(), ["two:0", "end:0"]
        )
        self.assertEqual([part.outputs for part in parts], [("two:0",), ("end:0",)])
        self.assertEqual(parts[1].inputs, ("x:0",))

    def test_the_kind_of_device_stays(self):
        with tf.Graph().as_default() as graph:
            with tf.device(shard(0)), tf.device("/device:CPU:0"):
                tf.constant(1.0) + v1.placeholder(tf.float32, [])
        (part,) = split_by_device.split_by_device(graph.as_graph_def(), ["add:0"])
        self.assertEqual(part.device, shard(0))
        self.assertIn("/device:CPU:0", {node.device for node in part.graph_def.node})

    def test_what_is_on_one_device_is_not_divided(self):
        graph_def = _graph()
        for node in graph_def.node:
            node.device = ""
        self.assertLen(split_by_device.split_by_device(graph_def, ["end:0"]), 1)
