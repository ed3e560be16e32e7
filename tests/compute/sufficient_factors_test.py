"""Gradients of dense layers as factors: when they are used, and their sums."""

import contextlib
import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graph_test_case, trainer
from towers.compute import nodes, sufficient_factors
from towers.compute.sufficient_factors import Factors
from towers.layout import processor
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_WIDE = (512, 256)  # a matrix large enough for factors
_PS = "/job:ps/task:0/device:CPU:0"
_GPU = "/job:worker/task:0/device:GPU:0"
_TAKES = [n for n, m in VARIABLE_UPDATES.items() if "sufficient_factors" in m.reads]


def _product(rows, shape=_WIDE, device="/device:CPU:0", turned=(True, False)):
    """A gradient that is a product, of so many examples."""
    sizes = [[rows, n] if t else [n, rows] for n, t in zip(shape, (turned[0], True))]
    if turned[1]:
        sizes[1].reverse()
    with tf.device(device):
        left, right = (v1.placeholder(tf.float32, size) for size in sizes)
        return tf.matmul(left, right, transpose_a=turned[0], transpose_b=turned[1])


def _wide_model():
    """Three dense layers, the second of which is large."""

    def hidden(x, nn):
        return nn.dense(nn.flatten(x), _WIDE[0], activation=tf.nn.relu)

    def wide(x, nn):
        return nn.dense(x, _WIDE[1], activation=tf.nn.relu)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return trainer.model_of(hidden, wide, logits, name="wide")


def _wide(towers=3, batch_size=4, **options):
    return trainer.Trainer(
        _wide_model(), towers=towers, batch_size=batch_size, **options
    )


class SufficientFactorsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tf.Graph().as_default())

    @parameterized.parameters(
        # On one CPU: a tower's factors against the size of its gradient.
        dict(rows=170, count=4),
        dict(rows=171, count=4, taken=False),
        # On other devices: the factors of all towers together.
        dict(rows=42, count=4, to=_PS),
        dict(rows=43, count=4, to=_PS, taken=False),
        dict(rows=42, count=4, device=_GPU),
        dict(rows=43, count=4, device=_GPU, taken=False),
        # A single tower's gradient is neither added nor sent, except over a network.
        dict(rows=4, count=1, taken=False),
        dict(rows=4, count=1, to=_PS),
        # On a CPU the products take longer than on GPUs.
        dict(rows=32, count=2, device=_GPU, to=_PS),
        dict(rows=33, count=2, device=_GPU, to=_PS, taken=False),
        dict(rows=33, count=2, device=_GPU, to=_PS.replace("CPU", "GPU")),
        # A batch of unknown size.
        dict(rows=None, count=2, taken=False),
    )
    def test_where_they_are_less(self, rows, count, *, to="", taken=True, **how):
        gradient = _product(rows, **how)
        towers = [gradient.device] * count
        factors = sufficient_factors.of(gradient, to or gradient.device, towers)
        self.assertEqual(isinstance(factors, Factors), taken)
        self.assertIs(sufficient_factors.dense(factors), gradient)

    @parameterized.parameters((85, Factors), (86, tf.Tensor))
    def test_towers_of_several_tasks_give_the_same_form(self, rows, form):
        """Also those on the variable's task, where more rows would do."""
        towers = [f"/job:worker/task:{k}/device:CPU:0" for k in range(2)]
        for tower in towers:
            gradient = _product(rows, device=tower)
            self.assertIsInstance(
                sufficient_factors.of(gradient, towers[0], towers), form
            )

    def test_of_a_pointwise_convolution(self):
        product = _product(2)
        gradient = tf.reshape(tf.reshape(product, [-1]), [1, 1, *_WIDE])
        factors = sufficient_factors.of(
            gradient, gradient.device, [gradient.device] * 3
        )
        self.assertIs(factors.whole, gradient)
        self.assertIs(factors.left, product.op.inputs[0])

    def test_other_gradients_stay_as_they_are(self):
        product = _product(2)
        for other in (
            None,
            product + 1.0,
            tf.IndexedSlices(product, tf.range(512), [1000, 256]),
        ):
            towers = ["/device:CPU:0"] * 3
            self.assertIs(sufficient_factors.of(other, "/device:CPU:0", towers), other)
            self.assertIs(sufficient_factors.dense(other), other)


class SummedTest(parameterized.TestCase):
    @parameterized.product(
        turned=list(itertools.product((False, True), repeat=2)),
        dtype=[tf.float32, tf.bfloat16],
    )
    def test_is_the_sum_of_the_products(self, turned, dtype):
        """Rounded once if the factors are in 16 bits."""
        if dtype == tf.bfloat16 and not processor.has("avx512f"):
            self.skipTest(
                "TensorFlow's products in bfloat16 are rounded more than once"
            )
        rng = np.random.default_rng(0)
        with tf.Graph().as_default():
            shares = []
            for k in (1, 2, 3):
                left, right = rng.normal(size=(k, 5)), rng.normal(size=(k, 7))
                left, right = left if turned[0] else left.T, right.T
                right = right if turned[1] else right.T
                with tf.device(f"/device:CPU:{k}"):
                    sides = [tf.cast(tf.constant(s), dtype) for s in (left, right)]
                    how = dict(transpose_a=turned[0], transpose_b=turned[1])
                    product = tf.matmul(*sides, **how)
                    whole = tf.reshape(product, [1, 1, 5, 7])
                    shares.append(Factors(*sides, whole))
            total = sufficient_factors.summed(shares, "/device:CPU:4")
            self.assertEqual(total.device, "/device:CPU:4")
            wide = [
                tf.matmul(*(tf.cast(s, tf.float32) for s in share[:2]), **how)
                for share in shares
            ]
            total, wide = graph_test_case.run_on_cpus((total, wide))
        self.assertEqual((total.dtype, total.shape), (np.float32, (1, 1, 5, 7)))
        rounded = sum(wide).astype(dtype.as_numpy_dtype).astype("f4")
        np.testing.assert_allclose(total[0, 0], rounded, rtol=1e-5, atol=1e-6)

    @parameterized.parameters((_PS, tf.float32), (_GPU, tf.float16))
    def test_no_cpu_multiplies_in_the_16_bits_of_a_gpu(self, device, dtype):
        with tf.Graph().as_default(), tf.device(_GPU):
            sides = [tf.cast(tf.ones([2, size]), tf.float16) for size in _WIDE]
            product = tf.matmul(*sides, transpose_a=True)
            share = Factors(*sides, product)
            total = sufficient_factors.summed([share] * 3, device)
            while total.op.type != "MatMul":
                total = total.op.inputs[0]
        self.assertEqual((total.dtype, total.device), (dtype, device))

    def test_a_layers_cross_the_network_in_two_transfers_per_host(self):
        with tf.Graph().as_default() as graph:
            shares, hosts = [], []
            for k in range(6):
                task = f"/job:worker/task:{k // 3}"
                hosts.append(f"{task}/device:CPU:0")
                device = f"{task}/device:GPU:{k % 3}"
                gradient = _product(2, device=device)
                shares.append(sufficient_factors.of(gradient, _PS, [device] * 6))
            total = sufficient_factors.summed(shares, _PS, hosts)
            needed = nodes.needed_by(
                {node.name: node for node in graph.as_graph_def().node}, [total.name]
            )
            for share in shares:
                self.assertNotIn(share.whole.op.name, needed)
            received = {
                tensor.name: tensor.shape.as_list()
                for op in graph.get_operations()
                for tensor in op.inputs
                if op.device == _PS != tensor.device
            }
        wanted = [[6, size] for size in _WIDE]
        self.assertCountEqual(received.values(), wanted * 2)


class TrainedTest(parameterized.TestCase):
    @parameterized.parameters(
        *(dict(mode=name) for name in _TAKES),
        dict(mode="parameter_server", at_a_time=2),
        dict(mode="parameter_server", batch_norm="sync"),
        dict(mode="parameter_server", dtype=tf.bfloat16, steps=1, bound=0.01),
    )
    def test_a_step_is_that_of_dense_gradients(
        self, mode, *, steps=4, bound=1e-6, **options
    ):
        """And makes no large product on a tower."""
        values = {}
        with contextlib.ExitStack() as stack:
            together = VARIABLE_UPDATES[mode].together
            for taken in (True, False):
                how = {} if together else {"max_staleness": 0}
                training = _wide(
                    variable_update=mode,
                    exchange=dict(sufficient_factors=taken, **how),
                    **options,
                )
                stack.callback(training.session.close)
                kinds = [
                    [isinstance(gradient, Factors) for gradient in tower.gradients]
                    for tower in training.train.towers
                ]
                # On one device, gradients of asynchronous towers are neither added nor
                # sent.
                as_factors = taken and together
                self.assertEqual({sum(flags) for flags in kinds}, {int(as_factors)})
                if as_factors:
                    self._check_products(training.train)
                values[taken] = training.start().steps(steps)
        self.assertLess(trainer.difference(values[True], values[False]), bound)

    def _check_products(self, train):
        known = {n.name: n for n in train.graph.as_graph_def().node}
        needed = nodes.needed_by(known, [train.train_op.name])
        for tower in train.towers:
            [factors] = [g for g in tower.gradients if isinstance(g, Factors)]
            self.assertNotIn(factors.whole.op.name, needed)
            self.assertIn(factors.left.op.name, needed)

    @parameterized.parameters(1, 2, 4)
    def test_a_step_is_that_of_one_tower_on_the_joined_batch(self, towers):
        values = [
            _wide(towers=count, batch_size=16 // count).start().steps(5)
            for count in (towers, 1)
        ]
        self.assertLess(trainer.difference(*values), 2e-6)

    @parameterized.parameters(
        dict(accumulate_steps=2),
        dict(xla_compile=True),
        dict(variable_update="replicated"),
        dict(variable_update="independent"),
    )
    def test_where_gradients_are_not_products_they_stay(self, **options):
        with mock.patch.object(sufficient_factors, "_are_less", lambda *_: True):
            training = _wide(**options)
        gradients = training.train.towers[0].gradients
        wide = training.train.template.trainable.index("wide/dense/kernel")
        self.assertIsInstance(gradients[wide], tf.Tensor)
        training.start().steps(1)
