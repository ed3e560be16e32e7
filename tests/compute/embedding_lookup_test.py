"""Embedding lookups outside of towers: which gathers, and equal steps."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import embedding_models, trainer
from towers.compute import embedding_lookup, tower, variable_getter
from towers.layout import parts

v1 = tf.compat.v1


def _template(model: Model) -> tower.Template:
    task = tower.TowerSpec(model, num_classes=(23, 23))
    features = tf.TensorSpec([6, 2], tf.int32)
    labels = tf.TensorSpec([6], tf.int32)
    return tower.trace(task, features, labels, create=lambda *a, **k: None)


class CutOutTest(tf.test.TestCase):
    def test_what_is_only_looked_up_is_not_read(self):
        before = _template(embedding_models.model())
        after = embedding_lookup.cut_out(before)
        gone = {f"product/{name}" for name in ("rows", "wide")}
        self.assertEqual(set(before.reads) - set(after.reads), gone)
        tables = [look_up.variable for look_up in after.look_ups]
        self.assertEqual(tables, ["product/rows", "product/rows", "product/wide"])
        self.assertEqual(after.flops, before.flops)

    def test_what_is_looked_up_by_what_a_variable_says_is_read(self):
        def product(x, nn):
            rows = nn.embedding(x[:, 0], nn.variable("rows", [23, 4]))
            late = nn.variable("late", [4, 5])
            return tf.reduce_sum(nn.embedding(tf.argmax(rows, 1), late), 1)

        model = dataclasses.replace(
            embedding_models.model(), blocks=(("product", product),)
        )
        after = embedding_lookup.cut_out(_template(model))
        self.assertEqual(
            [look_up.variable for look_up in after.look_ups], ["product/rows"]
        )
        self.assertEqual(set(after.reads), {"product/late"})

    def test_what_does_more_than_to_look_up_one_row_at_a_time_is_read(self):
        def product(x, nn):
            table = nn.variable("table", [6, 6])
            of_each = tf.gather(table, tf.math.floormod(x, 6), batch_dims=1)
            return tf.reduce_sum(of_each, 1)

        model = dataclasses.replace(
            embedding_models.model(), blocks=(("product", product),)
        )
        self.assertEmpty(embedding_lookup.cut_out(_template(model)).look_ups)

    def test_a_model_without_tables_stays_as_it_is(self):
        task = tower.TowerSpec(trainer.dense_model(), num_classes=5)
        features = tf.TensorSpec([6, 4, 4, 1], tf.uint8)
        labels = tf.TensorSpec([6], tf.int32)
        template = tower.trace(task, features, labels, create=lambda *a, **k: None)
        self.assertEqual(embedding_lookup.cut_out(template), template)


class RowsTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(None, 0, 1)
    def test_every_row_from_the_task_that_has_it(self, axis):
        """Wherever the table is: on this task, on another, or in parts on others."""
        values = np.arange(35, dtype=np.float32).reshape(7, 5)
        ids = np.array([[6, 0], [3, 6], [6, 1]], np.int32)
        look_up = variable_getter.VariableLookup("w", tf.bfloat16, "ids:0", "taken")
        with tf.Graph().as_default() as ids_of:
            v1.placeholder(tf.int32, ids.shape, "ids")
        nothing = dict(trainable=(), reads={}, loss="", gradients=(), statistics=())
        template = tower.Template(
            ids_of.as_graph_def(),
            **nothing,
            metrics={},
            parameters=0,
            look_ups=(look_up,),
        )
        with tf.Graph().as_default() as graph, v1.Session() as session:
            table = tf.constant(values)
            if axis is not None:
                sizes = [3, 2, 2] if axis == 0 else [3, 2]
                table = parts.Parts(tf.split(values, sizes, axis), axis)
            rows = embedding_lookup.rows(
                template,
                {"ids": tf.constant(ids)},
                {"w": table}.__getitem__,
                scope="tower_0/look_up",
                device="/device:CPU:0",
                host="/device:CPU:0",
            )["taken"]
            self.assertEqual(rows.dtype, tf.bfloat16)
            self.assertEqual(rows.shape, [3, 2, 5])
            taken = session.run(tf.cast(rows, tf.float32))
            kinds = [op.type for op in graph.get_operations()]
        np.testing.assert_array_equal(taken, values[ids])
        self.assertEqual("Unique" in kinds, axis is not None)


class TrainTest(parameterized.TestCase):
    def _trained(self, towers: int, **options):
        update = dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0)
        training = trainer.Trainer(
            embedding_models.model(),
            embedding_models.source(),
            towers=towers,
            batch_size=12 // towers,
            update=update,
            **options,
        )
        return training.start().steps(5)

    @parameterized.parameters(
        "parameter_server", "replicated", "distributed_replicated"
    )
    def test_towers_equal_one_that_reads_its_tables(self, mode):
        # A tower with several rounds per step reads tables.
        one_tower = self._trained(1, accumulate_steps=1)
        rounds = trainer.Trainer(
            embedding_models.model(),
            embedding_models.source(),
            batch_size=6,
            accumulate_steps=2,
            update=dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0),
        )
        self.assertNotEmpty(rounds.train.template.reads)
        self.assertLess(trainer.difference(one_tower, rounds.start().steps(5)), 1e-5)
        many = self._trained(3, variable_update=mode)
        self.assertLess(trainer.difference(one_tower, many), 1e-5)
