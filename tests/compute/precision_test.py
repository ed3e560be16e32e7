"""bfloat16 compute: float32 variables, close to float32, equal over towers."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from tests import trainer
from towers.compute import precision

v1 = tf.compat.v1
# bfloat16 keeps 8 bits of the mantissa.
_BOUND = 2.0**-6


def _trained(model, *, towers=1, steps=10, **options):
    training = trainer.Trainer(
        model,
        trainer.random_source(shape=(8, 8, 1), num_classes=10),
        towers=towers,
        batch_size=24 // towers,
        **options,
    ).start()
    return training, training.steps(steps)


class PrecisionTest(parameterized.TestCase):
    @parameterized.parameters("lenet", "mlp")
    def test_bfloat16_is_close_to_float32_and_not_equal(self, name):
        _, wide = _trained(models.get(name), steps=3)
        training, narrow = _trained(models.get(name), steps=3, dtype=tf.bfloat16)
        self.assertEqual(
            {v.dtype for v in training.train.saved.values()}, {tf.float32, tf.int64}
        )
        difference = trainer.difference(wide, narrow)
        self.assertGreater(difference, 1e-5)
        self.assertLess(difference, 0.2)

    @parameterized.product(mode=("parameter_server", "replicated"), towers=(2, 4))
    def test_towers_equal_one_tower_to_the_rounding_of_bfloat16(self, mode, towers):
        model = models.get("mlp")
        _, one_tower = _trained(model, steps=1, dtype=tf.bfloat16)
        _, many = _trained(
            model, towers=towers, steps=1, dtype=tf.bfloat16, variable_update=mode
        )
        self.assertLess(trainer.difference(one_tower, many), _BOUND)

    def test_weights_are_cast_once_for_all_towers(self):
        training, _ = _trained(models.get("mlp"), towers=4, steps=0, dtype=tf.bfloat16)
        graph = training.train.graph
        casts = [
            op
            for op in graph.get_operations()
            if op.type == "Cast"
            and op.inputs[0].op.name.startswith("variables/read/")
            and op.inputs[0].dtype == tf.float32
        ]
        self.assertLen(casts, len(training.train.template.trainable))

    def test_gradients_travel_in_16_bits_and_are_added_in_32(self):
        training, _ = _trained(models.get("mlp"), towers=2, steps=0, dtype=tf.bfloat16)
        dtypes = {g.dtype for tower in training.train.towers for g in tower.gradients}
        self.assertEqual(dtypes, {tf.bfloat16})
        sums = [
            op
            for op in training.train.graph.get_operations()
            if op.name.startswith("reduction") and op.type == "AddN"
        ]
        self.assertEqual({op.outputs[0].dtype for op in sums}, {tf.float32})

    def test_a_variable_is_read_in_one_dtype(self):
        def torn(x, nn):
            wide = v1.get_variable("w", [16, 5], tf.float32)
            with v1.variable_scope(v1.get_variable_scope(), reuse=True):
                narrow = v1.get_variable("w", [16, 5], tf.bfloat16)
            return nn.flatten(x) @ wide + tf.cast(narrow, tf.float32)[0]

        model = trainer.dense_model()
        object.__setattr__(model, "blocks", (("torn", torn),))
        with self.assertRaisesRegex(ValueError, "read as bfloat16 and as float32"):
            trainer.Trainer(model)

    def test_every_dtype_trains(self):
        for name, dtype in precision.COMPUTE_DTYPES.items():
            _, values = _trained(models.get("mlp"), steps=2, dtype=dtype)
            for value in values.values():
                self.assertTrue(np.all(np.isfinite(value)), name)
