"""`deploy/ray_cluster.py` and `deploy/spark_cluster.py` on real engines, here.

A task is killed together with what runs it in the engine.  Then the run is stopped.  It
ends with the variables of a local cluster that nobody disturbed.
"""

import importlib.util
import os
import pathlib
import re
import shutil
import signal
import sys
import time
from unittest import mock

from absl.testing import absltest

from tests import digit_runs, trainer
from tests.processes import programs

_FLAGS = (
    *("--model=tests.digit_runs:small_model", "--device=cpu", "--num_gpus=2"),
    *("--num_warmup_batches=0", "--save_model_steps=10", "--max_ckpts_to_keep=0"),
    "--stall_secs=2",
)
# Engines open ports: in a network that nothing outside reaches.
_IN_PRIVATE = """
import os, sys
from towers.cluster import private_network
private_network.enter()
os.execv(sys.argv[1], sys.argv[1:])
"""


def _need(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise absltest.unittest.SkipTest(f"{module} is not installed")
    programs.need_private_networks()


def _parents(*words: str) -> list[int]:
    """The process whose command line has all these words, its parent, and so on."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_text().split("\0")
        except OSError:
            continue
        if set(words) <= set(command) and "towers.train" in command:
            pids = [int(folder.name)]
            while pids[-1] > 1:
                status = pathlib.Path(f"/proc/{pids[-1]}/stat").read_text()
                pids.append(int(status.rpartition(")")[2].split()[1]))
            return pids
    raise AssertionError(f"no process with {words}")


class EnginesTest(digit_runs.Runs):
    program = sys.executable  # that runs the scripts

    def _start(self, script: str, *flags: str) -> programs.Program:
        """Starts a run by a script of `deploy`."""
        path = str(programs.ROOT / "deploy" / script)
        words = ["-c", _IN_PRIVATE, self.program, path, *flags]
        run = programs.Program(
            [sys.executable, *words, *_FLAGS, "--num_batches=1000000", self._folder],
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(run.process.kill)
        return run

    @property
    def _folder(self) -> str:
        return f"--train_dir={self.directory}/disturbed"

    def _disturb(self, script: str, *flags: str, killed: int) -> None:
        """Kills a worker and a parent of its process; stops the run later.

        Args:
          script: of `deploy`.
          *flags: of the script.
          killed: which parent; 1 is the process's own, 2 the parent of that.
        """
        run = self._start(script, *flags, "--tasks=ps:1,worker:2", "--")
        run.line(r"^30\t")
        words = "--job_name=worker", "--task_index=1"
        os.kill(_parents(*words, self._folder)[killed], signal.SIGKILL)
        run.line("^Lost worker 1; waiting for the engine to start it again")
        run.line("^Resuming from ")
        run.line("images/sec")
        self._assert_is_that_of_a_local_cluster(run, 2)

    def _disturb_elastic(
        self, script: str, *flags: str, most: int, killed: int
    ) -> None:
        """As `_disturb`, in an elastic run of up to so many workers."""
        flags = (*flags, "--tasks=ps:1,worker:1", f"--max_workers={most}", "--")
        run = self._start(script, *flags, "--elastic")
        run.line(r"^Workers from step .* on: \d(,| and) \d")
        run.line("images/sec")
        pids = _parents("--job_name=worker", self._folder)
        os.kill(pids[killed], signal.SIGKILL)
        run.line("^Lost worker .; the others go on")
        run.line("^Workers from step ")
        run.line("^worker . at .* joins")
        # Any two: what the killed one leaves free may go to one that had no room.
        run.line(r"^Workers from step .* on: \d(,| and) \d")
        run.line("images/sec")
        self._assert_is_that_of_a_local_cluster(run, most)

    def _assert_is_that_of_a_local_cluster(
        self, run: programs.Program, workers: int
    ) -> None:
        """Stops a run, and compares its variables with one that nobody disturbed."""
        run.process.send_signal(signal.SIGTERM)
        stopped = run.line("^Stopped by SIGTERM after step .*saved to")
        last = int(re.search(r"step (\d+)", stopped)[1])
        self.assertEqual(run.end(), 143, run.lines[-20:])
        self._assert_nothing_runs(self._folder)
        whole = programs.LaunchedCluster(
            *(*_FLAGS, f"--num_batches={last}"),
            f"--train_dir={self.directory}/whole",
            tasks=f"ps:1,worker:{workers}",
            data_dir=digit_runs.data_dir(),
        )
        self.addCleanup(whole.kill)
        self.assertEqual(whole.end(), 0, whole.lines[-20:])
        wanted, values = self.values(last, "whole"), self.values(last, "disturbed")
        trainer.assert_same_bits(wanted, values)

    def _assert_nothing_runs(self, folder: str) -> None:
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                _parents(folder)
            except AssertionError:
                return
            time.sleep(0.1)
        self.fail("tasks still run")


class RayTest(EnginesTest):
    def setUp(self):
        super().setUp()
        _need("ray")
        quiet = {"RAY_USAGE_STATS_ENABLED": "0"}
        self.enter_context(mock.patch.dict(os.environ, quiet))

    def test_an_actor_is_killed_and_nothing_is_lost(self):
        flags = ("--address=local", "--cpus_per_task=0.25")
        self._disturb("ray_cluster.py", *flags, killed=1)

    def test_an_actor_of_an_elastic_run_is_killed(self):
        """There is no room for the third worker where there are two cores."""
        flags = ("--address=local", "--cpus_per_task=0.5")
        self._disturb_elastic("ray_cluster.py", *flags, most=3, killed=1)


class SparkTest(EnginesTest):
    def setUp(self):
        super().setUp()
        _need("pyspark")
        if not shutil.which("java"):
            self.skipTest("Spark needs Java")

    def _set_up_spark(self, master: str):
        settings = (
            *("--master", master),
            *("--conf", "spark.ui.enabled=false", "pyspark-shell"),
        )
        environment = {
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": " ".join(settings),
        }
        self.enter_context(mock.patch.dict(os.environ, environment))

    def test_an_executor_is_killed_and_nothing_is_lost(self):
        """Also, the signal to stop is one to Java."""
        self._set_up_spark("local-cluster[3,2,1024]")
        home = importlib.util.find_spec("pyspark").submodule_search_locations[0]
        settings = self.create_tempdir()
        lines = "spark.master local-cluster[3,2,1024]\nspark.ui.enabled false\n"
        settings.create_file("spark-defaults.conf", lines)
        names = {"SPARK_HOME": home, "SPARK_CONF_DIR": settings.full_path}
        self.enter_context(mock.patch.dict(os.environ, names))
        self.program = os.path.join(home, "bin", "spark-submit")
        self._disturb("spark_cluster.py", killed=3)

    def test_an_executor_of_an_elastic_run_is_killed(self):
        self._set_up_spark("local-cluster[4,1,1024]")  # a task on each
        self._disturb_elastic("spark_cluster.py", most=2, killed=3)
