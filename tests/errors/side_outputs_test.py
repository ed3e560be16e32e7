"""What cannot be written beside the checkpoints ends nothing, and is told."""

import contextlib
import errno
import io
import os
import resource
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from towers.errors import side_outputs
from towers.errors.side_outputs import SideOutputs

_FULL = OSError(errno.ENOSPC, "No space left on device")


class SideOutputsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.create_tempdir().full_path
        self.side = SideOutputs()
        printed = contextlib.redirect_stderr(io.StringIO())
        self.printed = self.enter_context(printed)

    def _lines(self):
        return self.printed.getvalue().splitlines()

    def test_is_said_once_of_each_kind_and_counted(self):
        lost = tf.errors.ResourceExhaustedError(None, None, "f; No space left\nmore")
        for error in (_FULL, lost, _FULL):
            with self.side.writing("lines", "/a/file"):
                raise error
        with self.side.writing("pictures", "/b/file"):
            raise lost
        first, second = self._lines()
        self.assertEqual(
            first,
            "warning: lines cannot be written to /a/file ([Errno 28] No space left on "
            "device); the run goes on without them",
        )
        self.assertStartsWith(second, "warning: pictures cannot be written to /b/file")
        self.side.report()
        self.assertEqual(
            self._lines()[2:],
            [
                "warning: lines are not complete in /a/file: 3 writes failed",
                "warning: pictures are not complete in /b/file: a write failed",
            ],
        )
        self.side.report()
        self.assertLen(self._lines(), 4)

    def test_what_can_be_written_needs_no_word(self):
        with self.side.writing("lines", "/a/file"):
            pass
        path = os.path.join(self.root, "new", "file")
        self.side.write("texts", path, "whole")
        with open(path) as file:
            self.assertEqual(file.read(), "whole")
        self.side.report()
        self.assertEmpty(self._lines())

    def test_other_errors_are_not_about_files(self):
        with self.assertRaises(ZeroDivisionError), self.side.writing("lines", "/a"):
            1 / 0  # noqa: B018

    def test_standard_error_may_be_full_too(self):
        full = mock.create_autospec(sys.stderr, instance=True)
        full.write.side_effect = _FULL
        with contextlib.redirect_stderr(full):
            self.side.leave_out("lines", "/a/file", _FULL)
            self.side.report()
        full.write.assert_called()

    def test_of_a_text_no_half_is_left(self):
        path = os.path.join(self.root, "file")
        with _files_of_at_most(100):
            self.side.write("texts", path, "1234567890" * 1000)
        self.assertLen(self._lines(), 1)
        self.assertFalse(os.path.exists(path))

    def test_what_a_path_stands_for_is_not_removed(self):
        path, link = os.path.join(self.root, "file"), os.path.join(self.root, "link")
        os.symlink(path, link)
        with _files_of_at_most(100):
            self.side.write("texts", link, "1234567890" * 1000)
        self.assertTrue(os.path.lexists(link))


class AppendLineTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir(), "new", "log")

    def _read(self):
        with open(self.path) as file:
            return file.read()

    def test_appends(self):
        for line in ("one", "two \u00fc"):
            side_outputs.append_line(self.path, line)
        self.assertEqual(self._read(), "one\ntwo \u00fc\n")

    @parameterized.parameters(4, 6, 7)
    def test_a_line_is_whole_or_not_there(self, room):
        side_outputs.append_line(self.path, "one")
        with _files_of_at_most(room), self.assertRaises(OSError):
            side_outputs.append_line(self.path, "two")
        self.assertEqual(self._read(), "one\n")
        side_outputs.append_line(self.path, "three")
        self.assertEqual(self._read(), "one\nthree\n")

    def test_the_line_of_another_process_is_left_alone(self):
        def write_half(file, text, write=os.write):
            if b"three" in text:
                return write(file, text)
            write(file, text[:2])
            side_outputs.append_line(self.path, "three")
            raise _FULL

        with mock.patch.object(os, "write", write_half), self.assertRaises(OSError):
            side_outputs.append_line(self.path, "two")
        self.assertEqual(self._read(), "twthree\n")


@contextlib.contextmanager
def _files_of_at_most(num_bytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
