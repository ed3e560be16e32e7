"""One task of a cluster is refused, or is not in the list: all hear of it, at once."""

import os

from tests import digit_runs, in_process_cluster
from tests.processes import programs

_FLAGS = (
    *("--model=tests.digit_runs:small_model", "--device=cpu", "--num_gpus=1"),
    "--num_warmup_batches=0",
)
# Four clusters.  A refused task is started when the others serve, or with them.
_REFUSED = """
import json, signal, sys, time
from tests.processes import manual_tasks
from towers.cluster import local_cluster

flags, folder = json.loads(sys.argv[1])
started = []

def cluster(*every):
    ps, *workers, chief = local_cluster.free_addresses(5)
    def start(job, index, *own, listed=2):
        hosts = [f"--ps_hosts={ps}", f"--worker_hosts={','.join(workers[:listed])}"]
        if "--replication=between_graph" not in every:
            hosts.append(f"--controller_host={chief}")
        names = [f"--job_name={job}", f"--task_index={index}"]
        started.append(manual_tasks.Task([*flags, *every, *hosts, *names, *own]))
        return started[-1]
    return start

def ends(*tasks):
    return [(task.end(), task.lines) for task in tasks]

facts = {}
try:
    start = cluster()
    others = start("ps", 0), start("worker", 0), start("worker", 1)
    for task in others:
        task.line(" serves at ")
    begun = time.monotonic()
    facts["controller"] = ends(start("controller", 0, "--optimizer=none"), *others)
    facts["seconds"] = [time.monotonic() - begun]

    start = cluster()
    begun = time.monotonic()
    controller = start("controller", 0)
    others = start("ps", 0), start("worker", 0)
    facts["worker"] = ends(
        controller, *others, start("worker", 1, "--device=gpu"))
    facts["seconds"].append(time.monotonic() - begun)

    start = cluster("--replication=between_graph")
    begun = time.monotonic()
    follower = start("worker", 1, "--num_batches=0")
    facts["follower"] = ends(start("worker", 0), start("ps", 0), follower)
    facts["seconds"].append(time.monotonic() - begun)

    start = cluster("--num_batches=1000000", "--save_model_steps=10000")
    controller = start("controller", 0, f"--train_dir={folder}")
    others = start("ps", 0), start("worker", 0), start("worker", 1)
    controller.line("images/sec")
    facts["stranger"] = ends(start("worker", 2, listed=3))
    facts["named"] = controller.line("takes no part")
    controller.line("images/sec")
    controller.process.terminate()
    facts["run"] = ends(controller, *others)
finally:
    for task in started:
        task.process.kill()
print(json.dumps(facts))
"""


class RefusalsTest(digit_runs.Runs):
    def test_whoever_is_refused_ends_all(self):
        programs.need_private_networks()
        facts = in_process_cluster.manual_tasks(
            *(_REFUSED, _FLAGS, os.path.join(self.directory, "run")),
            data_dir=digit_runs.data_dir(),
        )
        self.assertLess(max(facts["seconds"]), 300)  # and not --wait_secs=600
        controller, *others = facts["controller"]
        self.assertEqual(controller[0], 2)
        self.assertRegex(controller[1][-1], "^error: --optimizer=none: ")
        for status, lines in others:
            self.assertEqual(status, 2, lines)
        for name, fault in (
            ("worker", "--num_gpus=1: 1 GPU asked for, but this machine has 0"),
            ("follower", "--num_batches=0: must be at least"),
        ):
            leader, *others, refused = facts[name]
            self.assertEqual([leader[0], refused[0]], [1, 2], refused[1])
            words = rf"^error: worker 1 at \S+ is refused: {fault}"
            self.assertRegex(leader[1][-1], words)
            for status, lines in others:
                self.assertEqual(status, 1, lines)
        [(status, lines)] = facts["stranger"]
        self.assertEqual(status, 2, lines)
        words = r"worker 2 at \S+ is not in the list of the run, which has \S+:\d+, \S+"
        self.assertRegex(lines[-1], rf"^error: {words}, says the chief 0 at .*same ho")
        self.assertRegex(facts["named"], rf"^{words}: it takes no part\.$")
        # they took --save_model_steps without --train_dir
        for status, lines in facts["run"]:
            self.assertEqual(status, 143, lines)
