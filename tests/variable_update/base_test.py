"""What all modes have in common."""

import tensorflow as tf
from absl.testing import parameterized

from towers.gradients.exchange import GradientExchange
from towers.layout import placement
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

# Settings of each that are not the defaults.
_CHOICES = {
    "all_reduce_spec": "xring",
    "gradient_repacking": 2,
    "agg_small_grads_max_bytes": 1024,
    "max_staleness": 1,
    "staleness_lr": True,
    "variable_placement": "round_robin",
    "partition_bytes": 64,
    "sufficient_factors": False,
    "compact_gradient_transfer": tf.bfloat16,
    "sparse_to_dense_grads": True,
}


class ModeTest(parameterized.TestCase):
    @parameterized.product(name=list(VARIABLE_UPDATES), choice=list(_CHOICES))
    def test_what_a_mode_does_not_read_is_refused(self, name, choice):
        make, exchange = (
            VARIABLE_UPDATES[name],
            GradientExchange(**{choice: _CHOICES[choice]}),
        )
        where = placement.local(2, kind="cpu")
        with tf.Graph().as_default():
            if choice in make.reads:
                self.assertEqual(make(where, exchange=exchange).exchange, exchange)
                return
            with self.assertRaisesRegex(ValueError, f"{choice}: {make.__name__}"):
                make(where, exchange=exchange)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_a_variable_is_made_once(self, name):
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES[name](placement.local(3, kind="cpu"))
            names = []
            for _ in range(2):  # the second tower asks for the same variable
                mode.create("v", tf.TensorShape([2]), None, trainable=True)
                names.append((mode.held("v"), *v1.global_variables()))
            first, second = names
            self.assertEqual(list(map(id, first)), list(map(id, second)))
            replicas = len(mode.replicas.get("v", ()))
            self.assertIn(replicas, (0, 3))
            self.assertLessEqual(replicas, len(first) - 1)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_only_large_variables_may_have_factors(self, name):
        shapes = {"small": [256, 255], "large": [256, 256]}
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES[name](placement.local(2, kind="cpu"))
            for variable, shape in shapes.items():
                mode.create(variable, tf.TensorShape(shape), None, trainable=True)
            large = {1: mode.variables["large"].device}
            wanted = large if "sufficient_factors" in mode.reads else {}
            self.assertEqual(mode.factored(list(shapes)), wanted)
