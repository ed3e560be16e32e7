"""The learning rate follows real workers; those that do not fit the run are refused."""

import json
import os
import re
from unittest import mock

import tensorflow as tf

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import forked_cluster, programs, step_examples

_FLAGS = (
    *("--model=tests.digit_runs:small_model", "--num_warmup_batches=0"),
    *("--batch_size=8", "--elastic=scale_lr", "--save_model_steps=10000"),
    f"--callbacks={step_examples.__name__}:logging",
)
_ENDLESS = ("--device=cpu", "--num_batches=1000000", "--wait_secs=120")

# Workers of another version, and with other files.
_VERSION = """
import towers
from towers import train
towers.__version__ = "0.0.1"
train.program()
"""
_DATA = """
import types
from towers import planning, train
planning.sources_of = lambda *_: (types.SimpleNamespace(num_examples=5), None)
train.program()
"""

# Of three workers one is killed.  Four ask to join that do not fit.  Then the run is
# stopped, and goes on with a command that names the two that are left.
_FEWER = """
import json, os, signal, sys
from tests.processes import manual_tasks
from towers.cluster import local_cluster

flags, stray, version, data = json.loads(sys.argv[1])
ps, leader, *workers = local_cluster.free_addresses(5)
started = []

def task(job, *own, program=""):
    words = [*flags, f"--job_name={job}", *own]
    started.append(manual_tasks.Task(words, program=program))
    return started[-1]

def cluster(hosts):
    listed = [
        f"--ps_hosts={ps}", f"--worker_hosts={','.join(hosts)}",
        f"--controller_host={leader}",
    ]
    indices = [f"--task_index={k}" for k in range(len(hosts))]
    members = [task("worker", *listed, index) for index in indices]
    return task("controller", *listed), [task("ps", *listed), *members]

def stop(controller, others):
    os.kill(controller.process.pid, signal.SIGTERM)
    return [each.end() for each in (controller, *others)]

facts = {}
try:
    controller, (server, first, second, third) = cluster(workers)
    controller.line("^Workers from step 0 on: 0, 1 and 2; 3 towers of 8 .* by 1$")
    controller.line("^10\t")
    second.process.kill()
    facts["fewer"] = controller.line(
        "^Workers from step .* on: 0 and 2; 2 towers of 8 .* by 0.667$")
    controller.line("images/sec")
    join = f"--join={leader}"
    joiners = {
        "model": task("worker", join, "--model=mlp", "--data_name=digits"),
        "version": task("worker", join, program=version),
        "examples": task("worker", join, program=data),
        "token": task("worker", join, f"--cluster_token_file={stray}"),
    }
    facts["joiners"] = {name: [t.end(), t.lines] for name, t in joiners.items()}
    controller.rest(0.0)
    controller.line("images/sec")
    facts["stopped"] = stop(controller, [server, first, third])
    facts["lines"] = controller.lines
    controller, others = cluster([workers[0], workers[2]])
    facts["again"] = controller.line(
        "^Workers from step .* on: 0 and 1; 2 towers of 8 .* by 0.667$")
    controller.line("images/sec")
    facts["ended"] = stop(controller, others)
    facts["last"] = controller.lines[-1]
finally:
    for each in started:
        each.process.kill()
print(json.dumps(facts))
"""


class ScaleLearningRateTest(digit_runs.Runs):
    def test_it_follows_the_workers_and_survives_a_restart(self):
        programs.need_private_networks()
        log = os.path.join(self.create_tempdir(), "examples")
        flags = (
            *(*_FLAGS, *_ENDLESS, f"--train_dir={self.directory}/elastic"),
            f"--cluster_token_file={self.token()}",
        )
        with mock.patch.dict(os.environ, STEP_EXAMPLES=log, STEP_SECONDS="0.03"):
            facts = in_process_cluster.manual_tasks(
                *(_FEWER, flags, self.token("stray"), _VERSION, _DATA),
                data_dir=digit_runs.data_dir(),
            )
        self.assertEqual(facts["stopped"], [143] * 4, facts["lines"][-20:])
        self.assertEqual(facts["ended"], [143] * 4)
        self.check_refusals(facts["joiners"], facts["lines"])
        change, again, last = (
            int(re.search(r" step (\d+)", facts[name])[1])
            for name in ("fewer", "again", "last")
        )
        self.assertLess(change, again)
        self.check_examples(log, change, last)
        for towers, steps, rate in ((3, change, 0.05), (2, last, 0.05 * 2 / 3)):
            self.run_flags(
                callbacks=[tf.compat.v1.train.SessionRunHook()],
                train_dir=f"{self.directory}/calm",
                batch_size=8,
                num_gpus=towers,
                init_learning_rate=rate,
                num_warmup_batches=0,
                num_batches=steps,
            )
        calm, elastic = (self.values(last, name) for name in ("calm", "elastic"))
        nominal = elastic.pop("constant/nominal_workers")
        self.assertEqual(nominal.tolist(), [b"3"])
        self.assertLess(trainer.difference(calm, elastic), 1e-5)
        flags = (*_FLAGS, f"--train_dir={self.directory}/replayed")
        with mock.patch.dict(os.environ, STEP_EXAMPLES=os.devnull):
            replayed = forked_cluster.ForkedCluster(
                *(*flags, f"--num_batches={last}"),
                f"--replay_membership={self.directory}/elastic/membership.jsonl",
                tasks="ps:1,worker:3",
                data_dir=digit_runs.data_dir(),
            )
        self.addCleanup(replayed.kill)
        self.assertEqual(replayed.end(), 0, replayed.lines[-20:])
        again = self.values(last, "replayed")
        trainer.assert_same_bits(self.values(last, "elastic"), again)

    def check_refusals(self, joiners: dict, lines: list[str]) -> None:
        """Both sides say why a worker is not taken; the worker ends with status 2."""
        for name, words in {
            "model": r"was started with --model=mlp --data_name=digits, and chief 0",
            "version": r"runs towers 0\.0\.1\S* and chief 0 runs .*; install",
            "examples": r"has 5 examples of the data set on its disk, and chief 0 has",
            "token": r"it has another cluster token than chief 0; give all tasks the s",
        }.items():
            status, printed = joiners[name]
            self.assertEqual(status, 2, printed)
            said = rf"ot taken: worker \d at \S+:\d+:? {words}"
            theirs = [line for line in printed if re.search(f"^error: n{said}", line)]
            ours = [line for line in lines if re.search(f"^N{said}", line)]
            self.assertLen(theirs, 1, printed)
            self.assertLen(ours, 1, lines)

    def check_examples(self, log: str, change: int, last: int) -> None:
        """Steps of three workers, then of two, take the next examples each."""
        with open(log, encoding="utf-8") as file:
            taken = dict(map(json.loads, file))  # of a repeated step the last one
        self.assertEqual(sorted(taken), [*range(1, last + 1)])
        begin = 0
        for step in range(1, last + 1):
            ranges = [range(first, first + n) for first, n in taken[step]]
            rows = [row for each in ranges for row in each]
            end = begin + (24 if step <= change else 16)
            self.assertEqual(rows, [*range(begin, end)])
            begin = end
