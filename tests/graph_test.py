"""The train graph: devices of towers, what is saved, what is not."""

import dataclasses
import gc
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import models
from tests import arrays, trainer
from towers import graph
from towers.checkpoints.contents import AVERAGE
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource
from towers.gradients.exchange import GradientExchange
from towers.layout import cluster_spec, placement
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1


def _behind(op: tf.Operation) -> set[tf.Operation]:
    """All operations that one needs."""
    behind, left = set(), [op]
    while left:
        op = left.pop()
        if op not in behind:
            behind.add(op)
            left += [*(tensor.op for tensor in op.inputs), *op.control_inputs]
    return behind


class GraphTest(parameterized.TestCase):
    def test_every_operation_of_a_tower_is_on_its_device(self):
        training = trainer.Trainer(towers=3, batch_size=4)
        for op in training.train.graph.get_operations():
            scope, _, inner = op.name.partition("/")
            if inner and scope in ("tower_0", "tower_1", "tower_2"):
                wanted = training.placement.towers[int(scope[-1])]
                self.assertEqual(op.device, wanted, op.name)
        for variable in training.train.saved.values():
            self.assertEqual(variable.device, "/device:CPU:0")

    def test_a_mode_that_there_is_not(self):
        sentence = "^Options.variable_update is 'replicatd', and must be one of param"
        with self.assertRaisesRegex(ValueError, sentence):
            trainer.Trainer(variable_update="replicatd")

    @parameterized.parameters(
        ("collective", "collective works inside a host, and the towers are on 2;"),
        ("nccl", "nccl runs on GPU devices only"),
        ("xrung", "no algorithm"),
    )
    def test_a_reduction_that_the_devices_cannot_run(self, reduction, words):
        spec = cluster_spec.from_hosts(
            "chief", 0, ps=["p:1"], workers=["a:1", "b:1"], controller="c:1"
        )
        options = graph.Options(
            batch_size=2,
            variable_update="replicated",
            exchange=GradientExchange(all_reduce_spec=reduction),
        )
        with self.assertRaisesRegex(ValueError, words):
            graph.build(
                trainer.dense_model(),
                trainer.random_source(),
                Update("sgd", Piecewise((0.1,))),
                placement=placement.on_cluster(spec, 1, kind="cpu"),
                options=options,
            )

    def test_a_graph_for_gpus_can_be_built_and_read_without_any(self):
        towers = tuple(placement.device("GPU", i) for i in range(4))
        where = placement.Placement(
            kind="gpu",
            towers=towers,
            hosts=(placement.device("CPU", 0),) * 4,
            parameters=towers,
        )
        built = graph.build(
            models.get("resnet20"),
            SyntheticSource(Request(shape=(32, 32, 3), num_classes=10)),
            Update("momentum", Piecewise((0.1,))),
            placement=where,
            options=graph.Options(batch_size=2, data_format="NCHW"),
        )
        load = dict.fromkeys(towers, 0)
        for variable in built.mode.variables.values():
            load[variable.device] += variable.shape.num_elements()
        biggest = max(v.shape.num_elements() for v in built.mode.variables.values())
        self.assertLessEqual(max(load.values()) - min(load.values()), biggest)
        self.assertEqual([tower.device for tower in built.towers], list(towers))
        for tower in built.towers:
            for gradient in tower.gradients:
                self.assertEqual(gradient.device, tower.device)

    @parameterized.parameters(("parameter_server", 12), ("asynchronous", 4))
    def test_examples_of_the_towers_that_step_together(self, mode, count):
        training = trainer.Trainer(towers=3, batch_size=4, variable_update=mode)
        self.assertEqual(training.train.examples_per_step, count)

    def test_towers_draw_by_the_seed_of_the_run(self):
        with mock.patch.object(graph, "copy_towers", side_effect=KeyError) as stamp:
            with self.assertRaises(KeyError):
                graph.build(
                    trainer.dense_model(),
                    trainer.random_source(),
                    trainer.MOMENTUM,
                    placement=placement.local(1, kind="cpu"),
                    options=graph.Options(batch_size=8, seed=7),
                )
        self.assertEqual(stamp.call_args.args[0].seed, 7)

    def test_names_in_the_checkpoint_are_those_of_the_model(self):
        names = set()
        for towers, mode in ((1, "parameter_server"), (4, "replicated")):
            training = trainer.Trainer(towers=towers, variable_update=mode)
            names.add(tuple(sorted(training.train.saved)))
        [names_found] = names
        variables = ["hidden/dense/bias", "hidden/dense/kernel"]
        variables += ["logits/dense/bias", "logits/dense/kernel"]
        slots = [f"{name}/Momentum" for name in variables]
        counters = ["global_step", "position", "order_version"]
        self.assertEqual(list(names_found), sorted([*counters, *variables, *slots]))

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_what_sync_fills_has_no_initial_value(self, mode):
        training = trainer.Trainer(
            trainer.normed_model(), towers=3, variable_update=mode
        )
        train, session = training.train, training.session
        with train.graph.as_default():
            empty = v1.report_uninitialized_variables(v1.global_variables())
            synced = {variable.op.name for variable in train.mode.synced}
        session.run(train.initializer)
        self.assertEqual({name.decode() for name in session.run(empty)}, synced)
        session.run(train.sync)
        self.assertEmpty(session.run(empty))

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_no_initial_value_depends_on_what_a_variable_holds(self, mode):
        """On a cluster it may hold a value of a session before this one."""
        update = dataclasses.replace(trainer.MOMENTUM, ema_decay=0.9)
        training = trainer.Trainer(
            trainer.normed_model(), towers=2, update=update, variable_update=mode
        )
        self.assertNotEmpty(training.train.averages)
        behind = _behind(training.train.initializer)
        kinds = {op.type for op in behind}
        self.assertIn("AssignVariableOp", kinds)
        self.assertNoCommonElements(kinds, {"ReadVariableOp", "VarIsInitializedOp"})
        training.start().steps(2)
        training.session.run(training.train.initializer)
        values = training.values()
        for name in training.train.averages:
            arrays.assert_same_bits(values[f"{name}/{AVERAGE}"], values[name], name)

    def test_importing_and_building_change_nothing_in_the_process(self):
        trainer.Trainer()
        self.assertTrue(gc.isenabled())
        self.assertTrue(tf.executing_eagerly())
        self.assertTrue(v1.resource_variables_enabled())
        self.assertEqual(tf.constant(2).numpy(), 2)

    def test_two_graphs_in_one_process_do_not_meet(self):
        first = trainer.Trainer().start()
        second = trainer.Trainer().start()
        trainer.assert_same_bits(first.steps(3), second.steps(3))
        loop.run(first.train, first.session, [], last_step=4)
        self.assertEqual(second.values()["global_step"], 3)
