"""A whole job is stopped: every task gets the signal, as from a scheduler.

The controller still saves, for which the others outlive the signal.  The run goes on
later, to the variables of one that nobody stopped.
"""

import os
import re
import signal

from absl.testing import parameterized

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, programs

_FLAGS = ("--model=tests.digit_runs:small_model", "--num_warmup_batches=0")
_SAVING = (*_FLAGS, "--save_model_steps=10000", "--stop_grace_secs=120")

# First one task alone gets the signal twice, leaves, and is started again, in one case
# after a task with another token in its place.  Then all get it, servers first.  A
# second cluster goes on, to a step that a third takes undisturbed.
_STOPPED = """
import json, re, signal, sys, time
from tests.processes import manual_tasks

flags, between, folders, number, alone, stray = json.loads(sys.argv[1])
clusters, refusals = [], []

def begin(folder, steps):
    own = [f"--train_dir={folder}", f"--num_batches={steps}"]
    clusters.append(manual_tasks.Tasks(*flags, *own, between=between))
    return clusters[-1]

try:
    cluster = begin(folders[0], 1000000)
    cluster.line("images/sec")
    alone = tuple(alone)
    cluster.send(alone, number)
    came = cluster.line("came; it serves 120 s more at most", of=alone)
    time.sleep(1.1)  # longer than an echo
    cluster.past()
    cluster.send(alone, number)
    left = cluster.tasks[alone].end(), cluster.tasks[alone].lines[-1]
    cluster.line(f"^Waiting for {alone[0]} {alone[1]} at ")
    if stray:  # a task of another cluster, in its place
        cluster.start(alone, f"--cluster_token_file={stray}")
        refusals = [cluster.line("^Not used: ", of=alone)]
        cluster.send(alone, signal.SIGKILL)
    cluster.start(alone)
    cluster.line("images/sec")
    cluster.past()
    names = sorted(cluster.tasks, key=lambda name: name == cluster.leader)
    for name in names:
        if name == cluster.leader:
            time.sleep(1.0)  # whatever ends at once has ended
        cluster.send(name, number)
    ends = cluster.end()
    step = int(re.search(r"step (\\d+)", ends[f"{names[-1][0]} 0"][1][-1])[1])
    more = begin(folders[0], step + 20).end()
    whole = begin(folders[1], step + 20).end()
finally:
    for each in clusters:
        each.kill()
print(json.dumps([left, refusals, ends, step, more, whole]))
"""


class StopAllTest(digit_runs.Runs, parameterized.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    @parameterized.named_parameters(
        ("one_graph", False, signal.SIGTERM, ("ps", 0)),
        ("clients", True, signal.SIGINT, ("worker", 1)),
    )
    def test_all_tasks_get_the_signal_and_the_run_is_saved(
        self, between, number, alone
    ):
        folders = [os.path.join(self.directory, name) for name in ("stopped", "whole")]
        token, stray = self.token(), "" if between else self.token("stray")
        flags = (*_SAVING, f"--cluster_token_file={token}")
        left, refusals, ends, step, *others = in_process_cluster.manual_tasks(
            *(_STOPPED, flags, between, folders, number, alone, stray),
            data_dir=digit_runs.data_dir(),
        )
        name = signal.Signals(number).name
        self.assertEqual(left[0], 128 + number)
        self.assertRegex(
            left[1], f"stopped by {name} before training ended; started ag"
        )
        self.assertLen(ends, 3 if between else 4)
        if stray:
            another = "chief 0 has another cluster token than ps 0; give all"
            self.assertRegex(refusals[0], f"^Not used: {another}")
        printed = [line for _, lines in ends.values() for line in lines]
        self.assertFalse([line for line in printed if "token of this" in line])
        leader = "worker 0" if between else "controller 0"
        for task, (status, lines) in ends.items():
            self.assertEqual(status, 128 + number, (task, lines))
            said = f"^{task}: {name} came; it serves 120 s more"
            if task == leader:
                said = rf"^Stopped by {name} after step {step}, saved to .*goes on from"
            self.assertRegex(lines[-1], said)
        for statuses in others:
            for task, (status, lines) in statuses.items():
                self.assertEqual(status, 0, (task, lines))
        _, lines = others[0][leader]
        resumed = [line for line in lines if line.startswith("Resuming from ")]
        self.assertLen(resumed, 1)
        self.assertEndsWith(resumed[0], f"model.ckpt-{step}")
        stopped, whole = (self.values(step + 20, n) for n in ("stopped", "whole"))
        trainer.assert_same_bits(whole, stopped)

    def test_a_local_cluster_whose_processes_all_get_it(self):
        directory = os.path.join(self.directory, "launched")
        cluster = forked_cluster.ForkedCluster(
            *(*_SAVING, "--num_batches=1000000", f"--train_dir={directory}"),
            tasks="ps:1,worker:1",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        cluster.line("images/sec")
        tasks = (("ps", 0), ("worker", 0), ("controller", 0))
        for pid in [*(cluster.pid(*task) for task in tasks), cluster.process.pid]:
            os.kill(pid, signal.SIGTERM)
        stopped = cluster.line("^Stopped by SIGTERM after step .*saved to .*goes on fr")
        self.assertEqual(cluster.end(), 143, cluster.lines[-20:])
        self.assertEmpty(cluster.left())
        step = int(re.search(r"step (\d+)", stopped)[1])
        self.assertNotEmpty(self.values(step, "launched"))
        self.assertFalse([line for line in cluster.lines if line.startswith("error")])
