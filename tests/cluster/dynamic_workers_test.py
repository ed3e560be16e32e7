"""A TFJob with `enableDynamicWorker`: workers join a controller that knows none."""

import re

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, programs

_MODEL = (
    *("--model=tests.digit_runs:small_model", "--device=cpu", "--batch_size=8"),
    *("--num_warmup_batches=0", "--save_model_steps=10000"),
)
_FLAGS = (
    *("--num_batches=1000000", "--stall_secs=3", "--wait_secs=120"),
    *("--min_workers=2", "--max_workers=3"),
)

# The tasks differ in TF_CONFIG alone.  Two workers begin, a third joins, one leaves.
_JOB = """
import json, os, signal, sys
from tests.processes import manual_tasks
from towers.cluster import local_cluster

flags, = json.loads(sys.argv[1])
chief, ps, *workers = local_cluster.free_addresses(5)
flags += [f"--controller_host={chief}", f"--ps_hosts={ps}"]
tasks = {}

def start(job, index=0, **hosts):
    task = {"type": job, "index": index}
    config = {"TF_CONFIG": json.dumps({"cluster": hosts, "task": task})}
    tasks[job, index] = manual_tasks.Task(flags, config)

def line(pattern):
    return tasks["chief", 0].line(pattern)

try:
    start("chief", ps=[], worker={})
    start("ps", ps=[ps], worker={})
    for index in range(2):
        start("worker", index, ps=[ps], worker={str(index): workers[index]})
    line("^Workers from step 0 on: 0 and 1; 3 towers of 8 ")
    line("images/sec")
    start("worker", 2, chief={"0": chief}, ps=[ps], worker={"2": workers[2]})
    line(f"^worker 2 at {workers[2]} joins")
    line("^Workers from step .* on: 0, 1 and 2; 3 towers of 8 ")
    line("images/sec")
    os.kill(tasks["worker", 1].process.pid, signal.SIGTERM)
    line(f"^worker . at {workers[1]} leaves .SIGTERM")
    line("^Workers from step .* on: . and 2; 3 towers of 8 ")
    line("images/sec")
    os.kill(tasks["chief", 0].process.pid, signal.SIGTERM)
    statuses = [task.end() for task in tasks.values()]
finally:
    for task in tasks.values():
        task.process.kill()
print(json.dumps([statuses, tasks["chief", 0].lines]))
"""


class DynamicWorkersTest(digit_runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    def test_the_controller_takes_who_comes(self):
        """The variables are those of three workers that are there all the time."""
        flags = (*_MODEL, *_FLAGS, f"--train_dir={self.directory}/dynamic")
        statuses, lines = in_process_cluster.manual_tasks(
            _JOB, flags, data_dir=digit_runs.data_dir()
        )
        self.assertEqual(statuses, [143] * 5, lines[-20:])
        stopped = re.search(r"^Stopped by SIGTERM after step (\d+), sav", lines[-1])
        last = int(stopped[1])
        whole = forked_cluster.ForkedCluster(
            *(*_MODEL, f"--num_batches={last}", f"--train_dir={self.directory}/whole"),
            tasks="ps:1,worker:3",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(whole.kill)
        self.assertEqual(whole.end(), 0, whole.lines[-20:])
        wanted, values = self.values(last, "whole"), self.values(last, "dynamic")
        trainer.assert_same_bits(wanted, values)
