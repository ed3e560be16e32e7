"""Synchronous modes: devices of variables, what towers read, what is saved."""

import functools
import re
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.compute import nodes
from towers.gradients import transfer
from towers.layout import placement
from towers.variable_update import variable_store
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1


@functools.cache
def _one_copy():
    """The variables of the one copy, which replicas are held against."""
    return trainer.trained("parameter_server").values()


class SynchronousTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ("pscpu", None),
        ("xring", None),
        ("tree#2", None),
        ("psgpu", None),
        ("rechd", None),
        ("hierarchical", None),
        ("collective", None),
        ("pscpu", tf.bfloat16),
        ("xring#2", tf.bfloat16),
        ("hierarchical", tf.float16),
        ("collective", tf.bfloat16),
    )
    def test_replicas_stay_bit_equal_slots_too(self, spec, transfer):
        exchange = dict(all_reduce_spec=spec, compact_gradient_transfer=transfer)
        training = trainer.trained("replicated", exchange=exchange)
        one_copy = _one_copy()
        off = trainer.difference(one_copy, training.values())
        self.assertLess(off, 1e-5 if transfer is None else 0.02)
        self.assertEqual(off > 1e-5, transfer is not None)  # the gradient was rounded
        replicas = training.session.run(training.train.mode.replicas)
        self.assertLen(replicas, 8)  # four variables and their momentum
        for name, copies in replicas.items():
            self.assertLen(copies, 4)
            for copy in copies[1:]:
                arrays.assert_same_bits(copy, copies[0], name)

    def test_replicas_lie_on_their_towers(self):
        training = trainer.trained("replicated", steps=0)
        for copies in training.train.mode.replicas.values():
            self.assertEqual(
                [v.device for v in copies], list(training.placement.towers)
            )

    def test_shadowed_replicas_hold_what_the_shadow_copy_holds(self):
        training = trainer.trained("distributed_replicated")
        values, replicas = training.session.run(
            [training.train.saved, training.train.mode.replicas]
        )
        self.assertLen(replicas, 4)
        for name, copies in replicas.items():
            for copy in copies:
                arrays.assert_same_bits(copy, values[name], name)
        one_tower = trainer.trained(
            "parameter_server", towers=1, batch_size=12
        ).values()
        self.assertLess(trainer.difference(one_tower, values), 1e-5)
        for copies in training.train.mode.replicas.values():
            self.assertEqual(
                [v.device for v in copies], list(training.placement.towers)
            )

    @parameterized.parameters("sgd", "momentum", "rmsprop", "adam")
    def test_replicated_equals_parameter_server_with_every_optimizer(self, optimizer):
        """Weight decay that goes by names, too: those of all replicas are alike."""
        update = trainer.Update(
            optimizer,
            trainer.Piecewise((0.01,)),
            weight_decay=0.1,
            decayed=lambda name: name.startswith("hidden"),
        )
        one_copy = trainer.trained("parameter_server", update=update).values()
        other = trainer.trained("replicated", update=update).values()
        self.assertLess(trainer.difference(one_copy, other), 1e-5)

    def test_independent_towers_see_their_own_examples_only(self):
        """Tower 0 trains as if it were alone on the rows that it gets."""
        training = trainer.trained("independent", steps=1, towers=2)
        replicas = training.session.run(training.train.mode.replicas)
        arrays.assert_apart(*replicas["logits/dense/kernel"], rtol=1e-3)
        # One step of one tower of batch 3: the stream's first three examples.
        alone = trainer.trained("parameter_server", steps=1, towers=1).values()
        arrays.assert_close(
            replicas["logits/dense/kernel"][0], alone["logits/dense/kernel"], rtol=1e-5
        )

    @parameterized.parameters(
        ("parameter_server", 1, 2),
        ("replicated", 2, 2),
        ("independent", 2, 1),
        ("asynchronous", 2, 1),
    )
    def test_a_large_variable_changes_once_no_tower_needs_it(self, mode, times, towers):
        """Nor does its gradient wait for those of all layers, or for other towers."""
        with (
            mock.patch.object(variable_store, "_LARGE", 0),
            # each variable is read alone
            mock.patch.object(transfer, "_SMALL_BESIDE", 0),
        ):
            training = trainer.trained(mode, steps=0, towers=2)
        graph = training.train.graph
        known = {node.name: node for node in graph.as_graph_def().node}
        changes = [op for op in graph.get_operations() if op.type.endswith("Momentum")]
        self.assertLen(changes, 4 * times)  # of four variables
        for change in changes:
            needed = nodes.needed_by(known, [change.name])
            scopes = {name.partition("/")[0] for name in needed}
            scopes &= {"tower_0", "tower_1"}
            self.assertLen(scopes, towers)
            handle = change.inputs[0]
            users = [
                user.name
                for read in handle.consumers()
                if read.type == "ReadVariableOp"
                for user in read.outputs[0].consumers()
                if user.name.partition("/")[0] in scopes
            ]
            self.assertNotEmpty(users)
            self.assertContainsSubset(users, needed)
            if handle.op.name.endswith("logits/dense/bias"):
                for tower in training.train.towers:
                    self.assertNotIn(tower.gradients[0].op.name, needed)

    @parameterized.parameters("replicated", "independent")
    def test_the_first_step_makes_no_copy_of_replicas(self, mode):
        """Replicas that shared a buffer would get their own in their first update."""
        with mock.patch.object(variable_store, "_LARGE", 0):
            training = trainer.trained(mode, steps=0, towers=4)
        metadata = v1.RunMetadata()
        full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        training.session.run(
            training.train.train_op, options=full, run_metadata=metadata
        )
        updates = {
            node.node_name: sum(memory.total_bytes for memory in node.memory)
            for device in metadata.step_stats.dev_stats
            for node in device.node_stats
            if re.search(r"kernel/ResourceApply\w+$", node.node_name)
        }
        self.assertLen(updates, 8)  # two kernels of four towers
        # One or two may find a buffer that its last reader is just letting go.
        copies = [name for name, num_bytes in updates.items() if num_bytes > 0]
        self.assertLess(len(copies), 4, msg=updates)

    @parameterized.parameters("replicated", "distributed_replicated")
    def test_a_restored_checkpoint_reaches_all_replicas(self, mode):
        directory = self.create_tempdir()
        saved = trainer.trained("parameter_server")
        saved.save(directory)
        training = trainer.Trainer(towers=4, batch_size=3, variable_update=mode).start(
            directory
        )
        values = saved.values()
        for name, copies in training.session.run(training.train.mode.replicas).items():
            for copy in copies:
                arrays.assert_same_bits(copy, values[name], name)

    def test_variables_go_to_the_device_with_the_fewest_bytes(self):
        devices = [placement.device("GPU", i) for i in range(3)]
        where = placement.Placement(
            kind="gpu",
            towers=tuple(devices),
            hosts=(placement.device("CPU", 0),) * 3,
            parameters=tuple(devices),
        )
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES["parameter_server"](where)
            for name, size in zip("abcde", (100, 10, 20, 15, 70)):
                mode.create(name, tf.TensorShape([size]), None, trainable=True)
            places = [mode.variables[name].device for name in "abcde"]
        wanted = [devices[i] for i in (0, 1, 2, 1, 2)]
        self.assertEqual(places, wanted)

    @parameterized.parameters("parameter_server", "replicated")
    def test_gradients_of_16_bits_travel_to_one_copy_without_loss(self, mode):
        options = dict(dtype=tf.bfloat16, steps=3)
        plain = trainer.trained(mode, **options).values()
        for dtype in (tf.bfloat16, tf.float32):
            training = trainer.trained(
                mode, exchange=dict(compact_gradient_transfer=dtype), **options
            ).values()
            rounds = mode == "replicated" and dtype == tf.bfloat16  # the sum
            off = trainer.difference(plain, training)
            self.assertEqual(off > 0.0, rounds)
            self.assertLess(off, 0.05)
