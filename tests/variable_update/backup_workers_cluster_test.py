"""Clients of one cluster of which one is slow: what is used, and what is dropped.

All tasks are in one process, in a private network: a ps task, and three workers of one
tower each, which are clients.  One of them sleeps before some of its steps.
"""

import json

from absl.testing import parameterized

from tests import in_process_cluster

_STEPS = 12
_BATCH = 4

# Name of a run -> what it is of `_INSIDE`'s `trained`.
_RUNS = {
    "skip": dict(slow=2),
    "skip_again": dict(slow=1, log="skip"),
    "replay": dict(slow=2, replay=True, model="normed", every=2),
    "replay_resumed": dict(
        slow=1, replay=True, model="normed", log="replay", begin="replay"
    ),
    "epoch": dict(slow=2, replay=True, every=2, limit=150),
    "two": dict(slow=0, model="normed", log=[[0, [0, 1]]]),
    "two_replicas": dict(
        slow=0,
        model="tables",
        steps=4,
        log=[[0, [0, 1]]],
        variable_update="distributed_replicated",
    ),
}

_INSIDE = """
import contextlib, copy, dataclasses, json, sys, tempfile, threading, time
import numpy as np
import tensorflow as tf
from tests import digit_runs, embedding_models, in_process_cluster, trainer
from towers import graph
from towers.callbacks.base import NEVER, Callback
from towers.callbacks.report_dropped import ReportDropped
from towers.checkpoints import loading
from towers.data.source import ClientShare
from towers.errors.side_outputs import SideOutputs
from towers.layout import placement
from towers.membership_log import FILE, MembershipFile, MembershipLog
from towers.session import follower, loop
from towers.variable_update import between_graph
from towers.variable_update.backup_workers import BackupWorkers
from towers.variable_update.step_quota import RestartedError
v1 = tf.compat.v1

runs, steps, batch = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
update = dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0)
MODELS = {
    "dense": (trainer.dense_model(), trainer.random_source()),
    "tables": (embedding_models.model(), embedding_models.source()),
    "normed": (
        digit_runs.small_model(), trainer.random_source((8, 8, 1), 10, out=(6, 6, 1))),
}
served = in_process_cluster.serve_clients(ps=1, devices=1, workers=3)

class Sleep(Callback):
    # Makes a client slow in every few of its steps, and notes what it reads.
    def __init__(self, train, every, seconds, ids):
        self._every, self._seconds = every, seconds
        self._ids, self._count = ids, 0
        self._fetches = [train.feed.batches[0].first, train.clients.used]
    def before_run(self, run_context):
        self._count += 1
        if self._every and self._count % self._every == 0:
            time.sleep(self._seconds)
        return v1.train.SessionRunArgs(self._fetches)
    def after_run(self, run_context, run_values):
        first, used = run_values.results
        if np.ravel(used)[0]:
            self._ids.append(int(first))

class Keep(Callback):
    # Keeps the state after some steps, and counts the clients that are used.
    def __init__(self, train, at):
        self._train, self._at, self.state, self.used = train, at, {}, 0
    def before_run(self, run_context):
        return v1.train.SessionRunArgs([self._train.step, self._train.clients.used])
    def after_run(self, run_context, run_values):
        step, used = run_values.results
        self.used += int(used.sum())
        if step == self._at:
            self.state = run_context.session.run(self._train.saved)

def follow(place, target, train, sleep):
    config = placement.session_config(place)
    with tf.Graph().as_default() as waiting, tf.device(place.counters):
        token = between_graph.token_queue(place.client).dequeue()
    with v1.Session(target, graph=waiting, config=config) as session:
        stamp = abs(int(session.run(token)))
    with v1.Session(target, graph=train.graph, config=config) as session:
        # As `follower.follow` does it; its sessions would need real tasks.
        train.clients.begin(session, stamp)
        session.run(train.sync)
        session.run(train.feed.initializer)
        hooks = [follower.CheckTokens(train, stamp), sleep]
        with contextlib.suppress(RestartedError):
            loop.run(train, session, hooks, last_step=NEVER)

def built(place, model, **options):
    options = graph.Options(batch_size=batch, **options)
    return graph.build(*MODELS[model], update, placement=place, options=options)

def trained(
        slow, model="dense", replay=False, log=None, begin=None, every=1, steps=steps,
        **options):
    places = [
        (placement.on_cluster(spec, 1, kind="cpu"), target) for spec, target in served]
    if isinstance(log, str):
        log = found[log]["log"]
    backup = BackupWorkers(1, replay)
    if log:
        log = MembershipLog(tuple((step, tuple(who)) for step, who in log))
    trains = [
        built(place, model, backup=dataclasses.replace(
            backup, log=None if place.client else log), **options)
        for place, _ in places]
    for place, target in places:  # the tasks keep what was there before
        v1.Session.reset(target, config=placement.session_config(place))
    ids = [[] for _ in places]
    seconds = 0.05 if log else 0.3
    sleeps = [
        Sleep(train, every if k == slow else 0, seconds, ids[k])
        for k, train in enumerate(trains)]
    threads = [
        threading.Thread(
            target=follow, args=(*places[k], trains[k], sleeps[k]), daemon=True)
        for k in (1, 2)]
    for thread in threads:
        thread.start()
    (place, target), train, lines = places[0], trains[0], []
    folder = tempfile.mkdtemp()
    report = ReportDropped(
        train, lines.append, MembershipFile(folder, SideOutputs()), every=4)
    config = placement.session_config(place)
    with v1.Session(target, graph=train.graph, config=config) as session:
        def restore(session):
            for name, value in (states[begin] if begin else {}).items():
                loading.put(session, train.saved[name], value)
        loop.start(train, session, restore)
        keep = Keep(train, steps // 2)
        hooks = [report, sleeps[0], keep]
        more = lambda: loop.owed_steps(train, session)
        last_step = loop.steps_left(train, session) if train.options.limit else steps
        step = loop.run(train, session, hooks, last_step=last_step, more=more)
        values = session.run(train.saved)
        until = time.monotonic() + 20
        while sum(map(len, ids)) < keep.used and time.monotonic() < until:
            time.sleep(0.01)  # until followers have the tokens of the last step
        for run in (1, 2):  # tokens of other runs: one may still wait for the first
            session.run(train.clients._send_tokens, {train.clients._given: run << 40})
        for thread in threads:
            thread.join()
    entries = MembershipLog.read(folder + "/" + FILE).changes
    return values, keep.state, train, {
        "log": entries, "lines": lines, "ids": sum(ids, []), "step": step}

def of_the_first(source, count):
    # The examples of the first clients alone, of a step of all.
    plain, source = source.feed, copy.copy(source)
    rows = (count * batch, (3 - count) * batch)
    def feed(groups, part, **options):
        part = ClientShare(0, 2, order=part.order, rows=rows)
        return plain(groups, part=part, **options)._replace(weight=None)
    source.feed = feed
    return source

def alone(model, steps, **options):
    # Two towers in one process, which read what the first two clients do.
    network, source = MODELS[model]
    local = placement.local(2, kind="cpu")
    options = graph.Options(batch_size=batch, **options)
    source = of_the_first(source, 2)
    train = graph.build(network, source, update, placement=local, options=options)
    config = placement.session_config(local)
    with v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        loop.run(train, session, [], last_step=steps)
        return session.run(train.saved)

found, states, ends = {}, {}, {}
for name, run in runs.items():
    ends[name], states[name], train, found[name] = trained(**run)
    first = run.get("log")
    if isinstance(first, str):
        found[name]["differ"] = [
            name_ for name_, value in ends[first].items()
            if not np.array_equal(value, ends[name][name_])]
    elif first:
        here = alone(
            run["model"], run.get("steps", steps),
            variable_update=run.get("variable_update", "parameter_server"))
        there = {n: ends[name][n] for n in here}
        here, there = ({n: v for n, v in of.items() if n != "position"}
                       for of in (here, there))
        found[name]["difference"] = trainer.difference(here, there)
    for count in ("position", "skipped_examples", "client_offsets"):
        if count in ends[name]:
            found[name][count] = np.asarray(ends[name][count]).tolist()
in_process_cluster.tell(found)
"""


class BackupWorkersOnClusterTest(parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = in_process_cluster.found_inside(
            _INSIDE, json.dumps(_RUNS), str(_STEPS), str(_BATCH)
        )

    def test_the_slow_one_is_dropped_and_named(self):
        run = self.found["skip"]
        self.assertEqual(min(len(workers) for _, workers in run["log"]), 2)
        self.assertEqual(run["step"], _STEPS)
        last = run["lines"][-1]
        self.assertRegex(last, r"^Dropped in 12 steps: .*worker 2 \d+ times.*")
        self.assertRegex(last, "the slowest is worker 2; ")
        self.assertRegex(run["lines"][0], "^Dropped up to step 4: ")
        skipped = run["skipped_examples"]
        self.assertEqual(run["position"], _STEPS * 3 * _BATCH)
        self.assertRegex(last, f"; {skipped} examples were skipped so far")
        self.assertEqual(skipped, _BATCH * (3 * _STEPS - len(run["ids"])))
        self.assertLen(set(run["ids"]), len(run["ids"]))

    def test_the_log_makes_the_same_bits(self):
        for again in ("skip_again", "replay_resumed"):
            self.assertEmpty(self.found[again]["differ"])
        self.assertEqual(self.found["skip_again"]["log"], self.found["skip"]["log"])

    def test_dropped_examples_are_taken_again(self):
        run = self.found["replay"]
        self.assertEqual(run["position"], _BATCH * len(run["ids"]))
        self.assertLess(min(len(workers) for _, workers in run["log"]), 3)
        # Each client's are the next ones of its part, without a gap.
        for client in range(3):
            mine = [i for i in run["ids"] if i // _BATCH % 3 == client]
            first = client * _BATCH
            self.assertEqual(mine, list(range(first, first + 12 * len(mine), 12)))
        places = [run["position"] + offset for offset in run["client_offsets"]]
        self.assertEqual(sum(places) // 3, run["position"])

    def test_each_example_of_an_epoch_is_used_once(self):
        run = self.found["epoch"]
        self.assertEqual(run["position"], 150)
        self.assertGreater(run["step"], -(-150 // (3 * _BATCH)))
        used = [i for i in run["ids"] if i < 150]
        self.assertCountEqual(used, range(0, 150, _BATCH))

    @parameterized.parameters("two", "two_replicas")
    def test_the_mean_is_over_what_was_used(self, name):
        self.assertLess(self.found[name]["difference"], 1e-5)
