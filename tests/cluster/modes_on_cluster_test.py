"""On a cluster every mode takes the steps that it takes in one process.

All tasks are in one process, in a private network: two workers of two towers each, and
two ps tasks or none.
"""

import json

from absl.testing import parameterized

from tests import in_process_cluster

_STEPS = 4

# Name of a case -> (number of ps tasks, model, options).
_CASES = {
    "parameter_server": (2, "dense", {}),
    "no_ps": (0, "dense", {}),
    "in_turn": (2, "dense", dict(exchange=dict(variable_placement="round_robin"))),
    "parts": (2, "dense", dict(exchange=dict(partition_bytes=100))),
    "parts_of_tables": (2, "tables", dict(exchange=dict(partition_bytes=100))),
    "tables": (2, "tables", {}),
    "staged": (2, "dense", dict(variable_update="staged")),
    "distributed_replicated": (
        2,
        "dense",
        dict(variable_update="distributed_replicated"),
    ),
    "relaxed": (0, "dense", dict(variable_update="relaxed")),
    "accumulated": (2, "tables", dict(accumulate_steps=2)),
    "stateful": (2, "stateful", {}),
    "stateful_replicas": (0, "stateful", dict(variable_update="replicated")),
    "sync": (2, "normed", dict(batch_norm="sync")),
    "compiled": (2, "normed", dict(xla_compile=True)),
    "replicas_of_tables": (0, "tables", dict(variable_update="replicated")),
    **{
        spec: (
            0,
            "normed",
            dict(variable_update="replicated", exchange=dict(all_reduce_spec=spec)),
        )
        for spec in (
            "pscpu",
            "pscpu/pscpu",
            "psgpu/pscpu#2",
            "xring",
            "xring#2",
            "rechd",
            "tree",
            "hierarchical",
            "collective/xring",
            "pscpu:1k:xring/rechd",
        )
    },
}

_INSIDE = """
import dataclasses, functools, json, sys
import tensorflow as tf
from tests import (
    digit_runs,
    embedding_models,
    in_process_cluster,
    stateful_models,
    trainer,
)
from towers import graph, run_state
from towers.callbacks.base import NEVER, Callback
from towers.layout import cluster_spec, placement
from towers.session import device_loop, loop
from towers.gradients.exchange import GradientExchange
v1 = tf.compat.v1

both, target = in_process_cluster.serve(ps=2, devices=2)
def spec(ps):
    return cluster_spec.from_hosts(
        "chief", 0, ps=both.jobs["ps"][:ps], workers=both.jobs["worker"],
        controller=both.address(both.me))
where = placement.on_cluster(both, 2, kind="cpu")
config = placement.session_config(where)
update = dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0)
MODELS = {
    "dense": (trainer.dense_model(), trainer.random_source()),
    "tables": (embedding_models.model(), embedding_models.source()),
    "stateful": (stateful_models.two(), stateful_models.source()),
    "normed": (
        digit_runs.small_model(), trainer.random_source((8, 8, 1), 10, out=(6, 6, 1))),
}

def built(place, model, *, exchange=None, **options):
    options = graph.Options(
        batch_size=4, exchange=GradientExchange(**exchange or {}), **options)
    return graph.build(*MODELS[model], update, placement=place, options=options)

def trained(place, target, model, steps, **options):
    train = built(place, model, **options)
    config = placement.session_config(place)
    if target:  # the tasks keep the variables of the case before
        v1.Session.reset(target, config=config)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, [], last_step=steps)
        return trainer.whole(train.saved, session.run(train.saved)), train

class SeeLosses(Callback):
    def __init__(self, seen):
        self.seen = seen
    def next_due(self, step):
        return NEVER
    def before_run(self, run_context):
        return v1.train.SessionRunArgs(train.loss)
    def after_run(self, run_context, run_values):
        self.seen.append(float(run_values.results))
    def after_steps(self, step, losses, seconds):
        self.seen.extend(map(float, losses))

@functools.cache
def trained_here(model, options):
    place = placement.local(4, kind="cpu")
    return trained(place, "", model, steps, **json.loads(options))[0]

cases, steps = json.loads(sys.argv[1]), int(sys.argv[2])
found = {}
for name, (ps, model, options) in cases.items():
    place = placement.on_cluster(spec(ps), 2, kind="cpu")
    there, train = trained(place, target, model, steps, **options)
    devices = {placement.task_of(op.device) for op in train.graph.get_operations()}
    # What changes no step is left out here, so that many cases share a run.
    plain = {k: v for k, v in options.items() if k not in ("exchange", "xla_compile")}
    here = trained_here(model, json.dumps(plain))
    found[name] = [trainer.difference(here, there), sorted(devices)]

# Many steps in one call, and one in each.
train = built(where, "normed")
with train.graph.as_default():
    inner = device_loop.build(train.train_op, train.step, train.loss)
train = train._replace(loop=inner)
by_count = []
for count in (1, 4):
    v1.Session.reset(target, config=config)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        losses = []
        seen = SeeLosses(losses)
        loop.run(train, session, [seen], last_step=9, steps_per_loop=count)
        by_count.append((session.run(train.saved), losses))
(one, losses), (many, looped) = by_count
trainer.assert_same_bits(one, many)
assert len(looped) == 9 and losses == looped, (losses, looped)
found["looped"] = len(looped)

# Other batch sizes in the middle.
state, config.isolate_session_state = None, True
for sizes, last_step in (((4, 4, 4, 4), 1), ((7, 1, 2, 6), steps)):
    train = built(where, "dense", tower_batch_sizes=sizes, times_towers=True)
    with v1.Session(target, graph=train.graph, config=config) as session:
        loop.start(train, session,
                   lambda session: state and run_state.load(train, session, state))
        loop.run(train, session, [], last_step=last_step)
        state = run_state.read(train, session)
        seconds = session.run(train.tower_seconds)
found["resized"] = [
    trainer.difference(trained_here("dense", "{}"), state.values), seconds.tolist()]
config.isolate_session_state = False

# Each tower at its own pace.
train = built(where, "dense", variable_update="asynchronous",
              exchange=dict(max_staleness=2))
v1.Session.reset(target, config=config)
with v1.Session(target, graph=train.graph, config=config) as session:
    loop.start(train, session, lambda session: None)
    loop.run(train, session, [], last_step=40)
    step, position = session.run([train.global_step, train.position])
found["asynchronous"] = [
    int(step), int(position), sum(train.loop.staleness.values()),
    max(train.loop.staleness)]
in_process_cluster.tell(found)
"""


class TasksTogetherTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = in_process_cluster.found_inside(
            _INSIDE, json.dumps(_CASES), str(_STEPS)
        )

    @parameterized.parameters(*_CASES)
    def test_as_in_one_process(self, name):
        difference, tasks = self.found[name]
        self.assertLess(difference, 1e-5)
        workers = {f"/job:worker/task:{k}" for k in range(2)}
        ps = {f"/job:ps/task:{k}" for k in range(_CASES[name][0])}
        self.assertEqual(set(tasks) - {""}, {*workers, *ps, "/job:chief/task:0"})

    def test_many_steps_in_one_call_are_the_same_steps(self):
        self.assertEqual(self.found["looped"], 9)

    def test_other_batch_sizes_take_the_same_steps(self):
        difference, seconds = self.found["resized"]
        self.assertLess(difference, 1e-5)
        self.assertLen(seconds, 4)
        self.assertGreater(min(seconds), 0)

    def test_towers_that_do_not_wait(self):
        step, position, counted, stalest = self.found["asynchronous"]
        self.assertEqual((step, position, counted), (40, 40 * 4, 40))
        self.assertLessEqual(stalest, 2)
