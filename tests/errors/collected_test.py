"""Errors are collected, one sentence each."""

import contextlib
import errno
import io
import sys
from unittest import mock

from absl.testing import absltest

from flags.problem import Problem
from towers.errors import collected


class CollectedErrorsTest(absltest.TestCase):
    def test_every_part_runs_and_every_complaint_is_kept(self):
        def bad(sentence):
            raise ValueError(sentence)

        def worse():
            two = Problem("b", 2, "two")
            raise collected.PlanError(two, Problem("c", None, "three", "four"))

        checks = collected.CollectedErrors()
        checks.check()
        self.assertIsNone(checks.get(lambda: bad("one")))
        self.assertIsNone(checks.get(worse))
        self.assertEqual(checks.get(lambda: 4), 4)
        with self.assertRaises(collected.PlanError) as caught:
            checks.check()
        self.assertEqual(
            caught.exception.errors, ["one", "--b=2: two", "--c: three; four"]
        )
        self.assertEqual(str(caught.exception), "one\nb=2: two\nc: three; four")

    def test_faults_of_the_program_are_not_caught(self):
        with self.assertRaises(ZeroDivisionError):
            collected.CollectedErrors().get(lambda: 1 // 0)

    def test_refused_on_one_line_each(self):
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            status = collected.refuse(["--a=x\ny", "--b=\x00\udc80", "c ü"], status=2)
        self.assertEqual(status, 2)
        self.assertEqual(
            printed.getvalue(),
            "error: --a=x\\ny\nerror: --b=\\x00\\udc80\nerror: c ü\n",
        )

    def test_lines_that_cannot_be_printed(self):
        full = "error: what is printed cannot be written (why)\n"
        for number, status, said in (
            (errno.EPIPE, collected.CLOSED_PIPE, ""),
            (errno.ENOSPC, 1, full),
        ):
            path = self.create_tempfile().full_path
            with (
                open(path, "w") as file,
                mock.patch.object(sys, "stdout", file),
                contextlib.redirect_stderr(io.StringIO()) as printed,
            ):
                exit_status = collected.not_printed(OSError(number, "why"))
                self.assertEqual(exit_status, status)
                print("nobody is to see this")
            self.assertEqual(printed.getvalue(), said)
            with open(path) as file:
                self.assertEqual(file.read(), "")
        with self.assertRaises(PermissionError):
            collected.not_printed(OSError(errno.EACCES, "no"))
