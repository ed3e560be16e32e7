"""A rewritten template has no duplicates, and computes the same."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from tests import arrays
from towers.compute import graph_rewrite

v1 = tf.compat.v1


def _graph():
    """Two convolutions with their gradients: shapes and constants galore."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [2, 6, 6, 3], "x")
        kernels = [
            v1.placeholder(tf.float32, [3, 3, 3, 3], name) for name in ("a", "b")
        ]
        y = x
        for kernel in kernels:
            y = tf.nn.relu(tf.nn.conv2d(y, kernel, 1, "SAME"))
        loss = tf.reduce_sum(tf.reduce_mean(y, [1, 2]), name="loss")
        gradients = tf.gradients(loss, kernels)
    return graph, [loss.name, *(gradient.name for gradient in gradients)]


def _compact(graph, outputs):
    return graph_rewrite.simplify(
        graph, {op.name for op in graph.get_operations()}, outputs
    )


def _run(graph_def, outputs):
    rng = np.random.default_rng(0)
    shapes = {"x": (2, 6, 6, 3), "a": (3, 3, 3, 3), "b": (3, 3, 3, 3)}
    fed = {f"{k}:0": rng.normal(size=v).astype("f4") for k, v in shapes.items()}
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(outputs, fed)


class GraphRewriteTest(absltest.TestCase):
    def test_the_outputs_stay_bit_for_bit(self):
        graph, outputs = _graph()
        before, after = graph.as_graph_def(), _compact(graph, outputs)
        for expected, actual in zip(
            _run(before, outputs), _run(after, outputs), strict=True
        ):
            arrays.assert_same_bits(actual, expected)
        assert len(after.node) < len(before.node)

    def test_no_shape_is_asked_for_and_no_constant_said_twice(self):
        graph, outputs = _graph()
        assert {op.type for op in graph.get_operations()} >= {"ShapeN", "Const"}
        nodes = _compact(graph, outputs).node
        assert not {"Shape", "ShapeN"} & {node.op for node in nodes}
        values = [str(node.attr["value"]) for node in nodes if node.op == "Const"]
        assert len(set(values)) == len(values)

    def test_an_unknown_shape_is_still_asked_for(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [None, 3], "x")
            tf.identity(tf.shape(x), "y")
        assert "Shape" in {node.op for node in _compact(graph, ["y:0"]).node}

    def test_long_shapes_stay_where_their_kernel_puts_them(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [2, 3], "x")
            tf.identity(tf.shape(x, tf.int64), "y")
            tf.identity(tf.raw_ops.Shape(input=x, out_type=tf.int64), "z")
        kinds = [node.op for node in _compact(graph, ["y:0", "z:0"]).node]
        # `tf.shape` folds a static shape; the operation does not.
        assert kinds.count("Shape") == 1

    def test_outputs_and_what_others_wait_for_stay(self):
        with tf.Graph().as_default() as graph:
            constant, same = tf.constant(1.0, name="one"), tf.constant(1.0, name="same")
            waited = tf.constant(1.0, name="waited")
            spare = tf.constant(1.0, name="spare")
            x = v1.placeholder(tf.float32, [5], "x")
            shape = tf.raw_ops.Shape(input=x, out_type=tf.int32, name="shape")
            with tf.control_dependencies([waited]):
                total = constant + spare + same
        nodes = _compact(graph, [total.name, same.name, shape.name]).node
        names = {node.name for node in nodes}
        assert {"same", "waited", "shape"} <= names
        assert len({"one", "spare"} & names) == 1
        assert "^waited" in {name for node in nodes for name in node.input}

    def test_towers_may_call_one_function_from_their_own_devices(self):
        """A loop's gradient colocates with nodes of the caller, TensorFlow's with some
        that are not needed."""
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [2], "x")
            y = tf.while_loop(
                lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), [0, x * x]
            )[1]
            z = tf.cond(y[0] > 0, lambda: y * y, lambda: y)
            (slope,) = tf.gradients(tf.gradients(tf.reduce_sum(z), x)[0], x)
        needed, left = set(), [slope.op]
        while left:
            op = left.pop()
            if op.name not in needed:
                needed.add(op.name)
                left += [t.op for t in op.inputs] + list(op.control_inputs)
        template = graph_rewrite.simplify(graph, needed, [slope.name])
        ends = []
        with tf.Graph().as_default():
            for index in range(2):
                for node in template.node:
                    node.device = f"/device:CPU:{index}"
                fed = {"x:0": tf.constant([1.0, 2.0]) + index}
                ends += tf.import_graph_def(template, fed, return_elements=[slope.name])
            config = v1.ConfigProto(device_count={"CPU": 2})
            with v1.Session(config=config) as session:
                values = session.run(ends)
        # z = y^2 with y = x^2 / 8, so its second derivative is 12 / 64 x^2.
        for index, value in enumerate(values):
            x = np.array([1.0, 2.0]) + index
            np.testing.assert_allclose(value, 12 / 64 * x**2, rtol=1e-6)

    def test_constants_of_two_devices_or_types_are_two(self):
        with tf.Graph().as_default() as graph:
            with tf.device("/device:CPU:0"):
                a = tf.constant(1.0)
            with tf.device("/device:CPU:1"):
                b = tf.constant(1.0)
            c = tf.constant(1)
            total = tf.add_n([a, b, tf.cast(c, tf.float32)])
        nodes = _compact(graph, [total.name]).node
        assert sum(node.op == "Const" for node in nodes) == 3
