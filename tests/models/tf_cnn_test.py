"""Where tf_cnn_benchmarks' networks differ from those of the papers."""

import tensorflow as tf
from absl.testing import parameterized

import models
from models import layers

v1 = tf.compat.v1


def _built(name):
    """The graph of one image through a model, and its layers."""
    model = models.get(name)
    with tf.Graph().as_default() as graph:
        nn = layers.Layers(training=True, num_classes=11)
        model.run(tf.zeros([1, *model.inputs.shape]), nn)
    return graph, nn


def _count(graph, kind):
    return sum(op.type == kind for op in graph.get_operations())


class TfCnnTest(parameterized.TestCase):
    @parameterized.parameters(
        ("resnet20", -1, 0), ("resnet20_v2", 1, 1), ("resnet50_v2", 1, 1)
    )
    def test_rectifiers_and_normalisations(self, name, rectifiers, normalisations):
        (paper, _), (there, _) = _built(name), _built(f"tf_cnn_{name}")
        for kind, more in (
            ("Relu", rectifiers),
            ("FusedBatchNormV3", normalisations),
            ("Conv2D", 0),
        ):
            self.assertEqual(_count(there, kind) - _count(paper, kind), more, kind)

    @parameterized.parameters((20, 9, 1), (50, 16, 2))
    def test_constants_of_batch_norm_in_version_2(self, depth, units, inside):
        graph, nn = _built(f"tf_cnn_resnet{depth}_v2")
        norms = [o for o in graph.get_operations() if o.type == "FusedBatchNormV3"]
        epsilons = [round(norm.get_attr("epsilon"), 6) for norm in norms]
        # The stem's; then one before each unit and others inside; the classifier's.
        of_unit = [1e-3, *(inside * [1e-5])]
        self.assertEqual(epsilons, [1e-5] + units * of_unit + [1e-3])
        momenta = [statistic.momentum for statistic in nn.statistics[::2]]
        of_unit = [0.999, *(inside * [0.9])]
        self.assertEqual(momenta, [0.9] + units * of_unit + [0.999])
        with graph.as_default():
            scales = [v for v in v1.trainable_variables() if "gamma" in v.op.name]
        self.assertLen(scales, 1 + units * inside)

    def test_inception3_has_no_head(self):
        names = [name for name, _ in models.get("tf_cnn_inception3").blocks]
        with_head = [name for name, _ in models.get("inception3").blocks]
        self.assertEqual(names, [name for name in with_head if name != "auxiliary"])
