"""`deploy/ssh.sh` with a real sshd on two machines."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

from tests import digit_runs, in_process_cluster, trainer
from tests.processes import hosts
from tests.processes.programs import ROOT

_SCRIPT = str(ROOT / "deploy" / "ssh.sh")
_SSHD = "/usr/sbin/sshd"
# What a remote login has: neither the caller's PATH nor its other variables.
_SERVER = """\
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
StrictModes no
PidFile none
SetEnv PYTHONPATH={root} TFDS_DATA_DIR={data} TF_CPP_MIN_LOG_LEVEL=3
"""
_CLIENT = """\
IdentityFile {folder}/user
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""
# The words after it: a folder on a disk of the machine's own, and the daemon.
_START = (
    'mount -t tmpfs none /run && mkdir /run/sshd && mount -t tmpfs none "$0" && '
    'exec "$@"'
)
_FLAGS = (
    *("--model=tests.digit_runs:small_model", "--device=cpu", "--num_gpus=1"),
    *("--num_warmup_batches=0", "--save_model_steps=20"),
)


class SshTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        hosts.need(_SSHD, "ssh", "ssh-keygen")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ssh"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        names = {
            "folder": self.folder,
            "root": ROOT,
            "data": digit_runs.data_dir(),
        }
        (self.folder / "server").write_text(_SERVER.format(**names))
        (self.folder / "client").write_text(_CLIENT.format(**names))
        for name in ("host", "user"):
            words = ("-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
            subprocess.run(["ssh-keygen", *words], check=True)
        (self.folder / "bin").mkdir()
        ssh = self.folder / "bin" / "ssh"
        real = shutil.which("ssh")
        ssh.write_text(f'#!/bin/sh\nexec {real} -F {self.folder}/client "$@"\n')
        ssh.chmod(0o755)
        environment = {
            "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
        }
        self.hosts = hosts.needed(
            self.folder, environment, data_dir=digit_runs.data_dir()
        )
        self.addCleanup(self.hosts.end)
        self.own_disk = self.folder / "own"
        self.own_disk.mkdir()
        for name in ("n0", "n1"):
            command = (_SSHD, "-D", "-f", str(self.folder / "server"))
            self.hosts.start(name, "sh", "-c", _START, str(self.own_disk), *command)
        for name in ("n0", "n1"):
            self.hosts.until(lambda n=name: self._reaches(n))
        self.work = self.folder / "work"  # where the user is
        self.work.mkdir()

    def _reaches(self, name):
        try:
            return not self.hosts.run("n0", "ssh", name, "true")
        except subprocess.CalledProcessError:
            return False

    def _script(self, *arguments):
        """The command that a user of n0 gives there."""
        path = f"PATH={self.folder}/bin:$PATH PYTHON={sys.executable}"
        return f"cd {self.work} && {path} bash {_SCRIPT} {shlex.join(arguments)}"

    def _start(self, *flags, second="n1"):
        flags = (*_FLAGS, f"--train_dir={self.directory}", *flags)
        words = self._script("n0", "n0", second, "--", *flags)
        return self.hosts.start("n0", "ssh", "-tt", "n0", words)

    def _log(self):
        path = self.work / "towers-logs" / "controller.log"
        return path.read_text() if path.exists() else ""

    def _waits_for(self, pattern):
        self.hosts.until(lambda: re.search(pattern, self._log(), re.M), said=self._log)

    def test_the_run_outlives_a_task_and_the_terminal(self):
        shell = self._start("--num_batches=1000000")
        self._waits_for(r"^40\t")
        self._refuses_an_evaluator()
        [worker] = hosts.pids(self.directory, "--job_name=worker", "--task_index=1")
        os.kill(worker, signal.SIGKILL)
        self._waits_for("^worker 1 on n1 ended with status 137; its log is n1:")
        self._waits_for(r"^Waiting for worker 1 at n1:2224: ")
        again = re.search(r"^  (ssh n1 '.*') &$", self._log(), re.M)[1]
        self.hosts.start("n0", "sh", "-c", again)
        self._waits_for(r"^Resuming from [\s\S]*images/sec")
        shell.kill()  # its terminal is closed
        shell.wait()
        said = self.hosts.run("n0", "ssh", "n0", self._script("stop"))
        self.assertEmpty(said)
        stopped = re.search(r"Stopped by SIGTERM after step (\d+), saved", self._log())
        self.assertIsNotNone(stopped, self._log())
        self.assertEmpty(list(hosts.pids(self.directory)))
        self.assertEqual((self.work / "towers-logs" / "status").read_text(), "143\n")

        steps = f"--num_batches={int(stopped[1]) + 20}"
        self.assertEqual(self._start(steps).wait(hosts.PATIENCE), 0, self._log())
        survived = self.values()
        self.directory = os.path.join(self.directory, "whole")
        in_process_cluster.ended(
            *(*_FLAGS, steps, f"--train_dir={self.directory}"),
            between=False,
            data_dir=digit_runs.data_dir(),
        )
        trainer.assert_same_bits(self.values(), survived)

    def _refuses_an_evaluator(self):
        """That looks into another folder than the one in which the run saves."""
        hosts_flags = ("--controller_host=n0:2222", "--ps_hosts=n0:2223")
        workers = "--worker_hosts=n0:2224,n1:2224"
        flags = ("--job_name=evaluator", f"--train_dir={self.own_disk}", *_FLAGS[:3])
        command = (sys.executable, "-m", "towers.train", *flags, *hosts_flags, workers)
        log = self.folder / "evaluator.log"
        noted = ("sh", "-c", 'exec "$@" >"$0" 2>&1', str(log), *command)
        status = self.hosts.start("n1", *noted).wait(hosts.PATIENCE)
        said = log.read_text()
        self.assertEqual(status, 2, said)
        words = "on n1 this is not the folder in which the controller at n0:2222 saves"
        self.assertIn(words, said)

    def test_a_disk_of_one_machine_is_refused_where_all_must_see_it(self):
        self.directory = str(self.own_disk / "run")
        status = self._start("--num_batches=5", "--shared_train_dir").wait(
            hosts.PATIENCE
        )
        self.assertEqual(status, 2, self._log())
        self.assertRegex(
            self._log(),
            "error: --train_dir=.*/own/run: this folder of n0 is not seen by worker 1 "
            "at n1:2224; name one",
        )
        self.assertEmpty(list(hosts.pids(self.directory)))

    def test_a_machine_that_cannot_run_its_task_ends_the_run(self):
        status = self._start("--num_batches=5", second="n9").wait(hosts.PATIENCE)
        self.assertEqual(status, 255, self._log())
        self.assertRegex(
            self._log(), r"error: worker 1 on n9 cannot run \(status 255\)"
        )
        self.assertEmpty(list(hosts.pids(self.directory)))
