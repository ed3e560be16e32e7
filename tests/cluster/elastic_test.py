"""Workers of real processes are killed, join and leave, and the result stays exact."""

import collections
import json
import os
import re
import signal
from unittest import mock

import tensorflow as tf

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, programs, step_examples

# 32 examples a step.
_FLAGS = (
    "--model=tests.digit_runs:small_model",
    "--batch_norm=sync",
    "--batch_size=8",
    "--num_warmup_batches=0",
    "--save_model_steps=10000",
)
_LOGGING = f"--callbacks={step_examples.__name__}:logging"
_ELASTIC = (
    *("--device=cpu", "--elastic=keep_batch", "--min_workers=2", "--wait_secs=120"),
    *(_LOGGING, "--num_batches=1000000", "--memory_copy_steps=10"),
)

# Four workers; 1 is killed; one that nobody knew joins; 2 leaves, and 3 is killed.
# Then 0 is killed as well, and the run waits until the one that joined is not alone.
# Last the ps is killed, and started again.
_COME_AND_GO = """
import json, os, re, signal, sys
from tests.processes import manual_tasks
from towers.cluster import local_cluster

flags, = json.loads(sys.argv[1])
ps, leader, *workers = local_cluster.free_addresses(6)
listed = [
    f"--ps_hosts={ps}", f"--worker_hosts={','.join(workers)}",
    f"--controller_host={leader}",
]
tasks = {}

def start(job, index=0, join=None):
    own = [f"--join={join}"] if join else [*listed, f"--task_index={index}"]
    words = [*flags, *own, f"--job_name={job}"]
    tasks[f"{job} {index}"] = manual_tasks.Task(words)

def kill(name, number=signal.SIGKILL):
    os.kill(tasks[name].process.pid, number)

def line(pattern):
    return tasks["controller 0"].line(pattern)

try:
    for job, count in (("ps", 1), ("controller", 1), ("worker", 4)):
        for index in range(count):
            start(job, index)
    line("^Workers from step 0 on: 0, 1, 2 and 3; 4 towers of 8 ")
    line("^5\\t|^10\\timages/sec")
    kill("worker 1")
    line("^Lost worker 1 at .*The others go on")
    line("^Workers from step .* on: 0, 2 and 3; 3 towers of 11 or 10 ")
    start("worker", 4, leader)
    line("^worker 4 at .* joins")
    line("^Workers from step .* on: 0, 2, 3 and 4; 4 towers of 8 ")
    kill("worker 2", signal.SIGTERM)
    line("^worker 2 at .* leaves .SIGTERM")
    left = line("^Workers from step .* on: 0, 3 and 4; 3 towers of 11 or 10 ")
    status = tasks["worker 2"].end()
    kill("worker 3")
    line("^Workers from step .* on: 0 and 4; 2 towers of 16 ")
    kill("worker 0")
    line(r"^Waiting for worker 0 at .* .1 of --min_workers=2")
    start("worker", 0)
    line("^Workers from step .* on: 0 and 4; 2 towers of 16 ")
    kill("ps 0")
    line("^Lost ps 0 at ")
    start("ps", 0)
    line("^Workers from step .* on: 0 and 4; 2 towers of 16 ")
    line("images/sec")
    kill("controller 0", signal.SIGTERM)
    names = "controller 0", "ps 0", "worker 0", "worker 4"
    statuses = [tasks[name].end() for name in names]
except AssertionError:
    for name, task in tasks.items():
        task.rest(0.0)
        words = [text for text in task.lines if not re.search("images|input", text)]
        print(name, *words[-20:], sep="\\n  ", file=sys.stderr)
    raise
finally:
    for task in tasks.values():
        task.process.kill()
print(json.dumps([status, statuses, tasks["controller 0"].lines]))
"""


class ElasticTest(digit_runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        programs.need_private_networks()

    def test_workers_come_and_go(self):
        folder = os.path.join(self.directory, "elastic")
        log = os.path.join(self.create_tempdir(), "examples")
        flags = (*_FLAGS, *_ELASTIC, f"--train_dir={folder}")
        with mock.patch.dict(os.environ, STEP_EXAMPLES=log, STEP_SECONDS="0.03"):
            left, statuses, lines = in_process_cluster.manual_tasks(
                _COME_AND_GO, flags, data_dir=digit_runs.data_dir()
            )
        self.assertEqual(left, 143)
        self.assertEqual(statuses, [143] * 4)
        stopped = re.search(r"^Stopped by SIGTERM after step (\d+), sav", lines[-1])
        last = int(stopped[1])
        with open(log, encoding="utf-8") as file:
            taken = list(map(json.loads, file))
        self.check_examples(taken, last, 32)
        self.check_no_step_is_lost(taken, lines)
        self.run_flags(
            callbacks=[tf.compat.v1.train.SessionRunHook()],
            train_dir=os.path.join(self.directory, "calm"),
            model="tests.digit_runs:small_model",
            batch_norm="sync",
            batch_size=8,
            num_gpus=4,
            num_warmup_batches=0,
            num_batches=last,
        )
        calm, elastic = (self.values(last, name) for name in ("calm", "elastic"))
        self.assertLess(trainer.difference(calm, elastic), 1e-5)
        with mock.patch.dict(os.environ, STEP_EXAMPLES=os.devnull):
            replayed = forked_cluster.ForkedCluster(
                *(*_FLAGS, "--elastic=keep_batch", f"--num_batches={last}", _LOGGING),
                f"--replay_membership={folder}/membership.jsonl",
                f"--train_dir={self.directory}/replayed",
                tasks="ps:1,worker:4",
                data_dir=digit_runs.data_dir(),
            )
        self.addCleanup(replayed.kill)
        self.assertEqual(replayed.end(), 0, replayed.lines[-20:])
        trainer.assert_same_bits(elastic, self.values(last, "replayed"))

    def test_without_a_worker_the_bits_are_the_same(self):
        """The towers of the one that was killed run beside those of another."""
        flags = ("--elastic", "--max_restarts=0", "--num_batches=600", *_FLAGS)
        values = []
        for name in ("whole", "lossy"):
            cluster = forked_cluster.ForkedCluster(
                *(*flags, f"--train_dir={self.directory}/{name}"),
                tasks="ps:1,worker:3",
                data_dir=digit_runs.data_dir(),
            )
            self.addCleanup(cluster.kill)
            if name == "lossy":
                cluster.line(r"^20\t")
                os.kill(cluster.pid("worker", 1), signal.SIGKILL)
                cluster.line("^Workers from step .* on: 0 and 2; 3 towers of 8 ")
            self.assertEqual(cluster.end(), 0, cluster.lines[-20:])
            self.assertEmpty(cluster.left())
            values.append(self.values(600, name))
        trainer.assert_same_bits(*values)

    def test_asynchronous_towers_lose_the_step_of_a_lost_worker_only(self):
        cluster = forked_cluster.ForkedCluster(
            *("--model=tests.digit_runs:small_model", "--batch_size=8", "--elastic"),
            *(
                "--variable_update=asynchronous",
                "--max_restarts=0",
                "--num_batches=300",
            ),
            *("--num_warmup_batches=0", "--memory_copy_steps=100000"),
            f"--train_dir={self.directory}/apart",
            tasks="ps:1,worker:3",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(cluster.kill)
        cluster.line(r"^2\d\t")  # some steps end together
        os.kill(cluster.pid("worker", 1), signal.SIGKILL)
        line = cluster.line("^Workers from step .* on: 0 and 2; 3 towers of 8 ")
        shown = [re.match(r"(\d+)\timages", text) for text in cluster.lines]
        before = max(int(match[1]) for match in shown if match)
        self.assertGreaterEqual(int(re.search(r" step (\d+)", line)[1]), before)
        self.assertEqual(cluster.end(), 0, cluster.lines[-20:])
        # Of a step that was lost in its middle, the examples are lost, too.
        lost = self.values(900, "apart")["position"] - 900 * 8
        self.assertIn(lost, (0, 8))

    def check_examples(self, taken: list, last: int, batch: int) -> None:
        """Every example of the stream is in one step of the history that survives."""
        steps = dict(taken)  # of a repeated step the last one
        self.assertEqual(sorted(steps), [*range(1, last + 1)])
        for step, ranges in steps.items():
            rows = [row for first, n in ranges for row in range(first, first + n)]
            begin = (step - 1) * batch
            self.assertEqual(rows, [*range(begin, begin + batch)])

    def check_no_step_is_lost(self, taken: list, lines: list[str]) -> None:
        """No step is repeated after a worker has left or joined."""
        counts = collections.Counter(step for step, _ in taken)
        for news in ("joins", "leaves"):
            index = next(i for i, line in enumerate(lines) if news in line)
            pattern = re.compile(r"Workers from step (\d+) on")
            (step, *_) = filter(None, map(pattern.match, lines[index:]))
            self.assertEqual(counts[int(step[1])], 1, news)
