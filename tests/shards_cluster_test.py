"""Embedding tables spread over ps tasks: the same steps, and only rows travel."""

from absl.testing import absltest

from tests import tasks

# All tasks in one process, in a private network.
_INSIDE = """
import tensorflow as tf
from models import language
from models.model import Model, Recipe, Schedule
from models.examples import Tokens
from tests import tasks, trainer
from towers import graph
from towers.layout import placement
from towers.session import loop
from towers.data.feed import Request
from towers.updates.optimizer import Piecewise, Update
from towers.layout.shards import Shards
from towers.data.synthetic import SyntheticSource
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

spec, target = tasks.serve(ps=2, devices=1)
where = placement.on_cluster(spec, 1, kind="cpu")
config = placement.session_config(where)
train = graph.build(
    model, source, update, placement=where,
    options=graph.Options(batch_size=BATCH, shards=Shards(1, 2)))
with v1.Session(target, graph=train.graph, config=config) as s:
    loop.start(train, s, lambda session: None)
    loop.run(train, s, (), last_step=5)
    values = trainer.whole(train.saved, s.run(train.saved))
    crossed = tasks.crossed(s, train.train_op)
tasks.tell({
    "difference": trainer.difference(alone, values),
    "devices": {n: v.device for n, v in train.mode.variables.items() if "part" in n},
    "table": 4 * ROWS * UNITS,
    "rows": 4 * UNITS * LENGTH * BATCH * TOWERS,
    "crossed": [[*ends, count] for ends, count in crossed.items()],
})
"""


class ClusterTest(absltest.TestCase):
    def test_rows_are_looked_up_on_the_task_that_has_them(self):
        found = tasks.found_inside(_INSIDE)
        self.assertLess(found["difference"], 1e-5)
        holders = [device.split("/device")[0] for device in found["devices"].values()]
        self.assertCountEqual(holders, ["/job:ps/task:0", "/job:ps/task:1"])
        back = sum(n for one, to, n in found["crossed"] if "ps" in one and "work" in to)
        # Each row of the step and the few weights of the dense layer, not the table.
        self.assertBetween(back, found["rows"], found["rows"] + 1000)
        self.assertGreater(found["table"], 10 * back)


if __name__ == "__main__":
    absltest.main()
