"""Classifiers and tables spread over a cluster: the same steps, and no more travels.

All tasks are in one process, in a private network: two ps tasks, and two workers of
four devices each; in the last test they are processes of their own.
"""

import os

import tensorflow as tf
from absl.testing import parameterized

import models
from models.inputs import Tokens
from models.model import Model, Recipe, Schedule
from tests import digit_runs, embedding_models, in_process_cluster, trainer
from towers import graph
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource
from towers.layout import placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop

v1 = tf.compat.v1

STEPS = 4
_BATCH = 8  # of all towers together
_UPDATE = Update("momentum", Piecewise((0.05,)))

ROWS, UNITS, LENGTH = 1001, 8, 3


def _rows() -> Model:
    """A large table of which a step reads a few rows."""

    def embedding(x, nn):
        return nn.embedding(x, nn.variable("tokens", [ROWS, UNITS]))

    def score(x, nn):
        return tf.reduce_sum(nn.dense(x, 1), 2)

    def loss(outputs, labels):
        wanted = 2.0 + tf.cast(labels, tf.float32) / ROWS
        return tf.reduce_mean((outputs - wanted) ** 2, 1)

    return Model(
        name="rows",
        blocks=(("embedding", embedding), ("score", score)),
        inputs=Tokens(length=LENGTH, num_classes=ROWS),
        loss=loss,
        metrics=lambda outputs, labels: {},
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.1,))),
    )


def _few_of_many() -> SyntheticSource:
    """Of the numbers that `_rows` has rows for."""
    shape = (LENGTH,)
    return SyntheticSource(
        Request(shape=shape, num_classes=ROWS, num_examples=70, kind="tokens")
    )


MODELS = {
    "classes": (trainer.dense_model, lambda: trainer.random_source(num_classes=101)),
    "rows": (_rows, _few_of_many),
    "tied": (embedding_models.tied, embedding_models.tokens),
    "untied": (embedding_models.untied, embedding_models.tokens),
}


def _mode(name: str) -> dict[str, str]:
    return {"variable_update": name}


# Name -> model, what is spread, towers of each worker, other options.
CASES = {
    "rows": ("rows", Shards(1, 2), 1, {}),
    "classes": ("classes", Shards(2), 1, {}),
    "two towers": ("classes", Shards(2), 2, {}),
    "more parts than ps": ("classes", Shards(3), 1, {}),
    "replicas": ("classes", Shards(2), 2, _mode("replicated")),
    "shadow copy": ("classes", Shards(2), 2, _mode("distributed_replicated")),
    "late": ("classes", Shards(2), 2, _mode("staged")),
    "compiled": ("classes", Shards(2), 1, dict(xla_compile=True)),
    "accumulated": ("classes", Shards(2), 2, dict(accumulate_steps=2)),
    "stages": ("classes", Shards(2), 2, dict(pipeline=Pipeline(2, 2))),
    "micro-batches": ("untied", Shards(2, 2), 1, dict(pipeline=Pipeline(1, 2))),
    "rows of classes": ("tied", Shards(1, 2), 2, {}),
    "classes of rows": ("tied", Shards(2), 2, {}),
    "both": ("untied", Shards(2, 2), 2, {}),
}


def _alone(name: str) -> dict:
    """One whole tower on the joined batch; as late, in modes that are."""
    model, _, _, options = CASES[name]
    make, source = MODELS[model]
    late = {"variable_update": "staged"} if options == _mode("staged") else {}
    alone = trainer.Trainer(make(), source(), batch_size=_BATCH, update=_UPDATE, **late)
    return alone.start().steps(STEPS)


def _together(spec, target: str, name: str) -> tuple[dict, graph.TrainGraph, list]:
    """The same on the cluster, and what crossed in a step of it."""
    model, shards, towers, options = CASES[name]
    make, source = MODELS[model]
    devices = shards.classifier
    where = placement.on_cluster(spec, towers * devices, kind="cpu", num_shards=devices)
    config = placement.session_config(where)
    size = _BATCH // (2 * towers * options.get("accumulate_steps", 1))
    options = graph.Options(batch_size=size, shards=shards, **options)
    train = graph.build(make(), source(), _UPDATE, placement=where, options=options)
    v1.Session.reset(target, config=config)  # removes the variables of other cases
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, (), last_step=STEPS)
        values = trainer.whole(train.saved, session.run(train.saved))
        return values, train, in_process_cluster.crossed(session, train.train_op)


def inside() -> None:
    """Tells what becomes of every case, and ends."""
    spec, target = in_process_cluster.serve(ps=2, devices=4)
    results = {}
    for name in CASES:
        values, train, crossed = _together(spec, target, name)
        held = train.mode.variables
        results[name] = {
            "difference": trainer.difference(_alone(name), values),
            "parts": {n: v.device for n, v in held.items() if "/part_" in n},
            "trainable": 4 * train.template.parameters,
            "crossed": crossed,
        }
    in_process_cluster.tell(results)


class ClusterTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = in_process_cluster.found_inside(
            "from tests.cluster import shards_cluster_test as this; this.inside()"
        )

    def _crossed(self, name: str, source: str, other: str) -> int:
        return in_process_cluster.between(self.found[name]["crossed"], source, other)

    @parameterized.parameters(*CASES)
    def test_the_steps_of_one_tower(self, name):
        case = self.found[name]
        self.assertLess(case["difference"], 1e-5)
        self.assertNotEmpty(case["parts"])
        # No tower reads from another.
        replicas = CASES[name][3] == _mode("replicated")
        if not replicas:
            self.assertEqual(self._crossed(name, "worker", "worker"), 0)
        holders = {placement.task_of(device) for device in case["parts"].values()}
        ps = {f"/job:ps/task:{k}" for k in range(2)}
        self.assertEqual(holders, {"/job:worker/task:0"} if replicas else ps)

    def test_rows_are_looked_up_on_the_task_that_has_them(self):
        back = self._crossed("rows", "ps", "worker")
        # The rows that the step reads and the dense layer's few weights, not the table.
        rows = 4 * UNITS * LENGTH * _BATCH
        self.assertBetween(back, rows, rows + 1000)
        self.assertGreater(4 * ROWS * UNITS, 10 * back)

    @parameterized.parameters(
        "classes", "two towers", "more parts than ps", "accumulated", "stages"
    )
    def test_each_way_the_parameters_once_per_worker(self, name):
        size = self.found[name]["trainable"]
        for source, other in (("ps", "worker"), ("worker", "ps")):
            # The variables for each of two workers, and a few scalars.
            crossed = self._crossed(name, source, other)
            self.assertBetween(crossed, 2 * size, 2 * size + 200)


class ProcessesTest(digit_runs.Runs):
    def test_classes_on_processes(self):
        flags = dict(model="mlp", data_name="digits", optimizer="momentum")
        flags |= dict(num_batches=10, num_warmup_batches=0, train_dir=self.directory)
        spread = dict(batch_size=4, num_gpus=4, shard_classifier=2)
        in_process_cluster.ended(
            *(f"--{name}={value}" for name, value in (flags | spread).items()),
            data_dir=digit_runs.data_dir(),
            between=False,
        )
        there = self.values()
        flags["train_dir"] = self.directory = os.path.join(self.directory, "alone")
        self.run_flags(get_model=models.get, batch_size=16, **flags)
        self.assertLess(trainer.difference(self.values(), there), 1e-5)
