"""Clients with a graph each take the steps of one process, and how much they send.

All tasks are in one process, in a private network: two ps tasks, and two workers of two
towers each, which are clients.
"""

import json

from absl.testing import parameterized

from tests import in_process_cluster
from tests.everyday_models import EVERYDAY

_STEPS = 4

# Name of a case -> (model, options).
_CASES = {
    "parameter_server": ("normed", {}),
    "tables": ("tables", {}),
    "parts": ("dense", dict(exchange=dict(partition_bytes=100))),
    "parts_of_tables": ("tables", dict(exchange=dict(partition_bytes=100))),
    "distributed_replicated": (
        "normed",
        dict(variable_update="distributed_replicated"),
    ),
    "replicas_of_parts": (
        "tables",
        dict(
            variable_update="distributed_replicated", exchange=dict(partition_bytes=100)
        ),
    ),
    "accumulated": ("tables", dict(accumulate_steps=2)),
    "classes": ("dense", dict(shards=[2])),
    "stateful": ("stateful", {}),
    "stateful_accumulated": ("stateful", dict(accumulate_steps=2)),
    "weighted": ("weighted", {}),
    "class_weight": ("dense", dict(class_weight=[0.1, 3, 1, 0, 0.5], limit=60)),
    "weighted_tables": ("weighted_tables", dict(accumulate_steps=2, limit=60)),
    "unequal": ("normed", dict(tower_batch_sizes=[5, 2, 6, 3], limit=60)),
    "unequal_weighted": ("weighted_tables", dict(tower_batch_sizes=[1, 7, 2, 3])),
    **{name: (name, dict(limit=60)) for name in EVERYDAY},
}

_INSIDE = """
import copy, dataclasses, json, sys, threading
import tensorflow as tf
from tests import (
    digit_runs,
    embedding_models,
    everyday_models,
    in_process_cluster,
    stateful_models,
    trainer,
)
from towers import graph
from towers.layout import placement
from towers.layout.shards import Shards
from towers.session import loop
from towers.gradients.exchange import GradientExchange
from towers.variable_update import between_graph
v1 = tf.compat.v1

def weighted(source):
    # Weights whose sum over a step is below 1.
    plain, source = source.feed, copy.copy(source)
    def of_batch(batch):
        index = batch.first + tf.range(batch.weights.shape[0], dtype=tf.int64)
        factor = 0.01 * tf.cast(1 + index % 5, tf.float32)
        return batch._replace(weights=factor * batch.weights)
    def feed(groups, **options):
        whole = plain(groups, **options)
        return whole._replace(batches=list(map(of_batch, whole.batches)), weight=None)
    source.feed = feed
    return source

update = dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0)
MODELS = {
    "dense": (trainer.dense_model(), trainer.random_source()),
    "tables": (embedding_models.model(), embedding_models.source()),
    "stateful": (stateful_models.two(), stateful_models.source()),
    "weighted": (trainer.dense_model(), weighted(trainer.random_source())),
    "weighted_tables": (embedding_models.model(), weighted(embedding_models.source())),
    "normed": (
        digit_runs.small_model(), trainer.random_source((8, 8, 1), 10, out=(6, 6, 1))),
}
for name, row in everyday_models.EVERYDAY.items():
    model, examples = row()
    MODELS[name] = model, everyday_models.source(model, examples)
served = in_process_cluster.serve_clients(ps=2, devices=2)

def built(place, model, *, exchange=None, shards=None, **options):
    options = graph.Options(
        batch_size=4, exchange=GradientExchange(**exchange or {}),
        shards=shards and Shards(*shards), **options)
    return graph.build(*MODELS[model], update, placement=place, options=options)

def follow(place, target, train, steps, sent):
    config = placement.session_config(place)
    with tf.Graph().as_default() as waiting, tf.device(place.counters):
        token = between_graph.token_queue(place.client).dequeue()
    with v1.Session(target, graph=waiting, config=config) as session:
        stamp = int(session.run(token))
    with v1.Session(target, graph=train.graph, config=config) as session:
        # As `follow` does it; its sessions would need real tasks.
        train.clients.begin(session, stamp)
        session.run(train.sync)
        session.run(train.feed.initializer)
        for _ in range(steps):
            session.run(train.train_op)
        sent.append(in_process_cluster.crossed(session, train.train_op))

def trained(model, steps, **options):
    devices = options.get("shards", [1])[0]
    places = [
        (placement.on_cluster(spec, 2, kind="cpu", num_shards=devices), target)
        for spec, target in served]
    trains = [built(place, model, **options) for place, _ in places]
    for place, target in places:  # the tasks keep what was there before
        v1.Session.reset(target, config=placement.session_config(place))
    sent = []
    follower = threading.Thread(
        target=follow, args=(*places[1], trains[1], steps, sent), daemon=True)
    follower.start()
    (place, target), train = places[0], trains[0]
    config = placement.session_config(place)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, [], last_step=steps)
        values = trainer.whole(train.saved, session.run(train.saved))
        sent.append(in_process_cluster.crossed(session, train.train_op))
        follower.join()
    return values, train, sent

cases, steps = json.loads(sys.argv[1]), int(sys.argv[2])
found = {}
for name, (model, options) in cases.items():
    there, train, sent = trained(model, steps, **options)
    options.get("exchange", {}).pop("partition_bytes", None)  # there are no two devices
    towers = 4 // options.pop("shards", [1])[0]
    local = placement.local(towers, kind="cpu")
    alone = built(local, model, **options)
    with v1.Session(
        graph=alone.graph, config=placement.session_config(local)
    ) as session:
        loop.start(alone, session, lambda session: None)
        loop.run(alone, session, [], last_step=steps)
        here = trainer.whole(alone.saved, session.run(alone.saved))
    held = train.mode.variables
    found[name] = {
        "difference": trainer.difference(here, there),
        "trainable": 4 * train.template.parameters,
        "variables": 4 * sum(v.shape.num_elements() for v in held.values()),
        "devices": sorted({placement.task_of(v.device) for v in held.values()}),
        "crossed": sum(sent, []),
    }
in_process_cluster.tell(found)
"""


class ClientsOnClusterTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = in_process_cluster.found_inside(
            _INSIDE, json.dumps(_CASES), str(_STEPS)
        )

    @parameterized.parameters(*_CASES)
    def test_as_in_one_process(self, name):
        case = self.found[name]
        self.assertLess(case["difference"], 1e-5)
        self.assertEqual(case["devices"], ["/job:ps/task:0", "/job:ps/task:1"])

    def _crossed(self, name: str, source: str, other: str) -> int:
        return in_process_cluster.between(self.found[name]["crossed"], source, other)

    @parameterized.parameters(
        "parameter_server", "parts", "distributed_replicated", "classes"
    )
    def test_a_step_moves_the_parameters_once_each_way_for_each_client(self, name):
        case = self.found[name]
        for source, other, size in (
            ("ps", "worker", case["trainable"]),
            ("worker", "ps", case["variables"]),  # with batch statistics
        ):
            # Each of the two has two towers; beside the variables a few scalars.
            crossed = self._crossed(name, source, other)
            self.assertBetween(crossed, 2 * size, 2 * size + 400)
        self.assertEqual(self._crossed(name, "worker", "worker"), 0)
