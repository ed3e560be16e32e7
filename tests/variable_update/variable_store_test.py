"""One copy of the variables: initial values, places, reads."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.compute import nodes
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update import variable_store

v1 = tf.compat.v1


class SeededTest(parameterized.TestCase):
    def _values(self, name, initializer, seed=1, before=0):
        with tf.Graph().as_default():
            for _ in range(before):
                tf.constant(0)
            initializer_made = variable_store.seeded(initializer, name, seed)
            variable = v1.get_variable(name, [3, 4], initializer=initializer_made)
            with v1.Session() as session:
                session.run(variable.initializer)
                return session.run(variable)

    @parameterized.parameters(
        (None,),
        (v1.truncated_normal_initializer(stddev=0.1),),
        (v1.glorot_normal_initializer,),
        (tf.keras.initializers.HeNormal(),),
    )
    def test_values_follow_the_name_and_the_seed_alone(self, initializer):
        first = self._values("a", initializer)
        arrays.assert_same_bits(first, self._values("a", initializer, before=5))
        self.assertTrue(np.any(first != self._values("b", initializer)))
        self.assertTrue(np.any(first != self._values("a", initializer, seed=2)))

    def test_a_seed_of_the_model_is_kept(self):
        initializer = v1.random_normal_initializer(seed=3)
        self.assertIs(variable_store.seeded(initializer, "a", 1), initializer)


class CopyTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("least_loaded", "0122"), ("round_robin", "0120"), ("one", "0000")
    )
    def test_where_variables_go(self, variable_placement, wanted):
        devices = [f"/device:CPU:{i}" for i in range(3)]
        with tf.Graph().as_default():
            copy = variable_store.VariableStore(
                [devices], seed=1, variable_placement=variable_placement
            )
            for name, size in (("a", 40), ("b", 30), ("c", 10), ("d", 10)):
                copy.create(name, tf.TensorShape([size]), None, trainable=True)
            places = [copy.variables[name].device[-1] for name in "abcd"]
        self.assertEqual("".join(places), wanted)

    def test_stages_share_what_their_devices_hold(self):
        devices = [f"/device:CPU:{i}" for i in range(2)]
        with tf.Graph().as_default():
            copy = variable_store.VariableStore(
                [devices[:1], devices], seed=1, variable_placement="round_robin"
            )
            for name, stage in (("a", 0), ("b", 1), ("c", 1)):
                copy.create(
                    name, tf.TensorShape([9]), None, trainable=True, stage=stage
                )
            places = [copy.variables[name].device[-1] for name in "abc"]
        self.assertEqual("".join(places), "010")

    def test_what_uses_a_large_value(self):
        far, users = "/job:worker/task:1/device:CPU:0", {}
        with tf.Graph().as_default():
            copy = variable_store.VariableStore([["/device:CPU:0"]], seed=1)
            for name, size in (("small", 8), ("large", 2**20), ("unread", 2**20)):
                copy.create(name, tf.TensorShape([size]), None, trainable=True)
            copy.read("small")
            for device in ("/device:CPU:1", "/device:CPU:2", far):
                with tf.device(device):
                    users[device] = tf.square(copy.read("large")).op
            names = ["small", "large", "unread"]
            # Neither another tower's operation nor a transfer.
            used = copy.users(names, {"/device:CPU:1", far})
        self.assertEqual(used, {1: [users["/device:CPU:1"]]})

    def test_no_variable_changes_before_it_has_been_read(self):
        """Also by a gradient that does not depend on the value."""
        with tf.Graph().as_default() as graph:
            copy = variable_store.VariableStore(["/device:CPU:0"], seed=1)
            copy.create("w", tf.TensorShape([2]), None, trainable=True)
            read = copy.read("w")
            update = Update("sgd", Piecewise((1.0,)))
            variables, rate = copy.pieces(["w"]), tf.constant(1.0)
            gradients = [tf.ones([2])]
            copy.optimizer.apply(
                update.rules,
                update.make,
                gradients,
                variables,
                rate=rate,
                reads=copy.reads,
            )
            known = {node.name: node for node in graph.as_graph_def().node}
            kind = "ResourceApplyGradientDescent"
            [change] = [node.name for node in known.values() if node.op == kind]
        self.assertIn(read.op.name, nodes.needed_by(known, [change]))

    def test_a_variable_is_read_once_and_after_what_comes_before(self):
        with tf.Graph().as_default() as graph:
            copy = variable_store.VariableStore(["/device:CPU:0"], seed=1)
            copy.create("w", tf.TensorShape([2]), None, trainable=True)
            before = tf.no_op("before")
            read = copy.read("w", after=[before])
            self.assertIs(copy.read("w"), read)
            reads = [o for o in graph.get_operations() if o.type == "ReadVariableOp"]
            ours = [o for o in reads if o.name.startswith("variables/read/")]
        self.assertLen(ours, 1)
        self.assertEqual(list(ours[0].control_inputs), [before])
