"""One run at a time trains in a folder, with locks of the kernel and without."""

import errno
import fcntl
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from unittest import mock

from absl.testing import absltest, parameterized

from towers.errors import lock


def _no_locks(test: absltest.TestCase, how: str) -> None:
    """Takes the kernel's locks away, as a platform or a file system without them."""
    if how == "platform":
        test.enter_context(mock.patch.object(lock, "fcntl", None))
    elif how == "file system":
        refused = OSError(errno.EBADF, "as NFS has it")
        test.enter_context(mock.patch.object(fcntl, "flock", side_effect=refused))


class LockTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.create_tempdir().full_path
        self.note = os.path.join(self.root, lock.NOTE)

    def _leave(self, age: float = 0.0, **who) -> None:
        """A note of another run, touched so many seconds ago."""
        who = {"host": "elsewhere", "process": 1, "time": "noon"} | who
        with open(self.note, "w") as file:
            json.dump(who, file)
        then = time.time() - age
        os.utime(self.note, (then, then))

    @parameterized.parameters("locks", "platform", "file system")
    def test_a_folder_is_kept_to_one_run(self, how):
        _no_locks(self, how)
        self.assertFalse(lock.is_held(self.root))
        first = lock.Lock(self.root)
        self.assertTrue(lock.is_held(self.root))
        with self.assertRaisesRegex(lock.HeldError, "another run is training there"):
            lock.Lock(self.root)
        self.assertFalse(first.renew())
        self.assertEqual(os.path.exists(self.note), how != "locks")
        first.release()
        self.assertFalse(lock.is_held(self.root))
        self.assertEqual(os.listdir(self.root), [])
        lock.Lock(self.root).release()

    @parameterized.parameters("locks", "platform")
    def test_a_folder_that_is_gone_is_locked_anew(self, how):
        _no_locks(self, how)
        held = lock.Lock(self.root)
        shutil.rmtree(self.root)
        self.assertTrue(held.renew())
        self.assertTrue(lock.is_held(self.root))
        self.assertFalse(held.renew())
        held.release()
        self.assertFalse(lock.is_held(self.root))

    @parameterized.parameters("locks", "platform")
    def test_a_folder_in_its_place_may_be_another_runs(self, how):
        _no_locks(self, how)
        held, away = lock.Lock(self.root), self.root + "_away"
        os.rename(self.root, away)
        os.mkdir(self.root)
        other = lock.Lock(self.root)
        with self.assertRaises(lock.HeldError):
            held.renew()
        self.assertTrue(lock.is_held(away))
        held.release()
        self.assertTrue(lock.is_held(self.root))
        other.release()

    def test_a_note_that_another_run_took_over_is_noticed(self):
        _no_locks(self, "platform")
        held = lock.Lock(self.root)
        self._leave()
        with self.assertRaisesRegex(lock.HeldError, "process 1 on elsewhere since n"):
            held.renew()
        held.release()
        self.assertTrue(os.path.exists(self.note))  # the other process's file

    def test_a_note_that_was_deleted_is_written_again(self):
        _no_locks(self, "platform")
        held = lock.Lock(self.root)
        os.remove(self.note)
        self.assertFalse(held.renew())  # both paths name the same folder
        self.assertTrue(lock.is_held(self.root))
        held.release()

    def test_which_notes_count(self):
        _no_locks(self, "file system")
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        here = socket.gethostname()
        for counts, left in (
            (True, {}),
            (False, {"age": 90.0}),
            (True, {"host": here, "process": os.getpid()}),
            (False, {"host": here, "process": gone.pid}),
            (True, {"host": "elsewhere", "process": gone.pid}),
            (True, {"process": "no number"}),
        ):
            with self.subTest(str(left)):
                self._leave(**left)
                self.assertEqual(lock.is_held(self.root), counts)
                if counts:
                    with self.assertRaises(lock.HeldError):
                        lock.Lock(self.root)
                else:
                    lock.Lock(self.root).release()

    def test_a_note_is_touched_while_its_run_lives(self):
        _no_locks(self, "platform")
        with mock.patch.object(lock, "_BEAT_SECONDS", 0.01):
            held = lock.Lock(self.root)
            os.utime(self.note, (1, 1))
            tries = itertools.count()
            while os.stat(self.note).st_mtime == 1 and next(tries) < 6000:
                time.sleep(0.01)
            self.assertNotEqual(os.stat(self.note).st_mtime, 1)
            held.release()

    def test_nobody_trains_where_there_is_no_folder(self):
        self.assertFalse(lock.is_held(os.path.join(self.root, "not_there")))

    def test_to_ask_does_not_refuse_a_run_that_begins(self):
        asking = os.open(self.root, os.O_RDONLY)
        fcntl.flock(asking, fcntl.LOCK_EX)
        with mock.patch.object(time, "sleep", lambda _: os.close(asking)):
            lock.Lock(self.root).release()
