"""A run saves even if its folder disappears or its disk is full for a while."""

import contextlib
import io
import os
import shutil
import subprocess
import threading
import time
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.checkpoints import checkpoint, saving
from towers.errors import lock

v1 = tf.compat.v1


def _full(error):
    """A mock of TensorFlow's saving that fails while the disk holds two checkpoints."""
    real = v1.train.Saver.save

    def save(self, session, path, **options):
        names = os.listdir(os.path.dirname(path))
        if sum(name.endswith(".index") for name in names) >= 2:
            raise error
        return real(self, session, path, **options)

    return mock.patch.object(v1.train.Saver, "save", save)


_FULL = tf.errors.ResourceExhaustedError(None, None, "x; No space left on device")


class _Saves(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir(), "train")
        os.mkdir(self.directory)
        self.lines = []
        self.lock = lock.Lock(self.directory)
        self.addCleanup(lambda: self.lock.release())
        printed = contextlib.redirect_stderr(io.StringIO())
        self.printed = self.enter_context(printed)

    @contextlib.contextmanager
    def _saving(self, max_to_keep=5, **options):
        with tf.Graph().as_default() as graph:
            variable = v1.get_variable("a", [3], use_resource=True)
            saved = saving.Saving(
                checkpoint.Checkpoints(
                    self.directory,
                    {"a": variable},
                    max_to_keep=max_to_keep,
                    finite=checkpoint.FiniteCheck({"a": variable}),
                ),
                self.lock,
                log=self.lines.append,
                **options,
            )
            with v1.Session(graph=graph) as session:
                session.run(variable.initializer)
                saved.restore(session)

                def save(step, value=None, how=saved.save):
                    value = step if value is None else value
                    variable.load(np.full([3], value, "f4"), session)
                    return how(session, step)

                save.attempt = lambda step, value=None: save(step, value, saved.attempt)
                save.saving = saved
                yield save

    def _steps(self):
        """The steps of the checkpoints, each of which is whole."""
        paths = checkpoint.all_paths(self.directory)
        steps = [int(path.rpartition("-")[2]) for path in paths]
        for step in steps:
            reader = tf.train.load_checkpoint(f"{self.directory}/model.ckpt-{step}")
            np.testing.assert_array_equal(reader.get_tensor("a"), np.full([3], step))
        return steps


class FullTest(_Saves):
    @parameterized.parameters(_FULL, OSError(28, "No space left on device"))
    def test_the_oldest_make_room(self, error):
        with self._saving() as save:
            save(1)
            save(2)
            with _full(error):
                save(3)
                self.assertEqual(self._steps(), [2, 3])
                save(4)
        self.assertEqual(self._steps(), [3, 4])
        path = os.path.join(self.directory, "model.ckpt-1")
        self.assertEqual(
            self.lines[0], f"The disk is full: {path} is deleted to make room."
        )
        self.assertLen(self.lines, 2)

    def test_the_last_whole_one_stays(self):
        with self._saving() as save:
            save(1)
            save(2)
            with _fails(_FULL):
                last = "the last whole one is .*ckpt-2$"
                with self.assertRaisesRegex(checkpoint.CheckpointError, last):
                    save(3)
            self.assertEqual(self._steps(), [2])
            save(4)
            self.assertEqual(self._steps(), [2, 4])

    def test_one_that_is_whole_but_not_listed_ends_nothing(self):
        with self._saving() as save:
            for step in (1, 2):
                save(step)
            with mock.patch.object(os, "remove", wraps=os.remove) as removed:
                with _not_listed(), self.assertRaises(checkpoint.CheckpointError):
                    save(3)
            self.assertLen(removed.mock_calls, 2)  # both files of the first checkpoint
            save(4)
        self.assertEqual(self._steps()[-1], 4)

    def test_nothing_is_deleted_where_all_are_kept_or_room_does_not_help(self):
        for max_to_keep, error in (
            (0, _FULL),
            (5, tf.errors.PermissionDeniedError(None, None, "no")),
            (5, PermissionError(13, "no")),
        ):
            with self.subTest(str(error)), self._saving(max_to_keep) as save:
                save(1)
                save(2)
                with _full(error), self.assertRaises(checkpoint.CheckpointError):
                    save(3)
                self.assertEqual(self._steps(), [1, 2])

    def test_one_that_was_fallen_back_to_is_the_last_whole_one(self):
        with self._saving() as save:
            save(1)
            save(2)
        with open(f"{self.directory}/model.ckpt-2.index", "w"):
            pass
        with self._saving() as save, _full(_FULL):
            with self.assertRaises(checkpoint.CheckpointError):
                save(3)
        self.assertTrue(os.path.exists(f"{self.directory}/model.ckpt-1.index"))

    def test_a_lost_task_says_nothing_about_the_disk(self):
        with self._saving() as save:
            lost = tf.errors.UnavailableError(None, None, "Socket closed")
            with _fails(lost), self.assertRaises(tf.errors.UnavailableError):
                save.attempt(1)

    def test_an_attempt_that_fails_is_said_once_and_made_again(self):
        with self._saving() as save:
            with _fails(_FULL):
                for step in (1, 2, 3):
                    self.assertFalse(save.attempt(step))
            self.assertTrue(save.attempt(4))
            self.assertTrue(save.attempt(5))
        failed, again = self.printed.getvalue().splitlines()
        self.assertRegex(failed, "^warning: .*step 1 could not .*tried again$")
        self.assertRegex(again, "^warning: .*written again: that of step 4")

    def test_attempts_end_after_the_seconds(self):
        now = [100.0]
        clock = mock.patch.object(saving.time, "monotonic", lambda: now[0])
        with self._saving(retry_secs=60) as save, clock:
            with _fails(_FULL):
                self.assertFalse(save.attempt(1))
                now[0] += 59
                self.assertFalse(save.attempt(2))
            self.assertTrue(save.attempt(3))
            with _fails(_FULL):
                now[0] += 59
                self.assertFalse(save.attempt(4))
                now[0] += 60
                with self.assertRaises(checkpoint.CheckpointError):
                    save.attempt(5)

    def test_what_is_not_finite_is_not_tried_again(self):
        with self._saving() as save, self.assertRaises(checkpoint.NotFiniteError):
            save(1, value=np.nan)

    def test_on_a_small_disk(self):
        mount = ["mount", "-t", "tmpfs", "-o", "size=24k", "tmpfs", self.directory]
        if os.getuid() or subprocess.run(mount, check=False).returncode:
            self.skipTest("needs root")
        self.addCleanup(subprocess.run, ["umount", "-l", self.directory], check=True)
        self.lock.release()
        self.lock = lock.Lock(self.directory)
        with self._saving() as save:  # each checkpoint takes two blocks of 4 kB
            for step in (1, 2, 3):
                save(step)
            self.assertEqual(self._steps()[-1], 3)
            self.assertNotEmpty(self.lines)
            with open(f"{self.directory}/fill", "wb") as file:
                with contextlib.suppress(OSError):
                    while True:
                        os.write(file.fileno(), b"1234" * 1024)
            self.assertFalse(save.attempt(4))
            self.assertEqual(self._steps(), [3])
            os.remove(f"{self.directory}/fill")
            self.assertTrue(save.attempt(5))
        self.assertEqual(self._steps()[-1], 5)
        names = os.listdir(self.directory)
        self.assertEmpty([name for name in names if "tmp" in name or "temp" in name])


class ThreadTest(_Saves):
    """Checkpoints that a thread writes."""

    @contextlib.contextmanager
    def _slow(self):
        """Writes wait for this event."""
        real, go = v1.train.Saver.save, threading.Event()

        def save(saver, *args, **options):
            go.wait()
            return real(saver, *args, **options)

        with mock.patch.object(v1.train.Saver, "save", save):
            try:
                yield go
            finally:
                go.set()

    def _wait(self, save):
        """Waits for the thread; whether it has failed."""
        while save.saving._writing and not save.saving._writing.done():
            time.sleep(0.001)
        return save.saving.has_failed()

    def test_values_are_those_of_the_step(self):
        with self._saving(in_thread=True) as save, save.saving:
            with self._slow():
                self.assertTrue(save.attempt(1))
                self.assertFalse(save.saving.has_failed())
                # changes the variable, saves nothing
                save(2, how=lambda session, step: None)
                self.assertEqual(self._steps(), [])
            self.assertFalse(self._wait(save))
            self.assertEqual(self._steps(), [1])
            self.assertTrue(save.attempt(3))
            self.assertTrue(save.attempt(4))  # waits until that of step 3 is written
        self.assertEqual(self._steps(), [1, 3, 4])

    def test_the_end_waits_and_takes_what_is_written(self):
        with self._saving(in_thread=True) as save:
            with self._slow() as go, save.saving:
                save.attempt(1)
                threading.Timer(0.05, go.set).start()
            self.assertEqual(self._steps(), [1])
            self.assertEndsWith(save(1), "model.ckpt-1")
            self.assertEndsWith(save(2), "model.ckpt-2")
        self.assertEqual(self._steps(), [1, 2])

    def test_a_failure_is_said_once_and_what_follows_is_written(self):
        with self._saving(in_thread=True) as save:
            with _fails(_FULL):
                self.assertTrue(save.attempt(1))
                self.assertTrue(self._wait(save))
                self.assertFalse(save.saving.has_failed())
                self.assertTrue(save.attempt(2))
                self.assertFalse(save.attempt(3))  # the save of step 2 has failed
                save.attempt(4)
                self._wait(save)
            self.assertTrue(save.attempt(5))
            self.assertFalse(self._wait(save))
        failed, again = self.printed.getvalue().splitlines()
        self.assertRegex(failed, "^warning: .*step 1 could not .*tried again$")
        self.assertRegex(again, "^warning: .*written again: that of step 5")
        self.assertEqual(self._steps(), [5])

    def test_a_failure_after_the_seconds_ends_the_run(self):
        with self._saving(in_thread=True, retry_secs=0) as save, _fails(_FULL):
            save.attempt(1)
            with self.assertRaises(checkpoint.CheckpointError):
                self._wait(save)

    def test_room_is_made(self):
        with self._saving(in_thread=True) as save:
            save.attempt(1)
            save.attempt(2)
            self._wait(save)
            with _full(_FULL):
                save.attempt(3)
                self.assertFalse(self._wait(save))
        self.assertEqual(self._steps(), [2, 3])
        self.assertLen(self.lines, 1)

    def test_what_is_not_finite_is_not_written(self):
        with self._saving(in_thread=True) as save:
            save.attempt(1, np.nan)
            with self.assertRaisesRegex(checkpoint.NotFiniteError, "a is .* step 1"):
                self._wait(save)
        self.assertEqual(self._steps(), [])

    def test_an_error_of_the_training_is_the_one_that_is_raised(self):
        with self._saving(in_thread=True) as save:
            with self.assertRaises(ZeroDivisionError), save.saving:
                save.attempt(1, np.nan)
                raise ZeroDivisionError
            with save.saving, _fails(_FULL):
                save.attempt(2)
            with self.assertRaises(checkpoint.NotFiniteError), save.saving:
                save.attempt(3, np.nan)


class GoneTest(_Saves):
    def test_a_folder_that_is_gone_is_made_again_and_locked(self):
        with self._saving() as save:
            save(1)
            shutil.rmtree(self.directory)
            for step in (2, 3):
                save(step)
        self.assertEqual(self._steps(), [2, 3])
        self.assertTrue(lock.is_held(self.directory))
        self.assertLen(self.lines, 1)
        self.assertRegex(self.lines[0], f"^{self.directory} was moved away or removed")

    def test_the_last_checkpoint_is_saved_again(self):
        with self._saving() as save:
            save(1)
            shutil.rmtree(self.directory)
            save(1)
        self.assertEqual(self._steps(), [1])

    def test_a_folder_that_moves_to_another_disk_goes_on(self):
        away = self.directory + "_away"
        with self._saving(max_to_keep=2) as save:
            save(1)
            save(2)
            shutil.copytree(self.directory, away)
            shutil.rmtree(self.directory)
            os.symlink(away, self.directory)
            save(3)
        self.assertEqual(self._steps(), [2, 3])

    def test_a_folder_that_another_run_took_is_left_alone(self):
        with self._saving() as save:
            save(1)
            os.rename(self.directory, self.directory + "_away")
            os.mkdir(self.directory)
            other = lock.Lock(self.directory)
            for how in (save, save.attempt):
                with self.assertRaisesRegex(saving.TakenError, "another run is train"):
                    how(2)
            other.release()
        self.assertEqual(os.listdir(self.directory), [])

    def test_a_folder_that_another_run_has_used_is_left_alone(self):
        with self._saving() as save:
            save(1)
            os.rename(self.directory, self.directory + "_away")
            os.mkdir(self.directory)
            mine, self.lock = self.lock, lock.Lock(self.directory)
            with self._saving() as save_another:
                save_another(1)
            self.lock.release()
            self.lock = mine
            names = sorted(os.listdir(self.directory))
            with self.assertRaisesRegex(saving.TakenError, "of another run"):
                save(2)
        self.assertEqual(sorted(os.listdir(self.directory)), names)

    def test_a_folder_that_cannot_be_made_again_may_come_back(self):
        with self._saving() as save:
            shutil.rmtree(self.directory)
            with open(self.directory, "w"):
                self.assertFalse(save.attempt(1))
            os.remove(self.directory)
            self.assertTrue(save.attempt(2))
        self.assertEqual(self._steps(), [2])


def _not_listed():
    """The disk is full when all is written but the list of checkpoints."""
    real = v1.train.Saver.save

    def save(*args, **options):
        real(*args, **options)
        raise _FULL

    return mock.patch.object(v1.train.Saver, "save", save)


def _fails(error):
    return mock.patch.object(v1.train.Saver, "save", side_effect=error)
