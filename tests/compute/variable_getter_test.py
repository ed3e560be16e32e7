"""What a model gets for the variables that it asks for."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.compute import variable_getter
from towers.layout import placeholders
from towers.layout.parts import Split

v1 = tf.compat.v1


class VariablesTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(tf.Graph().as_default())
        self.created = []

    def _variables(self, splits):
        def create(name, shape, initializer, **options):
            self.initializer = initializer
            self.created.append((name, shape.as_list(), options))

        return variable_getter.VariablePlaceholders(create, splits)

    def _get(self, variables, name, shape=None, *, reuse=None, **options):
        with v1.variable_scope(
            "", custom_getter=variables.get, use_resource=True, reuse=reuse
        ):
            return v1.get_variable(name, shape, **options)

    def test_a_placeholder_for_each(self):
        variables = self._variables({})
        first = self._get(variables, "a", [2])
        for reuse, shape in ((v1.AUTO_REUSE, [2]), (True, None)):
            self.assertIs(self._get(variables, "a", shape, reuse=reuse), first)
        self._get(variables, "b", [3], trainable=False)
        self.assertEqual(list(variables.reads), ["a", "b"])
        self.assertEqual(list(variables.trainable), ["a"])
        self.assertEqual(
            self.created,
            [("a", [2], {"trainable": True}), ("b", [3], {"trainable": False})],
        )

    def test_parts_come_joined(self):
        split = Split(2, 1)
        variables = self._variables({"a": split})
        whole = self._get(variables, "a", [2, 5])
        self.assertEqual(whole.shape, [2, 5])
        names = ["a/part_0", "a/part_1"]
        self.assertEqual(list(variables.trainable), names)
        parts = variables.parts[whole.name]
        self.assertEqual([p.shape.as_list() for p in parts], [[2, 3], [2, 2]])
        self.assertLen({part.device for part in parts}, 2)
        self.assertEqual(
            self.created, [("a", [2, 5], {"trainable": True, "split": split})]
        )

    def test_rows_are_looked_up_where_they_are(self):
        variables = self._variables({"a": Split(3)})
        table = self._get(variables, "a", [7, 2])
        ids = tf.constant([[6, 0, 3], [2, 5, 6]])
        rows = variables.lookup(ids, table)
        self.assertEqual(rows.shape, [2, 3, 2])
        gathers = [op for op in v1.get_default_graph().get_operations()]
        gathers = [op for op in gathers if op.type == "GatherV2" and op.device]
        self.assertEqual(
            [op.device for op in gathers],
            [part.device for part in variables.parts[table.name]],
        )
        values = np.arange(14.0).reshape(7, 2).astype(np.float32)
        graph_def = v1.get_default_graph().as_graph_def()
        for node in graph_def.node:
            node.device = ""
        with tf.Graph().as_default(), v1.Session() as session:
            (rows_found,) = tf.import_graph_def(graph_def, return_elements=[rows.name])
            pieces = {
                f"import/read/a/part_{k}:0": v
                for k, v in enumerate(np.split(values, [3, 5]))
            }
            rows_found = session.run(rows_found, pieces)
        np.testing.assert_array_equal(rows_found, values[[[6, 0, 3], [2, 5, 6]]])

    def test_fetched_parts_are_on_the_devices_that_share_them(self):
        variables = self._variables({"a": Split(2, 0, True), "b": Split(2)})
        for name, wanted in (
            ("a", [placeholders.shard(0), placeholders.shard(1)]),
            ("b", [placeholders.owner(0), placeholders.owner(1)]),
        ):
            whole = self._get(variables, name, [4, 2])
            devices = [part.device for part in variables.parts[whole.name]]
            self.assertEqual(devices, wanted)
        self.assertEqual(variables.owners, ["b/part_0", "b/part_1"])

    def test_other_tables_are_not_looked_up_here(self):
        variables = self._variables({"a": Split(2, 1)})
        ids = tf.constant([0])
        columns = self._get(variables, "a", [2, 5])
        self.assertIsNone(variables.lookup(ids, columns))
        self.assertIsNone(variables.lookup(ids, self._get(variables, "b", [2, 5])))

    def test_what_towers_cannot_repeat_is_refused(self):
        variables = self._variables({})
        with self.assertRaisesRegex(ValueError, "a part of a variable; give it an"):
            self._get(variables, "a/part_0", [2])
        for option, sentence in (
            ("regularizer", "belongs to the model's recipe"),
            ("constraint", "apply it to what get_variable returns"),
            ("partitioner", "the setting partition_bytes cuts"),
        ):
            with self.assertRaisesRegex(ValueError, f"{option} is not .*{sentence}"):
                self._get(variables, "a", [2], **{option: lambda *_, **__: [1]})
        with self.assertRaisesRegex(ValueError, "a model has no global step"):
            with v1.variable_scope("", custom_getter=variables.get, use_resource=True):
                v1.train.get_or_create_global_step()
        self._get(variables, "b", [2])
        share = {"reuse": v1.AUTO_REUSE}
        with self.assertRaisesRegex(ValueError, "is read in one dtype"):
            self._get(variables, "b", [2], dtype=tf.bfloat16, **share)
        with self.assertRaisesRegex(ValueError, r"'b' is \(2,\) .* as \(3,\); a"):
            self._get(variables, "b", [3], **share)
        with self.assertRaisesRegex(ValueError, "'b' is there already; give"):
            self._get(variables, "b", [2])
        with self.assertRaisesRegex(ValueError, "'c' is of shape <unknown>; give"):
            self._get(variables, "c")
        with self.assertRaisesRegex(ValueError, "'c': its initializer is a tensor"):
            self._get(variables, "c", initializer=tf.random.normal([2]))

    def test_names_that_operations_cannot_have(self):
        variables = self._variables({})
        self._get(variables, "a/W", [2])
        with self.assertRaisesRegex(ValueError, "'a/w': its name and 'a/W' differ"):
            self._get(variables, "a/w", [2])
        for name in ("a/", ""):
            with self.assertRaisesRegex(ValueError, "cannot be empty or end in /"):
                self._get(variables, name, [2])

    def test_slots_are_not_for_a_model(self):
        variables = self._variables({})
        weights = self._get(variables, "a", [2])
        average = tf.train.ExponentialMovingAverage(0.9)
        momentum = v1.train.MomentumOptimizer(0.1, 0.9)
        for slot, make in (
            ("ExponentialMovingAverage", lambda: average.apply([weights])),
            ("Momentum", lambda: momentum._zeros_slot(weights, "m", "Momentum")),
        ):
            sentence = f"^a model has no slots as {slot}; moving .* ema_decay, .* nn.st"
            with v1.variable_scope("", custom_getter=variables.get, use_resource=True):
                with self.assertRaisesRegex(ValueError, sentence):
                    make()

    def test_all_are_listed(self):
        variables = self._variables({"b": Split(2)})
        a, b = self._get(variables, "a", [2]), self._get(variables, "b", [4])
        c = self._get(variables, "c", [], trainable=False)
        listed = {"a": a, "b": b, "c": c}
        self.assertEqual(dict(variables.listed(trainable=False)), listed)
        self.assertEqual(list(dict(variables.listed(trainable=True))), ["a", "b"])
        self.assertEqual(b.op.name, "read/b")

    def test_sharing_what_is_not_there(self):
        with self.assertRaisesRegex(ValueError, "'a' is to be shared, and there is"):
            self._get(self._variables({}), "a", [2], reuse=True)
        # Evaluation shares the variables of training.
        evaluated = variable_getter.VariablePlaceholders(
            lambda *_, **__: None, {}, first=False
        )
        self._get(evaluated, "a", [2], reuse=True)

    def test_a_branch_reads_from_outside(self):
        variables = self._variables({})

        def branch():
            return self._get(variables, "a", [2], reuse=v1.AUTO_REUSE) * 2.0

        y = tf.cond(v1.placeholder(tf.bool, []), branch, branch)
        (read,) = variables.reads.values()
        self.assertIs(read.graph, v1.get_default_graph())
        self.assertIsNotNone(tf.gradients(y, read)[0])

    def test_an_initial_value_brings_its_shape(self):
        variables = self._variables({})
        wanted = np.full([2, 3], 5.0, np.float32)
        for name, value in (("a", wanted), ("b", tf.fill([2, 3], 5.0))):
            self.assertEqual(
                self._get(variables, name, initializer=value).shape, [2, 3]
            )
            self.assertEqual(self.created[-1][1], [2, 3])
            initial = self.initializer([2, 3], dtype=tf.float32)
            np.testing.assert_array_equal(tf.get_static_value(initial), wanted)
        self.assertEqual(self._get(variables, "c", initializer=1.0).shape, [])
