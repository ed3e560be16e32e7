"""Fewer kernels compute what the many did."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from tests import trainer
from towers import fusion

v1 = tf.compat.v1


def _conv(x, activation, dtype=tf.float32):
    x = tf.cast(x, dtype)
    kernel = v1.placeholder_with_default(tf.ones([3, 3, 2, 4], dtype), [3, 3, 2, 4])
    bias = v1.placeholder_with_default(tf.range(4.0), [4], "bias")
    y = tf.nn.bias_add(tf.nn.conv2d(x, kernel, 2, "SAME"), tf.cast(bias, dtype))
    return activation(y), [kernel, bias]


def _dense(x, activation, dtype=tf.float32):
    x = tf.reshape(tf.cast(x, dtype), [3, 50])
    kernel = v1.placeholder_with_default(tf.ones([50, 4], dtype), [50, 4])
    bias = v1.placeholder_with_default(tf.range(4.0), [4])
    y = tf.nn.bias_add(tf.matmul(x, kernel), tf.cast(bias, dtype))
    return activation(y), [kernel, bias]


def _graph(layer, *args):
    """(graph, names of a loss and of its gradients) of one layer."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [3, 5, 5, 2], "x")
        y, variables = layer(x, *args)
        loss = tf.reduce_sum(tf.square(tf.cast(y, tf.float32)))
        gradients = tf.gradients(loss, [x, *variables])
    return graph, [loss.name, *(gradient.name for gradient in gradients)]


def _kinds(graph_def):
    return {node.op for node in graph_def.node}


def _run(graph_def, outputs):
    x = np.random.default_rng(0).normal(size=(3, 5, 5, 2)).astype("f4")
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.import_graph_def(graph_def, name="")
        return session.run(outputs, {"x:0": x})


class FusionTest(parameterized.TestCase):
    @parameterized.product(
        layer=((_conv, "_FusedConv2D"), (_dense, "_FusedMatMul")),
        activation=(tf.nn.relu, tf.identity, tf.nn.tanh),
    )
    def test_outputs_and_gradients_stay(self, layer, activation):
        layer, kind = layer
        graph, outputs = _graph(layer, activation)
        fused = fusion.fuse(graph.as_graph_def(), outputs)
        assert kind in _kinds(fused)
        assert "BiasAdd" not in _kinds(fused)
        assert "Relu" not in _kinds(fused)
        for expected, got in zip(
            _run(graph.as_graph_def(), outputs), _run(fused, outputs)
        ):
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)

    @parameterized.parameters(_conv, _dense)
    def test_other_dtypes_stay_as_they_are(self, layer):
        graph, outputs = _graph(layer, tf.nn.relu, tf.bfloat16)
        before = graph.as_graph_def()
        assert _kinds(fusion.fuse(before, outputs)) == _kinds(before)

    def test_what_another_reads_or_is_an_output_stays(self):
        def read_twice(y):
            return tf.nn.relu(y) + y

        graph, outputs = _graph(_conv, read_twice)
        fused = fusion.fuse(graph.as_graph_def(), outputs)
        assert {"_FusedConv2D", "Relu"} <= _kinds(fused)
        graph, outputs = _graph(_conv, tf.nn.relu)
        [bias_add] = [op for op in graph.get_operations() if op.type == "BiasAdd"]
        fused = fusion.fuse(graph.as_graph_def(), [*outputs, bias_add.outputs[0].name])
        assert "Relu" in _kinds(fused)
        _run(fused, bias_add.outputs[0].name)
        [product] = [op for op in graph.get_operations() if op.type == "Conv2D"]
        kept = [*outputs, product.outputs[0].name]
        assert "_FusedConv2D" not in _kinds(fusion.fuse(graph.as_graph_def(), kept))

    def test_a_tower_on_a_cpu_has_fused_layers(self):
        made = trainer.Trainer(trainer.dense_model(), trainer.random_source(), towers=2)
        kinds = [op.type for op in made.train.graph.get_operations()]
        assert kinds.count("_FusedMatMul") == 4


if __name__ == "__main__":
    absltest.main()
