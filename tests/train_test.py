"""The command line as users have it: lines, files, signals and exit statuses.

Each process costs some seconds to import TensorFlow, so what needs none of its own
calls `main` here, and most others are forked where it is imported; what a run does
inside is tested in `run_test` and `watch_test`.
"""

import contextlib
import io
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tests import digit_runs, trainer
from tests.processes import manual_tasks
from tests.processes.programs import ROOT
from towers import run, train
from towers.checkpoints import checkpoint, saving
from towers.command_line import read_command_line
from towers.errors import output_paths
from towers.pipelines import costs

_PATIENCE = 240  # seconds

# A model on the user's path: crops and distorts the digits, drops units, has batch
# norm.  Its steps take a millisecond or two.
_MODEL = """
import tensorflow as tf
from models import Images, Model, Recipe, Schedule

def block(x, nn):
    x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
    return nn.dropout(nn.flatten(x), 0.2)

def logits(x, nn):
    return nn.dense(x, nn.num_classes)

def tiny():
    images = Images((6, 6, 1), 10, preprocessing="cifar_tutorial", data_name="digits")
    recipe = Recipe(batch_size=8, schedule=Schedule((0.05,)), weight_decay=1e-3)
    blocks = (("block", block), ("logits", logits))
    return Model(name="tiny", blocks=blocks, inputs=images, recipe=recipe)
"""

_LAST_STEP = 600
_TINY = (
    "--model=my_models.tiny:tiny --num_gpus=4 --device=cpu --num_warmup_batches=0 "
    f"--num_batches={_LAST_STEP} --save_model_steps=50 --eval_at_end"
).split()


def _environment() -> dict[str, str]:
    """Of a process of its own, beside what is in this one's."""
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **quiet}


class _Process:
    """`python -m towers.train` with some flags, here."""

    def __init__(self, *flags: str):
        self._process = subprocess.Popen(
            [sys.executable, "-m", "towers.train", *flags],
            env=_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self, start: str) -> None:
        """Waits for a line that begins so."""
        assert any(line.startswith(start) for line in self._process.stdout), start

    def stop(self) -> None:
        """Ends it, if it runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()

    def close(self) -> None:
        """Closes the other end of its output."""
        self._process.stdout.close()
        self._process.stdout = None

    def end(self) -> tuple[int, list[str], list[str]]:
        """Waits; the exit status, the lines printed, and those of errors."""
        out, errors = self._process.communicate(timeout=_PATIENCE)
        assert "Traceback" not in errors, errors
        errors = [line for line in errors.splitlines() if line.startswith("error:")]
        return self._process.returncode, (out or "").splitlines(), errors


class _Fork(manual_tasks.Task):
    """The same, of a process that has imported TensorFlow."""

    def __init__(self, *flags: str):
        super().__init__(list(flags), _environment())

    def kill_after(self, number: int, directory: str, step: int) -> None:
        """Sends a signal when there is a checkpoint of this step or a later one."""
        patience = time.monotonic() + _PATIENCE
        while not any(_step(p) >= step for p in checkpoint.all_paths(directory)):
            assert self.process.is_alive(), self.ended()
            assert time.monotonic() < patience, "no checkpoint comes"
            time.sleep(0.01)
        self.send(number)

    def send(self, number: int) -> None:
        """Sends a signal."""
        os.kill(self.process.pid, number)

    def stop(self) -> None:
        """Ends it, if it runs."""
        self.process.kill()
        self.process.join()

    def ended(self) -> tuple[int, list[str], list[str]]:
        """As `_Process.end`."""
        status = self.end(_PATIENCE)
        assert not any("Traceback" in line for line in self.lines), self.lines
        errors = [line for line in self.lines if line.startswith("error:")]
        return status, [line for line in self.lines if line not in errors], errors


def _step(path: str) -> int:
    return int(path.rsplit("-", 1)[1])


class TrainTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        os.makedirs(os.path.join(cls.folder, "my_models"))
        os.makedirs(os.path.join(cls.folder, "data"))
        with open(os.path.join(cls.folder, "my_models", "tiny.py"), "w") as file:
            file.write(_MODEL)
        data = os.path.join(cls.folder, "data")
        for patch in (
            mock.patch.dict(os.environ, TFDS_DATA_DIR=data, PYTHONPATH=str(ROOT)),
            mock.patch.object(sys, "path", [cls.folder, *sys.path]),
        ):
            patch.start()
            cls.addClassCleanup(patch.stop)
        cls.addClassCleanup(os.chdir, os.getcwd())
        os.chdir(cls.folder)
        # One run that nobody disturbs, whose checkpoints the tests start from.
        cls.straight = os.path.join(cls.folder, "straight")
        cls.straight_run = _Fork(*_TINY, "--train_dir=straight")
        cls.addClassCleanup(cls.straight_run.stop)
        cls.straight_end = None

    def _straight(self):
        """The lines of the undisturbed run, once it has ended."""
        if self.straight_end is None:
            type(self).straight_end = self.straight_run.ended()
        status, lines, errors = self.straight_end
        self.assertEqual((status, errors), (0, []))
        return lines

    def _start(self, *flags, kind=_Process):
        process = kind(*flags)
        self.addCleanup(process.stop)
        return process

    def _fork(self, *flags):
        return self._start(*flags, kind=_Fork)

    def _main(self, *flags):
        """As `_run`, in this process."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = train.main(["train", *flags])
        errors = errors.getvalue().splitlines()
        errors = [line for line in errors if line.startswith("error:")]
        return status, out.getvalue().splitlines(), errors

    def _copy(self, name):
        """A folder with the newest checkpoints of the undisturbed run."""
        self._straight()
        shutil.copytree(self.straight, os.path.join(self.folder, name))
        return f"--train_dir={name}"

    def _assert_same_end(self, directory):
        first, second = (
            tf.train.load_checkpoint(checkpoint.latest(path))
            for path in (self.straight, directory)
        )
        names = first.get_variable_to_shape_map()
        self.assertEqual(names, second.get_variable_to_shape_map())
        self.assertEqual(first.get_tensor("global_step"), _LAST_STEP)
        trainer.assert_same_bits(
            {name: first.get_tensor(name) for name in names},
            {name: second.get_tensor(name) for name in names},
        )

    def test_the_main_job(self):
        status, lines, errors = self._start("--num_gpus=4").end()
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(
            lines[0], "No GPU is visible: 4 towers run on 4 logical CPU devices."
        )
        accuracy, rule, total, _, wait, mfu = lines[-6:]
        [(top_1, count)] = digit_runs.accuracies([accuracy])
        self.assertGreaterEqual(top_1, 0.97)
        self.assertEqual(count, 355)
        self.assertEqual(rule, "-" * 64)
        self.assertRegex(total, r"^total images/sec: \d+\.\d\d$")
        self.assertRegex(wait, r"^waiting for input: \d+\.\d % of the time$")
        self.assertRegex(mfu, r"^MFU: (\d+\.\d %|unknown, .*) \(")

    def test_signals_and_kills_change_nothing(self):
        self._check_signals("signals", *_TINY)

    def test_signals_and_kills_while_a_thread_writes_change_nothing(self):
        self._check_signals("thread", *_TINY, "--async_checkpoint")

    def _check_signals(self, name, *flags):
        """Ended three times, each time at another step, and yet equal bit for bit."""
        directory = os.path.join(self.folder, name)
        flags = [*flags, f"--train_dir={name}"]
        stopped = 0
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
            process = self._fork(*flags)
            if stopped:
                process.line(f"^Resuming from {name}/model.ckpt-{stopped}$")
            process.kill_after(number, directory, stopped + 60)
            exit_status, lines, errors = process.ended()
            self.assertEqual((exit_status, errors), (status, []))
            words = f"Stopped by {number.name} after step (\\d+), saved to (.*); the .*"
            last = re.fullmatch(words, lines[-1])
            self.assertIsNotNone(last, lines[-1])
            step, path = int(last.group(1)), last.group(2)
            self.assertEqual(path, f"{name}/model.ckpt-{step}")
            self.assertNotIn("failure", os.listdir(directory))
            self.assertEqual(_step(checkpoint.latest(directory)), step)
            self.assertBetween(step, stopped + 60, _LAST_STEP - 1)
            stopped = step
        process = self._fork(*flags)
        after = random.Random(1)
        process.kill_after(0, directory, stopped + after.randrange(20, 150))
        time.sleep(after.random() / 20)
        process.send(signal.SIGKILL)
        self.assertEqual(process.ended()[0], -signal.SIGKILL)
        newest = _step(checkpoint.latest(directory))
        self.assertBetween(newest, stopped + 1, _LAST_STEP - 1)
        stopped = newest
        exit_status, lines, errors = self._fork(*flags).ended()
        self.assertEqual((exit_status, errors), (0, []))
        self.assertIn(f"Resuming from {name}/model.ckpt-{stopped}", lines)
        self.assertEqual(lines[-1], f"Checkpoints are in {name}.")
        straight = self._straight()
        self.assertEqual(digit_runs.accuracies(lines), digit_runs.accuracies(straight))
        self._assert_same_end(directory)

    def test_flags_are_looked_at_only(self):
        folder = os.path.join(self.create_tempdir(), "fresh")
        flags = ["--check_flags", f"--train_dir={folder}", "--num_gpus=2"]
        self.assertEqual(self._main(*flags), (0, ["legal"], []))
        status, lines, errors = self._main(*flags, "--eval", "--num_epochs=1", "x")
        self.assertEqual((status, lines), (2, []))
        self.assertLen(errors, 1)
        status, lines, errors = self._main("--check_flags", "--eval", "--optimizer=x")
        self.assertEqual((status, lines), (2, []))
        self.assertEqual(
            [error.split(": ")[1] for error in errors], ["--optimizer=x", "--eval"]
        )
        self.assertFalse(os.path.exists(folder))
        evaluator = {"TF_CONFIG": '{"task": {"type": "evaluator"}}'}
        with mock.patch.dict(os.environ, evaluator):
            status, _, errors = self._main("--check_flags", "--num_gpus=2")
        self.assertEqual(status, 2)
        self.assertEqual(errors, ["error: TF_CONFIG: an evaluator needs --train_dir"])
        hosts = "--ps_hosts=a:1,b:1", "--worker_hosts=c:1,d:1", "--job_name"
        follower = "--check_flags", *hosts, "worker", "--task_index=1"
        between = "--replication=between_graph"
        self.assertEqual(self._main(*follower, between), (0, ["legal"], []))

    def test_what_the_model_is_not_made_for_is_not_legal(self):
        model = ["--model=mlp", "--num_gpus=2", "--device=cpu", "--check_flags"]
        for flag in ("--sparse_to_dense_grads", "--shard_embeddings=2"):
            status, lines, errors = self._main(*model, flag)
            self.assertEqual((status, lines), (2, []))
            self.assertRegex("".join(errors), f"^error: {flag}: no .*; leave it out$")
        with mock.patch.dict(costs.COSTS, time=None):  # no time is measured for it
            for flags in (
                ["--num_stages=2", "--partition=auto"],
                ["--local_cluster=worker:2", "--variable_update=replicated"],
            ):
                self.assertEqual(self._main(*model, *flags), (0, ["legal"], []))

    def test_an_evaluator_reads_what_is_said_of_the_devices_of_other_tasks(self):
        hosts = "--ps_hosts=a:1,b:1", "--worker_hosts=c:1,d:1", "--job_name=evaluator"
        for flags in (
            ["--model=mlp", "--num_stages=2", "--partition=hidden1"],
            ["--partition_bytes=1000", "--variable_placement=round_robin"],
            ["--variable_update=replicated", "--all_reduce_spec=nccl/xring"],
            ["--eval_interval_secs=60", "--eval_during_training_every_n_epochs=1"],
        ):
            status = self._main("--check_flags", "--train_dir=none", *hosts, *flags)
            self.assertEqual(status, (0, ["legal"], []))

    def test_a_worker_prepares_the_data_that_it_reads(self):
        hosts = ["--ps_hosts=a:1", "--worker_hosts=b:1", "--controller_host=c:1"]
        for job, name, there, said in (
            ("ps", "digits", False, ""),
            ("worker", "digits", True, ""),
            ("worker", "nowhere", False, "worker 0: --data_name=nowhere"),
        ):
            folder = self.create_tempdir().full_path
            flags = [f"--job_name={job}", f"--data_name={name}", "--model=lenet"]
            with mock.patch.object(train.server, "serve", return_value=0):
                status, lines, _ = self._main(
                    *(*hosts, *flags, "--device=cpu", f"--data_dir={folder}")
                )
            self.assertEqual((status, bool(os.listdir(folder))), (0, there))
            self.assertStartsWith("".join(lines), said)

    def test_data_that_a_worker_lacks_are_to_be_on_its_disk(self):
        hosts = ["--worker_hosts=b:1", "--controller_host=c:1", "--job_name=controller"]
        words = "x.tfrecord; No such file or directory\n[[{{node IteratorGetNext}}]]"
        error = tf.errors.NotFoundError(None, None, words)
        for flags, end in (([], "again"), (hosts, "there, on its own disk")):
            command = read_command_line(["train", "--device=cpu", *flags])
            self.assertRegex(train._damage(command, error), f"No such file.*{end}$")

    def test_what_a_cluster_may_do_is_not_said_without_one(self):
        by_hosts = ["--job_name=worker", "--ps_hosts=c:1,d:1"]
        for wrong, *rest in (
            ["--worker_hosts=a:1,,b:1", *by_hosts],
            ["--task_index=9", "--worker_hosts=a:1", *by_hosts],
            ["--local_cluster=ps:x", "--replication=between_graph"],
        ):
            flags = ("--check_flags", wrong, *rest, "--partition_bytes=1000")
            status, _, errors = self._main(*flags)
            self.assertEqual(status, 2)
            self.assertLen(errors, 1)
            self.assertStartsWith(errors[0], f"error: {wrong}: ")

    def test_what_follows_from_a_fault_is_not_said(self):
        flags = ("--check_flags", "--memory_limit=0", "--recompute=auto", "--eval")
        status, _, errors = self._main(*flags)
        self.assertEqual(status, 2)
        self.assertEqual(
            [error.split(": ")[1] for error in errors], ["--memory_limit=0", "--eval"]
        )

    def test_nobody_reads_the_lines(self):
        """As in `python -m towers.train | head -1`."""
        process = self._start(*_TINY, "--train_dir=nobody")
        process.line("Generating training model")
        process.close()
        status, _, errors = process.end()
        self.assertEqual((status, errors), (128 + signal.SIGPIPE, []))

    def test_lines_that_go_to_a_full_disk(self):
        with (
            open("/dev/full", "w") as full,
            mock.patch.object(sys, "stdout", full),
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            self.assertEqual(train.main(["train", "--check_flags"]), 1)
        # Bazel runs the tests with TFDS's notes.
        self.assertEqual(
            errors.getvalue().splitlines()[-1],
            "error: what is printed cannot be written (No space left on device)",
        )

    def test_evaluation_alone(self):
        flags = self._copy("evaluation")
        status, lines, errors = self._main("--eval", *_TINY[:3], flags)
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(
            digit_runs.accuracies(lines), digit_runs.accuracies(self._straight())
        )

    def test_a_loss_that_is_no_number(self):
        flags = self._copy("nan")
        longer = [flag for flag in _TINY if "num_batches" not in flag]
        longer += [
            flags,
            f"--num_batches={2 * _LAST_STEP}",
            "--init_learning_rate=1e30",
        ]
        status, _, errors = self._main(*longer)
        self.assertEqual(status, 1)
        self.assertLen(errors, 1)
        self.assertRegex(
            errors[0],
            r"^error: the gradient of .* not finite at step 60\d, .*; "
            r"the loss of step 60\d is (nan|inf); lower --init_learning_rate; "
            rf"the last checkpoint is nan/model.ckpt-{_LAST_STEP}$",
        )
        self._assert_same_end(os.path.join(self.folder, "nan"))
        with open(os.path.join(self.folder, "nan", "failure")) as file:
            self.assertEqual(f"error: {file.read()}", f"{errors[0]}\n")

    def test_a_full_disk(self):
        """Files of more than 8 kB, as checkpoints are, cannot be written."""
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = (8192, before[1])
        flags = self._copy("full")
        longer = [flag for flag in _TINY if "num_batches" not in flag]
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        try:
            status, _, errors = self._main(
                *longer, flags, f"--num_batches={_LAST_STEP + 100}"
            )
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        self.assertEqual(status, 1)
        self.assertLen(errors, 1)
        self.assertRegex(
            errors[0],
            rf"^error: the checkpoint of step {_LAST_STEP + 100} could not be written "
            rf"to full \(.*\); the last whole one is full/model.ckpt-{_LAST_STEP}$",
        )
        self._assert_same_end(os.path.join(self.folder, "full"))

    def test_a_checkpoint_of_another_model(self):
        flags = self._copy("other")
        before = sorted(os.listdir(os.path.join(self.folder, "other")))
        status, _, errors = self._main("--model=mlp", "--num_batches=2", flags)
        self.assertEqual(status, 2)
        self.assertLen(errors, 1)
        self.assertRegex(errors[0], "of another model .*not in it: hidden1/.*block/")
        with output_paths.held(
            "train_dir", os.path.join(self.folder, "other")
        ):  # left by another run
            status, _, errors = self._main("--model=mlp", "--num_batches=2", flags)
        self.assertEqual(status, 2)
        self.assertStartsWith(errors[0], "error: --train_dir=other: another run is")
        self.assertEqual(sorted(os.listdir(os.path.join(self.folder, "other"))), before)

    def test_the_folder_of_another_run_gets_no_note(self):
        taken = saving.TakenError("another run is training there")
        with mock.patch.object(run, "train", side_effect=taken) as trained:
            flags = ("--model=mlp", "--num_batches=2", "--train_dir=taken")
            status, _, errors = self._main(*flags)
        self.assertEqual((status, errors), (1, [f"error: {taken}"]))
        self.assertIsNotNone(trained.call_args.kwargs["lock"])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "taken")))

    def test_a_truncated_record(self):
        self._straight()  # the first run prepared the data set
        data = os.path.join(self.folder, "truncated_data")
        shutil.copytree(os.path.join(self.folder, "data"), data)
        [path] = tf.io.gfile.glob(f"{data}/digits/*/digits-train.tfrecord*")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) // 2 + 3)
        status, _, errors = self._main(
            "--num_gpus=2",
            "--data_name=digits",
            f"--data_dir={data}",
            "--train_dir=nothing",
        )
        self.assertEqual(status, 1)
        self.assertLen(errors, 1)
        self.assertNotIn("nothing", os.listdir(self.folder))
        self.assertIn("the data set is damaged", errors[0])
        self.assertIn(data, errors[0])
        self.assertEndsWith(errors[0], "; nothing was saved")

    def test_all_errors_of_a_command_line(self):
        before = sorted(os.listdir(self.folder))
        status, lines, errors = self._main(
            *"--num_gpus=x --batch_size=-3 --optimizer=sgdd".split(),
            *"--augment False --no_such_flag --model=lenett".split(),
            *"--num_epochs=1 --num_batches=3 --data_name=no_such_set".split(),
            *"--train_dir=/proc/nope --benchmark_log_dir=new_log".split(),
        )
        self.assertEqual((status, lines), (2, []))
        for flag in (
            "--num_gpus=x: must be a whole number",
            "--batch_size=-3: must be at least 1",
            "--optimizer=sgdd: no such optimizer; did you mean sgd",
            "False: stray argument",
            "--num_batches=3: does not go with --num_epochs",
            "--no_such_flag: no such flag",
            "--model=lenett: no such model; did you mean lenet",
            "--train_dir=/proc/nope: cannot be written to",
        ):
            of_flag = [error for error in errors if error.startswith(f"error: {flag}")]
            self.assertLen(of_flag, 1, f"{flag}\n{errors}")
        self.assertEqual(sorted(os.listdir(self.folder)), before)
