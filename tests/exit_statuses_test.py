"""The table of docs/exit_statuses.md, row by row.

Real signals, in this process; `train_test` and `survival_test` send them to others.
"""

import contextlib
import errno
import io
import os
import queue
import re
import signal
import socket
import threading
import time
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs
from tests.processes.programs import ROOT
from towers import run, train, verify
from towers.callbacks.base import TrainingError
from towers.callbacks.stop_on_nan import NanLossError
from towers.checkpoints import checkpoint, run_status
from towers.cluster import messages, server
from towers.cluster.controller import Controller
from towers.errors import interrupts, output_paths
from towers.evaluation import watch
from towers.layout import cluster_spec
from towers.session import progress

_SMALL = ("--model=mlp", "--device=cpu", "--batch_size=2", "--num_warmup_batches=0")
_TERM, _INT, _HUP = signal.SIGTERM, signal.SIGINT, signal.SIGHUP
_HOSTS = ("--worker_hosts=127.0.0.1:1", "--controller_host=127.0.0.1:2")


def _sending(number, act):
    """`act`, before which a signal comes."""

    def send(*args, **kwargs):
        os.kill(os.getpid(), number)
        return act(*args, **kwargs)

    return send


class ExitStatusesTest(digit_runs.Runs):
    def _main(self, *flags, program=train):
        """The status, and all lines."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            status = program.main(["program", *flags])
        self.assertNotIn("Traceback", errors.getvalue())
        lines = [*out.getvalue().splitlines(), *errors.getvalue().splitlines()]
        # absltest shows what libraries log for information.
        return status, [line for line in lines if not re.match(r"I\d{4} ", line)]

    def _train(self, *flags):
        return self._main(*_SMALL, f"--train_dir={self.directory}", *flags)

    def test_the_table_has_what_is_tested_here(self):
        text = (ROOT / "docs" / "exit_statuses.md").read_text(encoding="utf-8")
        rows = re.findall(r"(?m)^\| (\d+) \| (.*?) \|", text)
        stopped = {
            str(interrupts.Interrupted(n).status): f"stopped by {n.name} before the end"
            for n in (_HUP, _INT, signal.SIGPIPE, _TERM)
        }
        others = ["finished", "failed while running"]
        others.append("refused before the work began")
        wanted = {str(k): words for k, words in enumerate(others)} | stopped
        self.assertEqual(dict(rows), wanted)

    def test_0_finished(self):
        status, lines = self._train("--num_batches=2")
        self.assertEqual(status, 0, lines)
        # the run was finished before
        self.assertEqual(self._train("--num_batches=2")[0], 0)
        self.assertEqual(self._train("--check_flags")[0], 0)

    @parameterized.parameters(
        "--optimizer=none",
        "--data_name=nowhere",
        "--data_dir=/nowhere --data_name=imagefolder",
        "--train_dir=/proc/run",
        "--eval",
        "--job_name=worker",
        "--local_cluster=ps:1",
    )
    def test_2_refused(self, flags):
        status, lines = self._train("--num_batches=2", *flags.split())
        self.assertEqual(status, 2, lines)
        self.assertRegex(lines[-1], "^error: ")
        self.assertFalse(os.path.exists(self.directory))

    def test_2_a_checkpoint_of_another_model_and_the_notes_stay(self):
        """Only a run that takes steps makes what says how the last one ended untrue."""
        self._train("--num_batches=2")
        run_status.leave(self.directory, "the disk was full")
        run_status.leave_end(self.directory, 2)
        before = sorted(os.listdir(self.directory))
        status, lines = self._train("--model=lenet", "--num_batches=3")
        self.assertEqual(status, 2, lines)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        self.assertEqual(self._train("--num_batches=2")[0], 0)
        self.assertEqual(run_status.end(self.directory), 2)
        self.assertEqual(self._train("--num_batches=3")[0], 0)
        self.assertNoCommonElements(os.listdir(self.directory), ("failure", "end"))

    @parameterized.parameters(
        TrainingError("no"),
        NanLossError("no", 1, "do"),
        output_paths.OutputError("no"),
        checkpoint.CheckpointError("no"),
        checkpoint.NotFiniteError("no", 1),
        messages.ClusterError("no"),
        tf.errors.ResourceExhaustedError(None, None, "no"),
    )
    def test_1_failed(self, error):
        with mock.patch.object(run, "train", side_effect=error):
            status, lines = self._train()
        self.assertEqual(status, 1, lines)
        self.assertRegex(lines[-1], "^error: ")

    def test_1_what_would_have_been_refused_before_the_first_step(self):
        """And it is noted for those who wait for checkpoints."""
        self._train("--num_batches=2")
        lookout = run_status.Lookout(self.directory)
        with mock.patch.object(
            run.loop, "run", side_effect=ValueError("no such split")
        ):
            status, lines = self._train("--num_batches=4")
        self.assertEqual(status, 1, lines)
        self.assertRegex(lines[-1], "^error: no such split$")
        self.assertRegex(lookout(), "failed: no such split")

    def test_1_the_ways_disagree_or_fail(self):
        error = tf.errors.ResourceExhaustedError(None, None, "no")
        with mock.patch.object(verify, "_compare", side_effect=error):
            status, lines = self._main(*_SMALL[:2], program=verify)
        self.assertEqual((status, lines[-1][:20]), (1, "error: out of memory"))

    @parameterized.parameters(
        (_TERM, train.planning, "make", "nothing was begun"),
        (_INT, train.planning, "make", "nothing was begun"),
        (_HUP, run, "prepare", "nothing was saved"),
        (_TERM, run, "prepare", "nothing was saved"),
        (_INT, run.loop, "start", "after step 1, saved to .*/model.ckpt-1; the same"),
        (_TERM, run.loop, "run", "after step 1, saved to .*/model.ckpt-1; the same"),
    )
    def test_128_and_the_signal_in_training(self, number, module, name, said):
        sending = _sending(number, getattr(module, name))
        with mock.patch.object(module, name, sending):
            status, lines = self._train("--num_batches=3")
        self.assertEqual(status, 128 + number, lines)
        self.assertRegex(lines[-1], f"^Stopped by {number.name}:? {said}")

    def test_0_a_signal_when_only_reports_remain(self):
        late = _sending(_TERM, progress.Progress.report)
        with mock.patch.object(progress.Progress, "report", late):
            status, lines = self._train("--num_batches=3")
        self.assertEqual(status, 0, lines)
        self.assertRegex(lines[-1], "^Checkpoints are in ")

    def test_128_and_the_signal_in_evaluation(self):
        self._train("--num_batches=2")
        evaluate = ("--eval", "--num_batches=2", "--data_name=digits")
        for module, name, said in (
            (watch, "_Evaluator", "nothing was begun"),
            (watch.evaluator, "num_examples", "nothing was begun"),
            (watch.checkpoint, "files", "nothing was evaluated last"),
        ):
            sending = _sending(_TERM, getattr(module, name))
            with mock.patch.object(module, name, sending):
                status, lines = self._train(*evaluate)
            self.assertEqual(status, 143, lines)
            self.assertRegex(lines[-1], f"^Stopped by SIGTERM: {said}")

    def test_141_nobody_reads_what_is_printed(self):
        closed = io.StringIO()
        closed.write = mock.Mock(side_effect=BrokenPipeError(errno.EPIPE, "closed"))
        directory = f"--train_dir={self.directory}"
        for flags in (["--check_flags"], [directory, "--num_batches=2"]):
            with (
                contextlib.redirect_stdout(closed),
                contextlib.redirect_stderr(io.StringIO()),
            ):
                self.assertEqual(train.main(["program", *_SMALL, *flags]), 141)

    def test_128_and_the_signal_in_a_comparison(self):
        for number, name in ((_TERM, "_read"), (_INT, "_compare")):
            sending = _sending(number, getattr(verify, name))
            with mock.patch.object(verify, name, sending):
                status, lines = self._main(*_SMALL[:2], program=verify)
            self.assertEqual(status, 128 + number, lines)
            self.assertRegex(lines[-1], f"^Stopped by {number.name}: nothing is saved")

    @parameterized.parameters(_TERM, _INT, _HUP)
    def test_128_and_the_signal_in_a_task(self, number):
        """Which waits for its dismissal, after it was started."""
        spec = cluster_spec.from_hosts(
            "ps", 0, ps=["p:1"], workers=["w:1"], controller=None
        )
        lines = []
        look = _sending(number, lambda *args, **kwargs: "")
        with mock.patch.object(messages, "silence", look), interrupts.raised():
            status = server.await_dismissal(
                queue.SimpleQueue(), spec, server.Patience(0.1, 9, 0), lines.append
            )
        self.assertEqual(status, 128 + number)
        self.assertRegex(lines[0], f"^ps 0: stopped by {number.name} before training")
        with mock.patch.object(server, "start", _sending(number, server.start)):
            status, said = self._main(*_HOSTS, "--job_name=worker", *_SMALL)
        self.assertEqual(status, 128 + number, said)

    def _grace(self, act, grace=60.0):
        """The status and lines of a task that gets a signal, and then `act`."""
        statuses = queue.SimpleQueue()
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            spec = cluster_spec.from_hosts(
                "ps", 0, ps=["p:1"], workers=["w:1"], controller=address
            )
            lines, signals = [], [_TERM]

            def say(line):
                lines.append(line)
                if len(lines) == 1:
                    threading.Thread(target=act, args=(statuses, listening)).start()

            def look(*args, **kwargs):
                while signals:
                    os.kill(os.getpid(), signals.pop())
                return ""

            with (
                mock.patch.object(messages, "silence", look),
                mock.patch.object(interrupts, "ECHO_SECONDS", 0.0),
                mock.patch.object(server, "_GONE_SECONDS", 0.2),
                interrupts.raised(),
            ):
                patience = server.Patience(0.1, 90, grace)
                status = server.await_dismissal(statuses, spec, patience, say)
        return status, lines

    def test_a_task_serves_after_a_signal_until_the_controller_has_saved(self):
        for given in (143, 130, 0):  # 0: it had come to the end anyway
            status, lines = self._grace(lambda statuses, _, n=given: statuses.put(n))
            self.assertEqual(status, given)
            self.assertLen(lines, 1)
            self.assertRegex(lines[0], r"^ps 0: SIGTERM came; it serves 60 s more at m")

    def test_a_task_ends_after_a_signal_though_nobody_dismisses_it(self):
        def again(*_):
            os.kill(os.getpid(), _TERM)

        def leave(_, listening):
            listening.close()

        def nothing(*_):
            pass

        for act, grace, least in (
            (again, 60.0, 0.0),
            (leave, 60.0, 0.2),
            (nothing, 0.3, 0.3),
        ):
            begun = time.monotonic()
            status, lines = self._grace(act, grace)
            self.assertEqual(status, 143)
            self.assertRegex(lines[-1], "^ps 0: stopped by SIGTERM before training")
            self.assertBetween(time.monotonic() - begun, least, 30.0)

    def test_what_could_not_be_saved_is_said(self):
        stopped = interrupts.Interrupted(_TERM, "lost ps 0 at p:1: gone")
        with mock.patch.object(run, "train", side_effect=stopped):
            status, lines = self._train()
        self.assertEqual(status, 143)
        self.assertEqual(
            lines[-1],
            "Stopped by SIGTERM: the last steps could not be saved (lost ps 0 at p:1: "
            "gone); nothing was saved; the same command begins anew.",
        )

    def test_tasks_leave_with_the_status_of_the_controller(self):
        for error, status in (
            (interrupts.Interrupted(_TERM), 143),
            (ValueError("no"), 1),
        ):
            controller = mock.create_autospec(Controller, instance=True)
            Controller.__exit__(controller, type(error), error, None)
            controller.dismiss.assert_called_once_with(status)
