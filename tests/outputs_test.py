"""A run goes on if it cannot write files other than checkpoints."""

import contextlib
import errno
import io
import os
import re
import shutil
import signal
from unittest import mock

from tests import digit_runs
from towers.errors import collected

_FLAGS = dict(num_batches=6, num_warmup_batches=0, display_every=1)


class _Breaks(io.StringIO):
    """Cannot be written from the line of a step on."""

    def __init__(self, number: int, step: int = 0):
        super().__init__()
        self._error = OSError(number, os.strerror(number))
        self._step = step
        self._broken = False

    def write(self, text: str) -> int:
        """Writes, or does not."""
        self._broken |= text.startswith(f"{self._step}\timages/sec")
        if self._broken:
            raise self._error
        return super().write(text)


class OutputsTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        printed = contextlib.redirect_stderr(io.StringIO())
        self.printed = self.enter_context(printed)

    def _warnings(self):
        return [
            line
            for line in self.printed.getvalue().splitlines()
            if line.startswith("warning: ")
        ]

    def test_a_reader_that_leaves_ends_the_run_which_is_saved(self):
        for steps_per_loop in (1, 3):
            with self.subTest(steps_per_loop=steps_per_loop):
                self.run_flags(
                    status=collected.CLOSED_PIPE,
                    stream=_Breaks(errno.EPIPE, step=3),
                    train_dir=self.directory,
                    steps_per_loop=steps_per_loop,
                    **_FLAGS,
                )
                [last] = self.steps()
                self.assertBetween(last, 3, 5)
                self.assertEmpty(self._warnings())
                shutil.rmtree(self.directory)
        self.assertEqual(collected.CLOSED_PIPE, 128 + signal.SIGPIPE)

    def test_an_evaluation_whose_reader_leaves_ends(self):
        self.run_flags(train_dir=self.directory, **_FLAGS)
        stream = mock.create_autospec(io.StringIO(), instance=True)
        stream.write.side_effect = BrokenPipeError(errno.EPIPE, "Broken pipe")
        self.run_flags(
            status=collected.CLOSED_PIPE,
            stream=stream,
            train_dir=self.directory,
            eval=True,
            eval_interval_secs=3600,
        )

    def test_all_at_once(self):
        log_dir, eval_dir, path = (
            os.path.join(self.create_tempdir(), name) for name in ("log", "eval", "f")
        )
        os.mkdir(log_dir)
        os.symlink("/dev/full", os.path.join(log_dir, "metric.log"))
        os.symlink("/dev/full", path)
        os.symlink("/dev/full", f"{path}.svg")
        stream = _Breaks(errno.ENOSPC, step=2)
        fail, stream.write = (
            stream.write,
            lambda text: self._spoil(text, eval_dir, fail),
        )
        self.run_flags(
            stream=stream,
            train_dir=self.directory,
            benchmark_log_dir=log_dir,
            trace_file=path,
            graph_file=f"{path}.svg",
            eval_dir=eval_dir,
            eval_at_end=True,
            **_FLAGS,
        )
        self.assertEqual(self.steps(), [6])
        self.assertNotIn("2\timages/sec", stream.getvalue())
        warnings = self._warnings()
        said = [re.match("warning: (.*) cannot be", line) for line in warnings]
        left_out = [re.match("warning: (.*) are not", line) for line in warnings]
        kinds = {
            "events of the trace",
            "lines",
            "measurements",
            "nodes of the graph",
            "summaries of evaluations",
        }
        self.assertCountEqual([match[1] for match in said if match], kinds)
        self.assertCountEqual([match[1] for match in left_out if match], kinds)
        self.assertLen(warnings, 2 * len(kinds))
        self.assertTrue(os.path.islink(path))

    def _spoil(self, text, eval_dir, write):
        """Puts a file in the place of a folder when training has begun."""
        if text.startswith("1\timages/sec"):
            open(eval_dir, "w").close()
        return write(text)

    def test_evaluations_are_in_one_file(self):
        self.run_flags(
            train_dir=self.directory,
            eval_during_training_every_n_steps=2,
            eval_at_end=True,
            **_FLAGS,
        )
        folder = os.path.join(self.directory, "eval")
        self.assertLen(os.listdir(folder), 1)
        self.assertEqual({step for step, *_ in digit_runs.events(folder)}, {2, 4, 6})
