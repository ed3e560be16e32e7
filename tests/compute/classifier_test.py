"""A sharded classifier against TensorFlow's softmax on the joined logits."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import logits
from models.logits import Product
from tests import arrays
from towers.compute import classifier
from towers.layout.parts import Split
from towers.layout.shards import Shards

v1 = tf.compat.v1

_ROWS, _FEATURES = 6, 4


class _Both:
    """The same layer, whole and in pieces, with the placeholders that feed it."""

    def __init__(self, classes, shards, *, transposed, bias, scale, dtype=tf.float32):
        rng = np.random.default_rng(classes)
        self.x = tf.constant(rng.normal(size=(_ROWS, _FEATURES)), dtype)
        shape = (classes, _FEATURES) if transposed else (_FEATURES, classes)
        self.kernel = tf.constant(scale * rng.normal(size=shape), dtype)
        self.bias = tf.constant(rng.normal(size=classes), dtype) if bias else None
        self.labels = tf.constant(rng.integers(0, classes, _ROWS), tf.int64)
        split = Split(shards)
        sizes = [size for _, size in split.ranges(classes)]
        kernels = tf.split(self.kernel, sizes, 0 if transposed else 1)
        # One device is enough here; `copy_tower` assigns the devices.
        y = tf.matmul(self.x, self.kernel, transpose_b=transposed)
        if bias:
            y = tf.nn.bias_add(y, self.bias)
        parts = {self.kernel.name: kernels}
        if bias:
            parts[self.bias.name] = tf.split(self.bias, sizes)
        self.whole = y
        nn = type("Noted", (), {})()
        nn.products = [Product(y, self.x, self.kernel, self.bias, transposed)]
        self.spread = classifier.shard_logits(y, nn, parts, Shards(shards))

    @property
    def weights(self) -> list[tf.Tensor]:
        return [t for t in (self.x, self.kernel, self.bias) if t is not None]


def _run(tensors):
    """On one device, whatever the operations say."""
    config = v1.ConfigProto(allow_soft_placement=True)
    graph_def = v1.get_default_graph().as_graph_def()
    for node in graph_def.node:
        node.device = ""
    names = [[t.name for t in group] for group in tensors]
    flat = [name for group in names for name in group]
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        imported = tf.import_graph_def(graph_def, return_elements=flat, name="")
        values = iter(session.run(imported))
    return [[next(values) for _ in group] for group in names]


class ShardedClassifierTest(parameterized.TestCase):
    @parameterized.product(
        sizes=((8, 2), (7, 3), (5, 5)),
        transposed=(False, True),
        bias=(False, True),
        scale=(1.0, 300.0),
        smoothing=(0.0, 0.2),
    )
    def test_loss_and_gradients(self, sizes, transposed, bias, scale, smoothing):
        with tf.Graph().as_default():
            both = _Both(*sizes, transposed=transposed, bias=bias, scale=scale)
            weights = tf.range(1.0, _ROWS + 1.0)
            whole = logits.cross_entropy(both.whole, both.labels, smoothing)
            pieces = both.spread.cross_entropy(both.labels, smoothing)
            (whole_loss, *ones), (other, *others) = _run(
                [
                    [loss, *tf.gradients(tf.reduce_sum(loss * weights), both.weights)]
                    for loss in (whole, pieces)
                ]
            )
        arrays.assert_close(other, whole_loss, rtol=1e-5, atol=1e-5)
        for actual, wanted in zip(others, ones, strict=True):
            bound = 1e-5 * np.abs(wanted).max()
            arrays.assert_close(actual, wanted, rtol=1e-7, atol=bound)

    @parameterized.parameters((8, 2), (7, 3))
    def test_who_is_among_the_best(self, classes, shards):
        with tf.Graph().as_default():
            both = _Both(classes, shards, transposed=False, bias=False, scale=0.0)
            # equal logits: each class is among the best
            even = both.spread.in_top_k(both.labels, 1)
            both = _Both(classes, shards, transposed=False, bias=True, scale=1.0)
            pairs = [
                [
                    both.spread.in_top_k(both.labels, k),
                    tf.math.in_top_k(predictions=both.whole, targets=both.labels, k=k),
                ]
                for k in range(1, classes + 1)
            ]
            [even], *spread_ranks = _run([[even], *pairs])
        self.assertTrue(even.all())
        self.assertGreater(len({str(pair[0]) for pair in spread_ranks}), 2)
        for pair in spread_ranks:
            arrays.assert_same_bits(*pair)

    @parameterized.parameters((8, 2), (7, 3))
    def test_the_class_of_the_largest_logit(self, classes, shards):
        with tf.Graph().as_default():
            even = _Both(classes, shards, transposed=False, bias=False, scale=0.0)
            both = _Both(classes, shards, transposed=False, bias=True, scale=1.0)
            [[first], [actual, wanted]] = _run(
                [
                    [even.spread.argmax()],
                    [both.spread.argmax(), tf.argmax(both.whole, 1)],
                ]
            )
        self.assertFalse(first.any())
        self.assertGreater(len({*wanted}), 2)
        arrays.assert_same_bits(actual, wanted)

    def test_a_logit_that_is_no_number_is_nowhere_among_the_best(self):
        with tf.Graph().as_default():
            both = _Both(6, 2, transposed=False, bias=True, scale=np.nan)
            ((actual,),) = _run([[both.spread.in_top_k(both.labels, 5)]])
        self.assertFalse(actual.any())

    def test_a_row_with_a_logit_that_is_no_number_is_told_nowhere(self):
        """As `tf.math.in_top_k` has it: also where the label's own logit is one."""
        with tf.Graph().as_default():
            both = _Both(6, 2, transposed=False, bias=True, scale=1.0)
            bias = [piece.bias for piece in both.spread._weights]
            broken = bias[1] + tf.constant([0.0, 0.0, np.nan])
            weights = [both.spread._weights[0]]
            weights.append(both.spread._weights[1]._replace(bias=broken))
            spread = classifier.ShardedLogits(
                both.spread._rows, weights, both.spread.shape, transposed=False
            )
            first = tf.zeros_like(both.labels)
            ((actual,),) = _run([[spread.in_top_k(first, 6)]])
        self.assertFalse(actual.any())

    def test_16_bits_leave_in_16_bits_and_lose_in_32(self):
        with tf.Graph().as_default():
            options = dict(transposed=False, bias=True, scale=1.0, dtype=tf.bfloat16)
            both = _Both(7, 2, **options)
            loss = both.spread.cross_entropy(both.labels)
            self.assertEqual(loss.dtype, tf.float32)
            gradients = tf.gradients(loss, both.weights)
            self.assertEqual({g.dtype for g in gradients}, {tf.bfloat16})

    def test_is_not_gathered_by_accident(self):
        with tf.Graph().as_default():
            both = _Both(6, 2, transposed=False, bias=True, scale=1.0)
            self.assertEqual(both.spread.shape.as_list(), [_ROWS, 6])
            for read in (
                tf.nn.softmax,
                lambda y: y - 1.0,
                lambda y: 2.0 * y,
                lambda y: y[:, 0],
            ):
                with self.assertRaisesRegex(ValueError, "as one tensor; let it ask"):
                    read(both.spread)
