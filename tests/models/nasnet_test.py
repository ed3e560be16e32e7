"""NASNet-A: published sizes, its cells, drop path, and the auxiliary head."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import layers, model, nasnet
from tests.models.placeholder_getter import PlaceholderGetter
from towers.compute import flops

v1 = tf.compat.v1


def _count(variables):
    return sum(v.shape.num_elements() for v in variables)


class SizeTest(parameterized.TestCase):
    @parameterized.parameters(
        # Table 1 of the paper has 3.3 million parameters.  Keras counts 5,289,978 and
        # 88,753,150 that are trained, TF-slim's README 564 million and 23.8 billion
        # multiply-adds; all without the auxiliary head.
        (
            "nasnet_cifar10",
            10,
            3_346_538,
            0.544,
            "cell6 32 192, cell12 16 384, cell18 8 768",
        ),
        ("nasnet", 1000, 5_289_978, 0.564, "stem2 28 88, cell8 14 528, cell12 7 1056"),
        ("nasnetlarge", 1000, 88_753_150, 23.783, "stem2 42 336, cell18 11 4032"),
    )
    def test_published_size(self, name, classes, parameters, multiply_adds, wanted):
        network, shapes, reads = models.get(name), {}, PlaceholderGetter()
        with (
            tf.Graph().as_default() as graph,
            v1.variable_scope("", custom_getter=reads),
        ):
            nn = layers.Layers(training=True, num_classes=classes)
            x = tf.zeros([1, *network.inputs.shape])
            for block in network.blocks:
                x = model.run_blocks([block], x, nn)
                main = x[0] if isinstance(x, tuple) else x
                shapes[block[0]] = " ".join(map(str, main.shape[2:]))
        variables = reads.trainable
        main = [v for k, v in variables.items() if not k.startswith("auxiliary/")]
        self.assertEqual(_count(main), parameters)
        main = flops.of_graph(graph) - flops.of_graph(graph, "auxiliary/")
        self.assertEqual(round(main / 2e9, 3), multiply_adds)
        for row in wanted.split(", "):
            block, _, shape = row.partition(" ")
            self.assertEqual(shapes[block], shape, block)

    def test_the_head_is_before_the_last_reduction(self):
        for name in ("nasnet_cifar10", "nasnet", "nasnetlarge"):
            names = [block for block, _ in models.get(name).blocks]
            place = names.index("auxiliary")
            self.assertEqual(names[place + 1], "reduction2")


class CellTest(parameterized.TestCase):
    def _operations(self, rate=0.5, **options):
        nn = layers.Layers(training=True, num_classes=10, **options)
        nn.progress = 0.5
        return nasnet._Operations(nn, nasnet.CIFAR, channels=4, rate=rate)

    def test_halving_takes_every_pixel_once_and_no_other(self):
        """Those of even rows and columns, and those of odd ones."""
        x = np.random.default_rng(0).uniform(size=(1, 6, 6, 2)).astype(np.float32)
        with tf.Graph().as_default(), v1.Session() as session:
            y = self._operations().halved(tf.constant(x))
            self.assertEqual(y.shape, [1, 3, 3, 4])
            first, second = (
                op.inputs[0]
                for op in v1.get_default_graph().get_operations()
                if op.type == "Conv2D"
            )
            first, second = session.run([first, second])
        np.testing.assert_array_equal(first, x)
        np.testing.assert_array_equal(second[:, :-1, :-1], x[:, 1:, 1:])
        self.assertFalse(second[:, -1].any() or second[:, :, -1].any())

    def test_drop_path_takes_whole_examples_and_keeps_the_mean(self):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.ones([4000, 2, 2, 3])
            y = session.run(self._operations().drop_path(x)).reshape(4000, -1)
        # At half of the training the rate is half of 0.5.
        np.testing.assert_allclose(np.unique(y), [0.0, 1 / 0.75], rtol=1e-6)
        np.testing.assert_array_equal(y.min(1), y.max(1))
        self.assertAlmostEqual(y.mean(), 1.0, delta=0.05)

    def test_nothing_is_dropped_at_the_start_or_in_evaluation(self):
        with tf.Graph().as_default(), v1.Session() as session:
            x = tf.ones([100, 1, 1, 1])
            start = self._operations()
            start.nn.progress = tf.constant(0.0)
            np.testing.assert_array_equal(
                session.run(start.drop_path(x)), np.ones([100, 1, 1, 1])
            )
            evaluated = self._operations()
            evaluated.nn.training = False
            self.assertIs(evaluated.drop_path(x), x)

    def test_rates_grow_from_cell_to_cell(self):
        rates = [
            block.keywords["rate"]
            for _, block in nasnet.nasnet(nasnet.LARGE).blocks
            if "rate" in block.keywords
        ]
        np.testing.assert_allclose(rates, 0.3 * np.arange(1, 23) / 22)

    @parameterized.parameters((True,), (False,))
    def test_what_the_cell_after_a_reduction_reads(self, skips):
        nn = layers.Layers(training=True, num_classes=10)
        with tf.Graph().as_default():
            net, before = tf.zeros([1, 8, 8, 4]), tf.zeros([1, 8, 8, 4])
            _, second = nasnet.cell(
                *((net, before), nn),
                kind=nasnet._REDUCTION._replace(skips=skips),
                size=nasnet.CIFAR,
                channels=4,
                rate=0.0,
            )
        self.assertIs(second, before if skips else net)


class LossTest(parameterized.TestCase):
    def test_adds_the_head_and_smooths_the_labels(self):
        main, head = np.random.default_rng(0).normal(size=(2, 3, 5)).astype(np.float32)
        labels = np.array([1, 0, 4])
        with tf.Graph().as_default(), v1.Session() as session:
            outputs = tf.constant(main), tf.constant(head)
            loss = nasnet.nasnet(nasnet.MOBILE).loss(outputs, tf.constant(labels))
            metrics = nasnet.metrics(outputs, tf.constant(labels))
            loss, metrics = session.run([loss, metrics])
        wanted = 0.9 * np.eye(5)[labels] + 0.1 / 5
        parts = [
            -(wanted * (y - np.log(np.exp(y).sum(1, keepdims=True)))).sum(1)
            for y in (main, head)
        ]
        np.testing.assert_allclose(loss, parts[0] + 0.4 * parts[1], rtol=1e-5)
        best = np.argmax(main, 1) == labels
        np.testing.assert_array_equal(metrics["top_1_accuracy"], best)
