"""The files of `deploy/`: every task finds its role in its environment."""

import json
import os
import pathlib
import re
import subprocess

from absl.testing import absltest

from flags import config, parse
from tests.processes.programs import ROOT
from towers.layout import cluster_spec
from towers.optimizers.optimizer import OPTIMIZERS

_DEPLOY = ROOT / "deploy"


def _replicas() -> dict[str, int]:
    """Replica type -> number, of the TFJob."""
    text = (_DEPLOY / "tfjob.yaml").read_text()
    replicas = re.findall(r"^    (\w+):\n      replicas: (\d+)$", text, re.MULTILINE)
    return {kind: int(count) for kind, count in replicas}


def _tf_config(replicas: dict[str, int], kind: str, index: int) -> str:
    """What Kubeflow's training operator gives a pod of the job `towers`."""
    hosts = {
        job.lower(): [f"towers-{job.lower()}-{i}.default.svc:2222" for i in range(n)]
        for job, n in replicas.items()
        if job != "Evaluator"
    }
    task = {"type": kind.lower(), "index": index}
    return json.dumps({"cluster": hosts, "task": task, "environment": "cloud"})


class KubernetesTest(absltest.TestCase):
    def test_each_replica_finds_its_role(self):
        replicas, roles = _replicas(), []
        self.assertEqual(replicas, {"Chief": 1, "PS": 1, "Worker": 2})
        nothing = config.make().cluster
        for kind, count in replicas.items():
            for index in range(count):
                given = {"TF_CONFIG": _tf_config(replicas, kind, index)}
                spec = cluster_spec.find(nothing, given)
                roles.append((str(spec.me), spec.role))
                self.assertEqual(str(spec.controller), "chief 0")
        self.assertEqual(
            roles,
            [
                ("chief 0", cluster_spec.CONTROLLER),
                ("ps 0", cluster_spec.SERVER),
                ("worker 0", cluster_spec.SERVER),
                ("worker 1", cluster_spec.SERVER),
            ],
        )

    def test_the_command_is_one(self):
        text = (_DEPLOY / "tfjob.yaml").read_text()
        commands = re.findall(r"command: \[(.*)\]", text)
        self.assertEqual(set(commands), {"python, -m, towers.train"})
        args = re.findall(r"^              args:\n((?: {16}- .*\n)+)", text, re.M)
        self.assertLen(args, 3)
        self.assertLen(set(args), 1)
        flags = re.findall(r"- (--\S+)", args[0])
        parse.parse(["train", *flags], {"optimizer": OPTIMIZERS})

    def test_the_policy_is_about_the_job(self):
        job = (_DEPLOY / "tfjob.yaml").read_text()
        policy = (_DEPLOY / "networkpolicy.yaml").read_text()
        (label,) = set(re.findall(r"labels:\n +(app: \w+)", job))
        self.assertEqual(
            set(re.findall(r"\bapp: \w+", policy.replace("-app", ""))), {label}
        )
        self.assertEqual(set(re.findall(r"containerPort: (\d+)", job)), {"2222"})
        self.assertEqual(set(re.findall(r"port: (\d+)", policy)), {"2222", "53"})
        self.assertIn("policyTypes: [Ingress, Egress]", policy)


class ScriptsTest(absltest.TestCase):
    """The scripts, with programs that only note in the place of ssh and others."""

    def _run(self, script: str, *arguments: str, **environment: str) -> list[list[str]]:
        folder = pathlib.Path(self.create_tempdir())
        for name in ("ssh", "srun", "python"):
            program = folder / name
            program.write_text(
                f'#!/usr/bin/env bash\nprintf "%s\\n" "{name} $*" >> "{folder}/log"\n'
            )
            program.chmod(0o755)
        nodes = folder / "scontrol"
        nodes.write_text('#!/usr/bin/env bash\nprintf "n0\\nn1\\nn2\\n"\n')
        nodes.chmod(0o755)
        path = f"{folder}:{os.environ['PATH']}"
        subprocess.run(
            ["bash", str(_DEPLOY / script), *arguments],
            env={**os.environ, "PATH": path, **environment},
            check=True,
            timeout=60,
        )
        return [line.split() for line in (folder / "log").read_text().splitlines()]

    def _roles(self, lines: list[list[str]]) -> list[tuple[str, str]]:
        roles = []
        for words in lines:
            flags = words[words.index("towers.train") + 1 :]
            flags = [flag.replace("\\", "") for flag in flags]  # quoted for ssh
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

    def test_slurm(self):
        lines = self._run("slurm.sh", "--num_batches=7", SLURM_JOB_NODELIST="n[0-2]")
        self.assertEqual(self._roles(lines), list(self.WANTED))
        nodes = [word for words in lines for word in words if "nodelist" in word]
        self.assertCountEqual(nodes, [f"--nodelist=n{i}" for i in (0, 0, 1, 2)])

    def test_slurm_ends_with_the_status_of_the_controller(self):
        """Which it has told that the time is up."""
        folder = pathlib.Path(self.create_tempdir())
        (folder / "scontrol").write_text("#!/bin/sh\necho n0; echo n1\n")
        (folder / "srun").touch()
        for name in ("scontrol", "srun"):
            (folder / name).chmod(0o755)
        for status in (0, 143):
            (folder / "srun").write_text(
                "#!/usr/bin/env bash\n"
                "case $* in *--job_name=controller*) ;; *) exit 0 ;; esac\n"
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
        self.assertCountEqual(
            [words[2] for words in lines if words[0] == "ssh"], ["p", "w0", "w1"]
        )
