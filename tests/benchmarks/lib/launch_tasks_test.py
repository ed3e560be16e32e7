"""Starts the tasks of a benchmark; all end with the first task."""

import json
import sys

from absl.testing import absltest

from benchmarks.lib import launch_tasks, process
from tests.processes import programs

# The leader prints what it was told once the others are there, who would stay for ever.
_TASK = """
import json, os, sys, time
job, index, ps, worker, leader, status, folder = sys.argv[1:]
if (job, index) != (leader, "0"):
    print("waiting", flush=True)
    open(os.path.join(folder, job + index), "w").close()
    time.sleep(1000)
others = 3 if leader == "chief" else 2
while len(os.listdir(folder)) < others:
    time.sleep(0.01)
print(json.dumps([ps, worker, json.loads(os.environ["TF_CONFIG"])]))
sys.exit(int(status))
"""


class LaunchTasksTest(absltest.TestCase):
    def test_words(self):
        hosts = {"ps": ["a:1"], "worker": ["b:1", "b:2"]}
        command = ["run", "--at={job}:{index}", "--hosts={ps},{worker}", "{other}"]
        self.assertEqual(
            launch_tasks.words(command, hosts, "worker", 1),
            ["run", "--at=worker:1", "--hosts=a:1,b:1,b:2", "{other}"],
        )

    def _run(self, status: int, leader: str = "worker") -> process.Finished:
        programs.need_private_networks()
        task = [sys.executable, "-c", _TASK, "{job}", "{index}", "{ps}", "{worker}"]
        command = [
            sys.executable,
            "-m",
            "benchmarks.lib.launch_tasks",
            "--tasks=ps:1,worker:2",
        ]
        folder = self.create_tempdir().full_path
        command += [f"--leader={leader}", "--", *task, leader, str(status), folder]
        return process.run(process.Command(command))

    def test_the_leader_prints_and_ends_all(self):
        finished = self._run(0)
        self.assertEqual(finished.status, 0, finished.lines)
        ((_, line),) = finished.lines
        ps, workers, config = json.loads(line)
        self.assertEqual(config["task"], {"type": "worker", "index": 0})
        self.assertEqual(config["cluster"], {"ps": [ps], "worker": workers.split(",")})
        self.assertLen(set([ps, *workers.split(",")]), 3)

    def test_a_chief_is_a_task_of_its_own(self):
        finished = self._run(0, leader="chief")
        self.assertEqual(finished.status, 0, finished.lines)
        ((_, line),) = finished.lines
        _, workers, config = json.loads(line)
        self.assertEqual(config["task"], {"type": "chief", "index": 0})
        self.assertLen(config["cluster"]["chief"], 1)
        self.assertEqual(config["cluster"]["worker"], workers.split(","))

    def test_when_the_leader_fails_the_others_are_heard(self):
        finished = self._run(3)
        self.assertEqual(finished.status, 3)
        said = [line for _, line in finished.lines]
        self.assertContainsSubset(["[ps 0] waiting", "[worker 1] waiting"], said)
