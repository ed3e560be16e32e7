"""`deploy/slurm.sh` on a real slurmctld and two slurmds."""

import os
import pathlib
import re
import shutil
import signal
import tempfile

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import hosts, step_examples
from tests.processes.programs import ROOT

# As root, with neither accounts nor containers of processes.
_CONFIG = """\
ClusterName=towers
SlurmctldHost=n0
SlurmUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
SlurmdParameters=config_overrides
GresTypes=gpu
KillWait=60
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/%n.log
NodeName=n0,n1 CPUs=2 RealMemory=1000 Gres=gpu:2
PartitionName=all Nodes=n0,n1 Default=YES State=UP
"""
_FLAGS = (
    *("--model=tests.digit_runs:small_model", "--device=cpu", "--num_gpus=1"),
    *("--num_warmup_batches=0", "--save_model_steps=20"),
)
_LONG = "--num_batches=1000000"


class SlurmTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        hosts.need("slurmctld", "slurmd", "sbatch")
        self.folder = pathlib.Path(
            tempfile.mkdtemp(prefix="slurm")
        )  # short, for sockets
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        environment = {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "STEP_EXAMPLES": os.devnull,
            "STEP_SECONDS": "0.05",
        }
        self.hosts = hosts.needed(
            self.folder, environment, data_dir=digit_runs.data_dir()
        )
        self.addCleanup(self.hosts.end)
        self._start_slurm()

    def _start_slurm(self):
        (self.folder / "state").mkdir()
        (self.folder / "slurm.conf").write_text(_CONFIG.format(folder=self.folder))
        gpus = f"Name=gpu File={self.folder}/gpu[0-1]\n"
        (self.folder / "gres.conf").write_text(gpus)
        (self.folder / "cgroup.conf").touch()
        for index in range(2):
            (self.folder / f"gpu{index}").touch()
        self.hosts.start("n0", "slurmctld", "-D")
        self.nodes = {name: self._boot(name) for name in ("n0", "n1")}
        self._until(lambda: self._command("sinfo", "-hN").count("idle") == 2)

    def _boot(self, name):
        return self.hosts.start(name, "slurmd", "-D", "-N", name)

    def _command(self, *words):
        return self.hosts.run("n0", *words)

    def _until(self, true):
        self.hosts.until(true, said=self._log)

    def _submit(self, *flags, options=()):
        words = (f"--output={self.folder}/log", "--gpus-per-node=2", *options)
        script = str(ROOT / "deploy" / "slurm.sh")
        flags = (*_FLAGS, f"--train_dir={self.directory}", *flags)
        said = self._command("sbatch", "--parsable", *words, script, *flags)
        return said.split()[-1]

    def _log(self):
        path = self.folder / "log"
        return path.read_text() if path.exists() else ""

    def _job(self, number):
        words = self._command("scontrol", "show", "job", number).split()
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        return tuple(facts[name] for name in ("JobState", "ExitCode", "Restarts"))

    def _agents(self):
        """How many messages to nodes Slurm still has to send, again if need be."""
        said = self._command("sdiag")
        return sum(map(int, re.findall(r"Agent (?:queue size|count):\s*(\d+)", said)))

    def _steps(self):
        """How often a step line was printed."""
        return len(re.findall(r"(?m)^\d+\t.*images/sec", self._log()))

    def _stopped_at(self):
        """The step at which the controller was stopped last."""
        return int(
            re.findall("Stopped by SIGTERM after step (\\d+), sav", self._log())[-1]
        )

    def _trains(self):
        before = self._steps()
        self._until(lambda: self._steps() > before + 1)

    def _ends(self, number):
        going = ("PENDING", "RUNNING", "COMPLETING")
        self._until(lambda: self._job(number)[0] not in going)
        return self._job(number)

    def test_the_run_survives_what_slurm_does_to_it(self):
        job = self._submit(_LONG)
        self._trains()
        [worker] = hosts.pids(self.directory, "--job_name=worker", "--task_index=1")
        os.kill(worker, signal.SIGKILL)
        self._until(lambda: "worker 1 on n1 ended with status 137" in self._log())
        self._trains()
        self.nodes["n1"].kill()
        self._command("scontrol", "update", "node=n1", "state=down", "reason=lost")
        self._until(lambda: self._job(job)[0] == "PENDING")
        self._boot("n1")
        # The end of the lost node's tasks must not meet those that are started now.
        self._until(lambda: not self._agents())
        self._command("scontrol", "update", f"job={job}", "starttime=now")
        self._trains()
        self._command("scancel", job)
        self.assertEqual(self._ends(job)[::2], ("CANCELLED", "1"))
        self._stopped_at()

        # Slurm looks at times twice a minute.
        job = self._submit(_LONG, options=("--time=1", "--signal=B:TERM@55"))
        self.assertEqual(self._ends(job), ("FAILED", "143:0", "0"))
        step = self._stopped_at() + 20

        job = self._submit(f"--num_batches={step}")
        self.assertEqual(self._ends(job), ("COMPLETED", "0:0", "0"))
        self._assert_is_that_of_an_undisturbed_run(step)

        # Slurm's GPUs are made up here.
        job = self._submit("--device=gpu")
        self.assertEqual(self._ends(job), ("FAILED", "1:0", "0"))
        self.assertRegex(
            self._log(), r"(?m)^error: worker \d at n\d:2224 is refused: --num"
        )

    def _assert_is_that_of_an_undisturbed_run(self, step):
        whole = os.path.join(os.path.dirname(self.directory), "whole")
        in_process_cluster.ended(
            *(*_FLAGS, f"--num_batches={step}", f"--train_dir={whole}"),
            between=False,
            data_dir=digit_runs.data_dir(),
        )
        survived = self.values(step)
        survived.pop("callbacks/rate", None)  # which only runs with callbacks have
        self.directory = whole
        trainer.assert_same_bits(self.values(step), survived)

    def test_an_elastic_run_goes_on_without_a_node_and_takes_another_job(self):
        flags = ("--elastic", f"--callbacks={step_examples.__name__}:logging")
        job = self._submit(_LONG, *flags, options=("--no-kill",))
        self._says("^Workers from step 0 on: 0 and 1; 2 towers")
        self._trains()
        self.nodes["n1"].kill()
        self._command("scontrol", "update", "node=n1", "state=down", "reason=lost")
        self._says("^Lost worker 1 at n1:2224.* The others go on")
        self._says("^Workers from step .* on: 0; 2 towers")
        self._trains()
        self._boot("n1")

        options = ("--nodes=1", "--array=1", f"--output={self.folder}/joins")
        joins = self._submit("--elastic", "--join=n0:2222", options=options)
        self._says("^worker 1 at n1:2224 joins")
        self._says("^Workers from step .* on: 0 and 1; 2 towers", times=2)
        self._trains()
        self._command("scancel", joins)
        self._says("^worker 1 at n1:2224 leaves .SIGTERM")
        self.assertEqual(self._ends(joins)[0], "CANCELLED")
        self._trains()
        self.assertLen(re.findall("(?m)^Lost ", self._log()), 1)
        self.assertEqual(self._job(job), ("RUNNING", "0:0", "0"))
        self._command("scancel", job)
        self.assertEqual(self._ends(job)[0], "CANCELLED")
        self._assert_is_that_of_an_undisturbed_run(self._stopped_at())

    def _says(self, pattern, times=1):
        said = re.compile(f"(?m){pattern}")
        self._until(lambda: len(said.findall(self._log())) >= times)
