"""The layers of a traced model know what the tower's spec says."""

import dataclasses

import tensorflow as tf

from models.layers import Rows
from tests import stateful_models, trainer
from towers.compute import tower_spec
from towers.compute.sync_batch_norm import StatisticsExchanges
from towers.compute.variable_getter import VariablePlaceholders
from towers.data import nests


class NewLayersTest(tf.test.TestCase):
    def _layers(self, task):
        variables = VariablePlaceholders(lambda *_, **options: None, {})
        with tf.Graph().as_default():
            features = nests.batch_of(task.model.inputs.features, 2)
            batch = nests.batch_placeholders(features, ())
            return tower_spec.new_layers(task, batch, variables, StatisticsExchanges())

    def test_rows(self):
        plain = tower_spec.TowerSpec(trainer.dense_model(), 5)
        self.assertIsNone(self._layers(plain).rows)
        stateful = tower_spec.TowerSpec(stateful_models.one(), 5)
        self.assertEqual(self._layers(stateful).rows, Rows(0, 1))
        whole = dataclasses.replace(stateful, rows=Rows(8, 6))
        self.assertEqual(self._layers(whole).rows, Rows(8, 6))

    def test_dtype_and_training(self):
        model = trainer.dense_model()
        nn = self._layers(tower_spec.TowerSpec(model, 5, dtype=tf.bfloat16))
        self.assertEqual((nn.dtype, nn.training), (tf.bfloat16, True))
        self.assertEqual(nn.progress.dtype, tf.float32)
        nn = self._layers(tower_spec.TowerSpec(model, 5, training=False))
        self.assertEqual((nn.training, nn.progress), (False, 1.0))
