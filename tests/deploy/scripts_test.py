"""The scripts of `deploy/`: every task finds its role in its environment."""

import os
import pathlib
import subprocess

from absl.testing import parameterized

from flags import parse
from tests.processes.programs import ROOT
from towers.layout import cluster_spec
from towers.optimizers.optimizer import OPTIMIZERS

_DEPLOY = ROOT / "deploy"
_OF_SRUN = ("--nodes", "--ntasks", "--overlap", "--cpu-bind", "--nodelist")


class ScriptsTest(parameterized.TestCase):
    """The scripts, with programs that only note in the place of ssh and others."""

    def _run(self, script: str, *arguments: str, **given: str) -> list[list[str]]:
        """The words of each command that the script gives."""
        folder, ended = self._ended(script, *arguments, **given)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return [line.split() for line in (folder / "log").read_text().splitlines()]

    def _refusal(self, script: str, *arguments: str, **given: str) -> str:
        """What the script says, which starts nothing."""
        folder, ended = self._ended(script, *arguments, **given)
        self.assertEqual(ended.returncode, 2, ended.stderr)
        self.assertFalse((folder / "log").exists(), "something was started")
        return ended.stderr

    def _ended(
        self, script: str, *arguments: str, nodes: str = "n0 n1 n2", **environment: str
    ) -> tuple[pathlib.Path, subprocess.CompletedProcess[str]]:
        folder = pathlib.Path(self.create_tempdir())
        for name in ("ssh", "srun", "python"):
            program = folder / name
            program.write_text(
                f'#!/usr/bin/env bash\nprintf "%s\\n" "{name} $*" >> "{folder}/log"\n'
            )
            program.chmod(0o755)
        scontrol = folder / "scontrol"
        scontrol.write_text(
            f'#!/usr/bin/env bash\n[ "$3" != x ] && printf "%s\\n" {nodes}\n'
        )
        scontrol.chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        ended = subprocess.run(
            ["bash", str(_DEPLOY / script), *arguments],
            env={**os.environ, "PATH": path, **environment},
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )
        return folder, ended

    def _roles(self, lines: list[list[str]]) -> list[tuple[str, str]]:
        roles = []
        for words in lines:
            # quoted for ssh
            flags = [word.replace("\\", "") for word in words if word[:2] == "--"]
            flags = [word for word in flags if word.split("=")[0] not in _OF_SRUN]
            settings = parse.parse(["train", *flags], {"optimizer": OPTIMIZERS})
            self.assertEqual(settings.training.num_batches, 7)
            spec = cluster_spec.find(settings.cluster, {})
            roles.append((str(spec.me), spec.role))
        return sorted(roles)

    WANTED = (
        ("chief 0", cluster_spec.CONTROLLER),
        ("ps 0", cluster_spec.SERVER),
        ("worker 0", cluster_spec.SERVER),
        ("worker 1", cluster_spec.SERVER),
    )

    def _slurm(self, *flags, **environment):
        environment = {"SLURM_JOB_NODELIST": "n[0-2]", **environment}
        lines = self._run("slurm.sh", "--num_batches=7", *flags, **environment)
        starts = [w for words in lines for w in words if w.startswith("--nodelist")]
        self.assertCountEqual(starts, self.nodes)
        return lines

    def test_slurm(self):
        self.nodes = [f"--nodelist=n{i}" for i in (0, 0, 1, 2)]
        lines = self._slurm()
        workers = [*self.WANTED, ("worker 2", cluster_spec.SERVER)]
        self.assertEqual(self._roles(lines), workers)
        for words in lines:
            self.assertIn("--device=cpu", words)
        for words in self._slurm(SLURM_GPUS_ON_NODE="4"):
            self.assertContainsSubset(("--device=gpu", "--num_gpus=4"), words)

    def test_slurm_with_clients(self):
        """Worker 0, on the first node, is the chief."""
        self.nodes = [f"--nodelist=n{i}" for i in (0, 1, 2)]
        lines = self._slurm("--replication=between_graph")
        self.assertEqual(
            self._roles(lines),
            [
                ("ps 0", cluster_spec.SERVER),
                ("worker 0", cluster_spec.CONTROLLER),
                ("worker 1", cluster_spec.FOLLOWER),
                ("worker 2", cluster_spec.FOLLOWER),
            ],
        )

    def test_slurm_with_a_worker_that_joins(self):
        self.nodes = []
        flags = ("--elastic", "--join=c:2222")
        said = self._refusal("slurm.sh", *flags, SLURM_JOB_NODELIST="n[0-2]")
        self.assertStartsWith(said, "error: --join: a job that joins has one node;")
        (line,) = self._slurm(*flags, nodes="n2")
        self.assertContainsSubset(("--worker_hosts=n2:2224", *flags), line)
        self.assertEqual(self._roles([line]), [("worker 0", cluster_spec.SERVER)])

    def test_slurm_ends_with_the_status_of_the_controller(self):
        """Which it has told that the time is up."""
        folder = pathlib.Path(self.create_tempdir())
        (folder / "scontrol").write_text("#!/bin/sh\necho n0; echo n1\n")
        (folder / "srun").write_text("#!/bin/sh\n")
        (folder / "python").touch()
        for name in ("scontrol", "srun", "python"):
            (folder / name).chmod(0o755)
        for status in (0, 143):
            (folder / "python").write_text(
                "#!/usr/bin/env bash\n"
                f'trap "exit {status}" TERM\n'
                "echo ready\nsleep 60 >&2 & wait\n"
            )
            script = subprocess.Popen(
                ["bash", str(_DEPLOY / "slurm.sh")],
                env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
                | {"SLURM_JOB_NODELIST": "n[0-1]"},
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self.addCleanup(script.kill)
            self.assertEqual(script.stdout.readline(), b"ready\n")
            script.terminate()
            self.assertEqual(script.wait(60), status)
            script.stdout.close()

    def test_ssh(self):
        lines = self._run("ssh.sh", "p", "w0", "w1", "--", "--num_batches=7")
        self.assertEqual(self._roles(lines), list(self.WANTED))
        calls = [words for words in lines if words[0] == "ssh"]
        names = [words[words.index("cd") - 1] for words in calls]
        self.assertCountEqual(names, ["p", "w0", "w1"])

    @parameterized.parameters(
        ({}, (), "SLURM_JOB_NODELIST is not set, so this is no job: sbatch"),
        ({"LIST": "x"}, (), "scontrol knows no nodes for SLURM_JOB_NODELIST=x"),
        ({"NUM": "2"}, (), "the job has 2 nodes .*NODELIST=n.* names 3"),
        ({"GPUS": "many"}, (), "SLURM_GPUS_ON_NODE=many is no number of GPUs"),
        ({}, ("--worker_hosts=a:1",), "--worker_hosts=a:1: this script .* the 3 nodes"),
        ({"GPUS": "0"}, ("--device=gpu",), "--device=gpu: the job has no GPUs; give"),
    )
    def test_slurm_refuses(self, given, flags, words):
        names = {"LIST": "JOB_NODELIST", "NUM": "JOB_NUM_NODES", "GPUS": "GPUS_ON_NODE"}
        given = {"LIST": "n[0-2]", **given} if given or flags else {}
        environment = {f"SLURM_{names[name]}": value for name, value in given.items()}
        said = self._refusal("slurm.sh", *flags, **environment)
        self.assertRegex(said, f"^error: {words}.*\n$")

    @parameterized.parameters(
        ("p -- --num_gpus=2", "no machine for a worker: the first is for the ps"),
        ("p w --num_gpus=2", "there is no -- between machines and flags"),
        ("p --num_gpus=2 --", "--num_gpus=2 is no machine; flags come after --"),
        ("p w -- --task_index=1", "--task_index=1: this script gives each machine"),
    )
    def test_ssh_refuses(self, arguments, words):
        said = self._refusal("ssh.sh", *arguments.split())
        self.assertRegex(said, f"^error: {words}.*; usage: .*\n$")
