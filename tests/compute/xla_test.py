"""Towers compiled by XLA take the steps of towers that are not."""

import contextlib
import io
import pathlib
import subprocess
import sys

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import arrays, digit_runs, in_process_cluster, trainer
from towers import graph, train
from towers.compute import xla
from towers.errors import explain
from towers.layout import placement
from towers.layout.shards import Shards
from towers.session import loop

v1 = tf.compat.v1


def _model() -> Model:
    """Convolution, batch norm, dropout."""
    return digit_runs.small_model()


def _uncompilable() -> Model:
    """Has an operation that XLA lacks."""

    def dilated(x, nn):
        x = tf.nn.dilation2d(x, tf.zeros([2, 2, 1]), [1] * 4, "SAME", "NHWC", [1] * 4)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(dilated)


def _train(model: Model, towers: int, mode="parameter_server", **options):
    inputs = dict(shape=(8, 8, 1), out=(6, 6, 1), num_classes=10)
    inputs |= dict(preprocessing="cifar_tutorial")
    return trainer.Trainer(
        model,
        trainer.random_source(**(inputs if model.name == "small" else {})),
        towers=towers,
        batch_size=24 // towers,
        variable_update=mode,
        **options,
    ).start()


def padded(x, nn):
    """A dense layer, and a padding behind it, which has a gradient of its own."""
    x = nn.dense(nn.flatten(x), 16, activation=tf.nn.relu)
    return nn.dense(tf.pad(x, [[0, 0], [1, 2]]), nn.num_classes)


def _steps(where: placement.Placement, target: str = "", *, auto_jit: bool):
    """The variables after some steps, and the devices of what XLA runs in one."""
    options = graph.Options(batch_size=24 // where.num_towers)
    model, source = trainer.model_of(padded), trainer.random_source()
    update = trainer.MOMENTUM
    train = graph.build(model, source, update, placement=where, options=options)
    config = placement.session_config(where, auto_jit=auto_jit)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, (), last_step=4)
        values = session.run(train.saved)
        metadata = v1.RunMetadata()
        shown = v1.RunOptions(output_partition_graphs=True)
        session.run(train.train_op, options=shown, run_metadata=metadata)
    nodes = [node for partition in metadata.partition_graphs for node in partition.node]
    return values, sorted({node.device for node in nodes if node.op == "_XlaRun"})


def compile_everywhere() -> None:
    """Tells what `--xla` does in this process, and on a cluster; and ends."""
    xla.allow_on_cpu()
    spec, target = in_process_cluster.serve(ps=1, devices=2, auto_jit=True)
    here = placement.local(2, kind="cpu")
    there = placement.on_cluster(spec, 2, kind="cpu")
    plain, devices = _steps(placement.local(4, kind="cpu"), auto_jit=False)
    assert not devices, devices
    results = {}
    for name, where, at in (("here", here, ""), ("there", there, target)):
        values, devices = _steps(where, at, auto_jit=True)
        results[name] = [trainer.difference(plain, values), devices]
    in_process_cluster.tell(results)


class CompiledTowersTest(parameterized.TestCase):
    @parameterized.parameters(
        (_model, 2, "parameter_server"),
        (trainer.dense_model, 2, "replicated"),
        (trainer.embedding_model, 2, "parameter_server"),
    )
    def test_they_equal_towers_that_are_not_compiled(self, make, towers, mode):
        plain = _train(make(), towers, mode).steps(6)
        training = _train(make(), towers, mode, xla_compile=True)
        self.assertLess(trainer.difference(plain, training.steps(6)), 1e-5)
        calls = [
            op
            for op in training.train.graph.get_operations()
            if "Call" in op.type and op.name.startswith("tower_")
        ]
        self.assertLen(calls, towers)
        for op, device in zip(calls, training.placement.towers):
            self.assertEqual(op.device, device)
            self.assertTrue(op.get_attr("_XlaMustCompile"))

    @parameterized.parameters((1, "parameter_server"), (2, "replicated"))
    def test_a_spread_classifier_is_compiled_for_each_of_its_devices(
        self, towers, mode
    ):
        plain = _train(trainer.dense_model(), towers, mode).steps(6)
        options = dict(xla_compile=True, shards=Shards(2))
        training = _train(trainer.dense_model(), towers, mode, **options)
        self.assertLess(trainer.difference(plain, training.steps(6)), 1e-5)
        calls = [
            op
            for op in training.train.graph.get_operations()
            if "Call" in op.type and op.name.startswith("tower_0")
        ]
        self.assertEqual({op.device for op in calls}, set(training.placement.stages[0]))
        for op in calls:
            self.assertTrue(op.get_attr("_XlaMustCompile"))

    def test_an_operation_that_it_lacks_is_named(self):
        training = _train(_uncompilable(), 2, xla_compile=True)
        with self.assertRaises(tf.errors.OpError) as caught:
            training.steps(1)
        self.assertEqual(
            explain.sentence(caught.exception),
            "XLA cannot compile Dilation2D (dilated/Dilation2D); write the model "
            "without, or leave out --xla_compile",
        )


class FunctionTest(tf.test.TestCase):
    def test_a_graph_becomes_one_operation(self):
        with tf.Graph().as_default() as graph:
            a, b = (tf.compat.v1.placeholder(tf.float32, [2], n) for n in "ab")
            tf.identity(2 * a + b, "sum")
            tf.compat.v1.placeholder(tf.float32, [2], "idle")
        specs = {name: tf.TensorSpec([2]) for name in ("a", "b", "idle")}
        call = xla.compiled(graph.as_graph_def(), specs, ["sum:0", "sum:0"])
        with tf.Graph().as_default() as graph, tf.compat.v1.Session() as session:
            given = {n: tf.constant([k, 1.0]) for k, n in enumerate(specs, start=1)}
            before = len(graph.get_operations())
            outputs = call(given)
            added = graph.get_operations()[before:]
            self.assertLen([op for op in added if "Call" in op.type], 1)
            first, second = session.run(outputs)
        np.testing.assert_array_equal(first, [4, 3])
        np.testing.assert_array_equal(second, [4, 3])


class AutoJitTest(tf.test.TestCase):
    def test_the_environment_keeps_what_the_user_said(self):
        allowed, whole = "--tf_xla_cpu_global_jit", "--tf_xla_disable_constant_folding"
        for before, after in (
            (None, f"{allowed} {whole}"),
            ("--tf_xla_min_size=2", f"--tf_xla_min_size=2 {allowed} {whole}"),
            (f"{allowed}=false", f"{allowed}=false {whole}"),
            (f"{whole}=false", f"{whole}=false {allowed}"),
        ):
            environment = {} if before is None else {"TF_XLA_FLAGS": before}
            xla.allow_on_cpu(environment)
            self.assertEqual(environment, {"TF_XLA_FLAGS": after})

    def test_compiles_for_every_device_here_and_on_tasks(self):
        """In each a part of a tower and of the update is compiled."""
        results = in_process_cluster.found_inside(
            "from tests.compute import xla_test; xla_test.compile_everywhere()"
        )
        for name, (difference, devices) in results.items():
            self.assertLess(difference, 1e-5, name)
            workers = [f"/job:worker/replica:0/task:{k}" for k in range(2)]
            homes = ["/job:localhost/replica:0/task:0"] if name == "here" else workers
            wanted = {f"{home}/device:CPU:{k}" for home in homes for k in range(2)}
            self.assertContainsSubset(wanted, devices)

    def test_the_command_compiles_clusters(self):
        trace = pathlib.Path(self.create_tempdir(), "trace.json")
        flags = "--model=mlp --device=cpu --batch_size=8 --num_batches=3"
        flags += " --num_warmup_batches=2 --display_every=1 --noeval_at_end"
        flags = [*flags.split(), f"--trace_file={trace}"]
        done = subprocess.run(
            [sys.executable, "-m", "towers.train", *flags, "--xla"],
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        self.assertIn("cluster_", trace.read_text())
        with contextlib.redirect_stdout(io.StringIO()) as plain:
            self.assertEqual(train.main(["train", *flags]), 0)
        self.assertNotIn("cluster_", trace.read_text())
        losses = [
            [float(s.split()[-1]) for s in said.splitlines() if "images/sec: " in s][:3]
            for said in (done.stdout, plain.getvalue())
        ]
        arrays.assert_close(*losses, rtol=1e-5)
