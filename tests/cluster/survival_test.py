"""Real processes, really killed or frozen: what is lost is nothing.

Many more kills, at any moment, are in `benchmarks/chaos.py`.
"""

import contextlib
import io
import os
import re
import signal
import time
from unittest import mock

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, manual_tasks, programs
from towers import train
from towers.checkpoints import run_status
from towers.evaluation import watch

_EVALUATE = "--eval_during_training_at_specified_steps"
_FLAGS = ("--model=tests.digit_runs:small_model", "--num_warmup_batches=0")
_SAVING = (*_FLAGS, "--save_model_steps=10", "--max_ckpts_to_keep=0", "--stall_secs=2")

# Clusters started task by task; in each, another task is frozen for good.
_FROZEN = """
import json, signal, sys
from tests.processes import manual_tasks

flags, folder, names = json.loads(sys.argv[1])
clusters = []
try:
    for name in map(tuple, names):
        own = f"--train_dir={folder}/{name[0]}{name[1]}"
        clusters.append(manual_tasks.Tasks(*flags, own, between=True))
        clusters[-1].line(r"^30\\t")
        clusters[-1].send(name, signal.SIGSTOP)
    found = [
        cluster.end(but=tuple(name)) for name, cluster in zip(names, clusters)]
finally:
    for cluster in clusters:
        cluster.kill()
print(json.dumps(found))
"""

# Another leader comes, and is refused without harm.  Then tasks are killed and started
# anew by hand: a ps task while it is waited for, a ps
# task and a worker at once, a worker that is frozen, and the leader.  Others are frozen
# and wake.  Then a cluster that nobody disturbs takes as many steps.
_DISTURBED = """
import json, re, signal, sys
from tests.processes import manual_tasks

flags, between, folders, least = json.loads(sys.argv[1])

def begin(folder, steps):
    own = [f"--train_dir={folder}", f"--num_batches={steps}"]
    clusters.append(manual_tasks.Tasks(*flags, *own, between=between))
    return clusters[-1]

clusters = []
cluster = begin(folders[0], 1000000)
ps, worker = ("ps", 0), ("worker", 1)

def goes_on():
    cluster.line("^Resuming from ")
    return int(re.match(r"\\d+", cluster.line(r"^\\d+\\timages/sec"))[0])

def start(*names):
    cluster.past()
    for name in names:
        cluster.start(name)
    return goes_on()

def freeze(name):
    cluster.past()
    cluster.send(name, signal.SIGSTOP)
    cluster.line(rf"^No step for \\d s: {name[0]} {name[1]} at .*: it is frozen")

def wake(name):
    freeze(name)
    cluster.line(f"^Waiting for {name[0]} {name[1]} at ")  # given up
    cluster.past()
    cluster.send(name, signal.SIGCONT)
    goes_on()

try:
    cluster.line(r"^30\\t")
    other = cluster.other_leader(f"--train_dir={folders[0]}-other")
    cluster.past()
    cluster.line("images/sec")
    before = cluster.tasks[cluster.leader].lines
    disturbed = [line for line in before if line.startswith("Lost")]
    cluster.send(ps, signal.SIGKILL)
    cluster.line("^Waiting for ps 0 at .*: nothing answers there")
    start(ps)
    cluster.send(worker, signal.SIGKILL)
    cluster.send(ps, signal.SIGKILL)
    cluster.line("^Waiting for ps 0 at .*: nothing .*; worker 1 at .*: nothing")
    start(worker, ps)
    wake(worker)
    if between:
        wake(ps)
    cluster.send(cluster.leader, signal.SIGSTOP)
    if between:
        said = r"^No step for \\d s: worker 0 at .*it is frozen"
    else:
        said = "^worker 1: no answer from the controller at 127.0.0.1:.*frozen"
    cluster.line(said, of=worker)
    cluster.past()
    cluster.send(cluster.leader, signal.SIGCONT)
    if not between:
        cluster.line("the controller at .* answers again", of=worker)
    # A follower, too, comes back: the chief waits for its part of each step.
    cluster.line("images/sec")
    freeze(worker)
    cluster.send(worker, signal.SIGKILL)
    start(worker)
    cluster.send(cluster.leader, signal.SIGKILL)
    step = start(cluster.leader)
    cluster.send(cluster.leader, signal.SIGTERM)
    stopped = cluster.line("^Stopped by SIGTERM after step .*saved to")
    last = int(re.search(r"step (\\d+)", stopped)[1])
    found = cluster.end()
    ends = begin(folders[1], max(last, least)).end()
finally:
    for each in clusters:
        each.kill()
print(json.dumps([[*other, disturbed], step, last, found, ends]))
"""


class Disturbed(digit_runs.Runs):
    """A test case that kills and freezes tasks."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    def _assert_nothing_was_lost(self, name: str, last: int) -> None:
        """In a run, against the one that nobody disturbed, where both have saved."""
        step = last // 10 * 10
        trainer.assert_same_bits(self.values(step, "whole"), self.values(step, name))

    def _disturb(self, *flags: str, between: bool, least: int = 0) -> manual_tasks.Ends:
        """Kills and freezes tasks that are started by hand; how undisturbed ones end.

        These take as many steps as the others, or `least`.
        """
        folders = [
            os.path.join(self.directory, name) for name in ("disturbed", "whole")
        ]
        other, step, last, *ends_seen = in_process_cluster.manual_tasks(
            *(_DISTURBED, [*_SAVING, *flags], between, folders, least),
            data_dir=digit_runs.data_dir(),
        )
        status, lines, disturbed = other
        self.assertEqual((status, disturbed), (1, []))
        self.assertRegex(lines[-1], "^error: .* start all with the same hosts$")
        for ends, ended in zip(ends_seen, (128 + signal.SIGTERM, 0)):
            self.assertLen(ends, 3 if between else 4)
            for name, (status, lines) in ends.items():
                self.assertEqual(status, ended, (name, lines))
        self.assertGreaterEqual(last, step)
        self._assert_nothing_was_lost("disturbed", last)
        return ends_seen[1]


def _wait_until_it_answers(cluster: forked_cluster.ForkedCluster) -> None:
    """Until each task that missed the killed controller has found the new one.

    A task that still misses it would print nothing new when the next one is frozen.
    """
    again = "the controller at .* answers again"
    pattern = rf"^\[(\w+ \d)\] .*(no answer from the controller|{again})"
    while True:
        said = [re.findall(pattern, line) for line in cluster.lines]
        last = dict(pair for pairs in said for pair in pairs)
        if not any(phrase.startswith("no answer") for phrase in last.values()):
            return
        cluster.line(again)


# Several classes, as pytest-xdist gives each class to one of its processes.
class OneGraphTest(Disturbed):
    def _launch_and_disturb(self, *flags: str) -> int:
        """Kills and freezes tasks that a launcher started; returns the last step."""
        directory = os.path.join(self.directory, "launched")
        cluster = forked_cluster.ForkedCluster(
            *(*_SAVING, *flags, "--num_batches=1000000", "--num_gpus=2"),
            f"--train_dir={directory}",
            tasks="ps:1,worker:2",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        cluster.line(r"^60\t")
        for job, index in (("worker", 1), ("ps", 0), ("controller", 0)):
            os.kill(cluster.pid(job, index), signal.SIGKILL)
            cluster.line(f"^{job} {index} was killed by SIGKILL; it is started again")
            cluster.line("Resuming from ")
        _wait_until_it_answers(cluster)
        controller = cluster.pid("controller")
        os.kill(controller, signal.SIGSTOP)
        said = (
            r"^\[\w+ \d\] \w+ \d: no answer from the controller at 127.0.0.1:.*frozen"
        )
        both = (said, "^controller 0 is stopped and does")
        first = cluster.line("|".join(both))
        cluster.line(both[0] if re.search(both[1], first) else both[1])
        os.kill(controller, signal.SIGCONT)
        cluster.line("the controller at .* answers again")
        step = int(re.match(r"\d+", cluster.line(r"^\d+\timages/sec"))[0])
        cluster.process.send_signal(signal.SIGTERM)
        stopped = cluster.line("^Stopped by SIGTERM after step .*saved to")
        last = int(re.search(r"step (\d+)", stopped)[1])
        self.assertGreaterEqual(last, step)
        self.assertEqual(cluster.end(), 143, cluster.lines[-20:])
        self.assertEmpty(cluster.left())
        return last

    def test_every_kind_of_task_is_killed_or_frozen_and_nothing_is_lost(self):
        """And the run that loses nothing is that of this process, but for rounding."""
        evaluate = f"{_EVALUATE}=10"
        last = self._launch_and_disturb(evaluate)
        whole = self._disturb(evaluate, between=False, least=last)
        self._assert_nothing_was_lost("launched", last)
        alone = self.run_flags(
            model="tests.digit_runs:small_model",
            num_gpus=4,
            num_batches=10,
            num_warmup_batches=0,
            eval_at_end=True,
            train_dir=os.path.join(self.directory, "alone"),
        )
        undisturbed, other = self.values(10, "alone"), self.values(10, "whole")
        self.assertLess(trainer.difference(undisturbed, other), 1e-5)
        _, lines = whole["controller 0"]
        self.assertEqual(digit_runs.accuracies(alone), digit_runs.accuracies(lines))


class ClientsTest(Disturbed):
    def test_clients_with_graphs_of_their_own_lose_nothing_either(self):
        """A follower, a ps task and the chief, which is worker 0."""
        self._disturb(between=True)

    def test_a_client_or_ps_that_never_wakes_ends_the_run(self):
        names = (("worker", 1), ("ps", 0), ("worker", 0))
        flags = [*_SAVING, "--wait_secs=12", "--num_batches=1000000"]
        ends_seen = in_process_cluster.manual_tasks(
            *(_FROZEN, flags, self.directory, names), data_dir=digit_runs.data_dir()
        )
        for (job, index), ends in zip(names, ends_seen):
            self.assertLen(ends, 2)
            for name, (status, lines) in ends.items():
                self.assertEqual(status, 1, (name, lines))
            said = "\n".join(line for _, lines in ends.values() for line in lines)
            leads = (job, index) == ("worker", 0)
            who = "no controller" if leads else f"{job} {index}"
            self.assertRegex(said, f"error: .*{who} at .*it is frozen")


class EvaluatorTest(digit_runs.Runs):
    def test_an_evaluator_ends_when_the_training_failed(self):
        """It runs in this process; how it waits is in `watch_test`."""
        directory = os.path.join(self.directory, "failing")
        flags = [*_FLAGS, "--job_name=evaluator", f"--train_dir={directory}"]
        hosts = ["--worker_hosts=127.0.0.1:9", "--controller_host=127.0.0.1:10"]

        def fail(seconds, over):
            run_status.leave(directory, "the loss is not finite")

        def look(seconds, over):
            time.sleep(0.2)

        for more, wait, reason in (
            ([], fail, "the training failed: the loss is not finite"),
            ([*hosts, "--wait_secs=1"], look, "no controller at .*:10 for 1 s"),
        ):
            with (
                mock.patch.dict(os.environ, TFDS_DATA_DIR=digit_runs.data_dir()),
                mock.patch.object(watch, "_wait", wait),
                contextlib.redirect_stderr(io.StringIO()) as errors,
            ):
                self.assertEqual(train.main(["train", *flags, *more]), 1)
            said = f"error: no more checkpoints will come: .*{reason}"
            self.assertRegex(errors.getvalue(), said)
