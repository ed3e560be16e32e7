"""The bytes of a real step between tasks, counted from what TensorFlow recorded."""

import json
import os
import subprocess
import sys

import tensorflow as tf
from absl.testing import absltest

import towers
from benchmarks import launched
from towers import wire

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(towers.__file__)))

# All tasks in one process, in a private network; a traced step in each dtype.
_INSIDE = """
import json, socket, sys
from towers import private_network
private_network.enter()
import tensorflow as tf
from tests import runs, trainer
from towers import cluster, graph, inputs, loop, placement, wire
v1 = tf.compat.v1

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
ports = [f"127.0.0.1:{s.getsockname()[1]}" for s in held]
for each in held:
    each.close()
spec = cluster.from_hosts(
    "chief", 0, ps=ports[:2], workers=ports[2:4], controller=ports[4]
)
where = placement.on_cluster(spec, 2, kind="cpu")
config = placement.session_config(where)
servers = {
    task: tf.distribute.Server(
        spec.as_dict(), job_name=task.job, task_index=task.index,
        config=placement.server_config(where, task, config))
    for task in [*spec.servers, spec.me]
}
found = {}
for dtype in (tf.float32, tf.bfloat16):
    options = graph.Options(batch_size=4, dtype=dtype)
    train = graph.build(
        runs.small_model(), trainer.random_source((8, 8, 1), 10, out=(6, 6, 1)),
        trainer.MOMENTUM, placement=where, options=options)
    with v1.Session(servers[spec.me].target, graph=train.graph, config=config) as s:
        loop.start(train, s, lambda session: None)
        s.run(train.train_op)
        full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        crossed = {}
        for _ in range(6):  # transfers that end with the step may miss its record
            metadata = v1.RunMetadata()
            s.run(train.train_op, options=full, run_metadata=metadata)
            for ends, count in wire.transfers(metadata).items():
                crossed[ends] = max(count, crossed.get(ends, 0))
    found[dtype.name] = {
        "trainable": 4 * train.template.parameters,
        "variables": 4 * sum(
            v.shape.num_elements() for v in train.mode.variables.values()),
        "crossed": [[*ends, count] for ends, count in crossed.items()],
    }
print(json.dumps(found), flush=True)
import os
os._exit(0)
"""


class TransfersTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        if not launched.have_private_networks():
            raise absltest.SkipTest("this system has no private networks")
        done = subprocess.run(
            [sys.executable, "-c", _INSIDE],
            env={**os.environ, "PYTHONPATH": _ROOT},
            capture_output=True,
            text=True,
            timeout=launched.PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        cls.found = json.loads(done.stdout.splitlines()[-1])

    def _crossed(self, dtype: str, one: str, other: str) -> int:
        return sum(
            count
            for source, to, count in self.found[dtype]["crossed"]
            if one in source and other in to
        )

    def test_each_way_the_parameters_once_per_worker(self):
        found = self.found["float32"]
        for one, other, size in (
            ("ps", "worker", found["trainable"]),
            ("worker", "ps", found["variables"]),  # batch statistics, too
        ):
            # Two workers, of two towers each; beside the variables a few scalars.
            crossed = self._crossed("float32", one, other)
            self.assertBetween(crossed, 2 * size, 2 * size + 100)
        self.assertEqual(self._crossed("float32", "worker:0", "worker:1"), 0)

    def test_what_the_controller_moves_is_small(self):
        for one, other in (("chief", "/"), ("/", "chief")):
            self.assertLess(self._crossed("float32", one, other), 1000)

    def test_weights_travel_in_the_dtype_they_are_read_in(self):
        wide = self._crossed("float32", "ps", "worker")
        self.assertLess(self._crossed("bfloat16", "ps", "worker"), 0.6 * wide)


class ArrivalsTest(absltest.TestCase):
    def test_a_value_arrives_once_on_another_task(self):
        arrive = wire.Arrivals()
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0/device:CPU:0"):
                x = tf.constant(1.0)
            host = "/job:worker/task:1/device:CPU:0"
            there = arrive(x, host)
            self.assertEqual(there.device, host)
            self.assertIs(arrive(x, host), there)
            self.assertIs(arrive(x, "/job:ps/task:0/device:CPU:1"), x)
            self.assertIs(arrive(there, host), there)

    def test_in_one_process_nothing_is_copied(self):
        with tf.Graph().as_default():
            with tf.device("/device:GPU:1"):
                x = tf.constant(1.0)
            self.assertIs(wire.Arrivals()(x, "/device:CPU:0"), x)


if __name__ == "__main__":
    absltest.main()
