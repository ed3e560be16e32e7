"""The settings of the modes: what is changed, and the reduction they describe."""

import tensorflow as tf
from absl.testing import parameterized

from towers.gradients import exchange
from towers.gradients.exchange import GradientExchange

_DEVICES = ["/device:CPU:0"] * 2


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
