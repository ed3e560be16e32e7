"""The settings of the modes: what is changed, and the reduction they describe."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graph_test_case
from towers.gradients import exchange, reduction
from towers.gradients.exchange import GradientExchange

_DEVICES = ["/device:CPU:0"] * 2
_SHAPES = [(3,), (5, 4), (1,), (7,), (2, 2, 2)]


class ExchangeTest(tf.test.TestCase, parameterized.TestCase):
    def test_what_is_changed(self):
        self.assertEqual(exchange.DEFAULT.changed(), [])
        changed = GradientExchange(
            agg_small_grads_max_bytes=3, staleness_lr=True
        ).changed()
        self.assertEqual(changed, ["agg_small_grads_max_bytes", "staleness_lr"])

    @parameterized.parameters(
        ({},),
        ({"all_reduce_spec": "xring"},),
        ({"gradient_repacking": 2},),
        ({"agg_small_grads_max_bytes": 64, "agg_small_grads_max_group": 2},),
        ({"compact_gradient_transfer": tf.bfloat16},),
    )
    def test_every_setting_adds_the_shares(self, settings):
        with tf.Graph().as_default():
            reduce_all = GradientExchange(**settings).reduce_all(_DEVICES)
            shares = [[tf.fill([n], 1.0), tf.fill([n], 2.0)] for n in (4, 6, 100)]
            totals = reduce_all(shares, [_DEVICES] * 3)
            with tf.compat.v1.Session() as session:
                sums = session.run(totals)
        for size, copies in zip((4, 6, 100), sums):
            for copy in copies:
                self.assertAllEqual(copy, [3.0] * size)

    def test_small_gradients_go_together(self):
        reduce_all = GradientExchange(
            agg_small_grads_max_bytes=64, agg_small_grads_max_group=2
        ).reduce_all(_DEVICES)
        with tf.Graph().as_default() as graph:
            shares = [[tf.ones([n])] * 2 for n in (4, 6, 8, 100)]
            reduce_all(shares, [_DEVICES] * 4)
            sums = [op.outputs[0] for op in graph.get_operations() if op.type == "AddN"]
        self.assertEqual([total.shape[0] for total in sums], [10, 100, 8])


class PackingTest(parameterized.TestCase):
    @parameterized.product(
        packed=(
            ("equal_packs", 1),
            ("equal_packs", 3),
            ("equal_packs", 50),
            ("small_packs", 32, 2),
            ("small_packs", 9**9, 3),
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
            pack = getattr(exchange, kind)(*numbers, reduce)
            means = pack(shares, [devices] * len(shares))
            actual = graph_test_case.run_on_cpus(means)
        for value, copies in zip(values, actual):
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
            exchange.equal_packs(2, reduce)(shares, [["/device:CPU:0"]] * 5)
            self.assertEqual(calls, [20, 19])
            calls.clear()
            exchange.small_packs(32, 2, reduce)(shares, [["/device:CPU:0"]] * 5)
            self.assertEqual(calls, [20, 4, 15])
            # Where all gradients are sparse there is nothing to pack.
            self.assertEqual(exchange.equal_packs(2, reduce)([], []), [])
            self.assertEqual(exchange.small_packs(32, 2, reduce)([], []), [])
