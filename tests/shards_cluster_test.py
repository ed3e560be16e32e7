"""Embedding tables spread over ps tasks: the same steps, and only rows travel."""

import json
import os
import subprocess
import sys

from absl.testing import absltest

import towers
from benchmarks import launched

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(towers.__file__)))

# All tasks in one process, in a private network.
_INSIDE = """
import json, os, socket
from towers import private_network
private_network.enter()
import tensorflow as tf
from models import language
from models.model import Model, Recipe, Schedule
from models.examples import Tokens
from tests import trainer
from towers import cluster, graph, loop, parts, placement, wire
from towers.feed import Request
from towers.optimizer import Piecewise, Update
from towers.shards import Shards
from towers.synthetic import SyntheticSource
v1 = tf.compat.v1

ROWS, UNITS, LENGTH, BATCH, TOWERS = 1001, 8, 3, 4, 2  # a tower per worker

def embedding(x, nn):
    return nn.embedding(x, nn.variable("tokens", [ROWS, UNITS]))

def score(x, nn):
    return tf.reduce_sum(nn.dense(x, 1), 2)

def loss(outputs, labels):
    return tf.reduce_mean((outputs - 2.0 - tf.cast(labels, tf.float32) / ROWS) ** 2, 1)

model = Model(
    name="rows", blocks=(("embedding", embedding), ("score", score)),
    inputs=Tokens(length=LENGTH, num_classes=ROWS), loss=loss,
    metrics=lambda outputs, labels: {},
    recipe=Recipe(batch_size=BATCH, schedule=Schedule(rates=(0.1,))))
source = SyntheticSource(
    Request(shape=(LENGTH,), num_classes=ROWS, num_examples=70, kind="tokens"))
update = Update("momentum", Piecewise((0.05,)))

one = trainer.Trainer(model, source, batch_size=TOWERS * BATCH, update=update)
alone = one.start().steps(5)

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(5)]
ports = [f"127.0.0.1:{s.getsockname()[1]}" for s in held]
for each in held:
    each.close()
spec = cluster.from_hosts(
    "chief", 0, ps=ports[:2], workers=ports[2:4], controller=ports[4])
where = placement.on_cluster(spec, 1, kind="cpu")
config = placement.session_config(where)
servers = {
    task: tf.distribute.Server(
        spec.as_dict(), job_name=task.job, task_index=task.index,
        config=placement.server_config(where, task, config))
    for task in [*spec.servers, spec.me]
}
train = graph.build(
    model, source, update, placement=where,
    options=graph.Options(batch_size=BATCH, shards=Shards(1, 2)))
with v1.Session(servers[spec.me].target, graph=train.graph, config=config) as s:
    loop.start(train, s, lambda session: None)
    full = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    crossed = {}
    for _ in range(5):
        metadata = v1.RunMetadata()
        s.run(train.train_op, options=full, run_metadata=metadata)
        for ends, count in wire.transfers(metadata).items():
            crossed[ends] = max(count, crossed.get(ends, 0))
    values = trainer.whole(train.saved, s.run(train.saved))
print(json.dumps({
    "difference": trainer.difference(alone, values),
    "devices": {n: v.device for n, v in train.mode.variables.items() if "part" in n},
    "table": 4 * ROWS * UNITS,
    "rows": 4 * UNITS * LENGTH * BATCH * TOWERS,
    "crossed": [[*ends, count] for ends, count in crossed.items()],
}), flush=True)
os._exit(0)
"""


class ClusterTest(absltest.TestCase):
    def test_rows_are_looked_up_on_the_task_that_has_them(self):
        if not launched.have_private_networks():
            self.skipTest("this system has no private networks")
        done = subprocess.run(
            [sys.executable, "-c", _INSIDE],
            env={**os.environ, "PYTHONPATH": _ROOT},
            capture_output=True,
            text=True,
            timeout=launched.PATIENCE,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout.splitlines()[-1])
        self.assertLess(found["difference"], 1e-5)
        tasks = [device.split("/device")[0] for device in found["devices"].values()]
        self.assertCountEqual(tasks, ["/job:ps/task:0", "/job:ps/task:1"])
        back = sum(n for one, to, n in found["crossed"] if "ps" in one and "work" in to)
        # Each row of the step and the few weights of the dense layer, not the table.
        self.assertBetween(back, found["rows"], found["rows"] + 1000)
        self.assertGreater(found["table"], 10 * back)


if __name__ == "__main__":
    absltest.main()
