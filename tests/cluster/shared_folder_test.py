"""A folder of checkpoints that other machines see, or do not; the tasks are made up."""

import dataclasses
import os
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from tests import fake_tasks
from towers.cluster import messages, shared_folder
from towers.layout import cluster_spec

_SPEC = fake_tasks.SPEC


class CheckTest(absltest.TestCase):
    def _check(self, mark, answers):
        """Checks, where each task gives its answer."""

        def fetch(spec, task, make, seconds):
            answer = answers[str(task)]
            if isinstance(answer, Exception):
                raise answer
            return answer

        with mock.patch.object(messages, "fetch", fetch):
            shared_folder.check(_SPEC, mark)

    def test_tasks_that_do_not_see_it_are_named(self):
        all_see = {"ps 0": 1, "worker 0": 1, "worker 1": messages.NoAnswerError("lost")}
        self._check("/run/a", all_see)
        words = r"^train_dir=/run: this folder of .* is not seen by ps 0 at p:1, worker"
        with self.assertRaisesRegex(ValueError, f"{words} 0 at w0:1; name one on a di"):
            self._check("/run/a", {**all_see, "ps 0": 0, "worker 0": 0})
        self._check("", {})

    def test_what_a_task_looks_for_is_the_path_itself(self):
        """And no pattern, though the folder has the signs of one."""
        folder = os.path.join(self.create_tempdir(), "run[1]*")
        os.mkdir(folder)

        def fetch(spec, task, make, seconds):
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                return session.run(make())

        with mock.patch.object(messages, "fetch", fetch):
            with shared_folder.marked(folder) as mark:
                shared_folder.check(_SPEC, mark)
            with self.assertRaisesRegex(ValueError, "is not seen by ps 0 at p:1"):
                shared_folder.check(_SPEC, mark)


class MarkedTest(absltest.TestCase):
    def test_the_file_is_there_for_the_time_of_the_run(self):
        folder = self.create_tempdir().full_path
        with shared_folder.marked(folder) as mark:
            self.assertEqual(os.listdir(folder), [os.path.basename(mark)])
            killed = os.path.join(folder, "seen_by_all_killed")
            open(killed, "w").close()
        self.assertEqual(os.listdir(folder), ["seen_by_all_killed"])
        with shared_folder.marked(folder) as other:
            self.assertNotEqual(mark, other)
            self.assertEqual(os.listdir(folder), [os.path.basename(other)])
        self.assertEmpty(os.listdir(folder))
        for nowhere in (None, os.path.join(folder, "none")):
            with shared_folder.marked(nowhere) as mark:
                self.assertEqual(mark, "")


class EvaluatorTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(shared_folder, "_PAUSE_SECONDS", 0.0))
        self.asked, self.absent, self.mark = 0, "", "mark"
        self.folder = self.create_tempdir().full_path
        spec = dataclasses.replace(_SPEC, me=cluster_spec.Task("evaluator", 0))
        self.view = shared_folder.EvaluatorsView(spec, self.folder, lambda: self.absent)

    def _look(self):
        def ask(spec, task, *, seconds):
            self.asked += 1
            if self.mark is None:
                raise messages.NoAnswerError("busy")
            facts = "2.21", _SPEC.as_dict(), {}, "1"
            return messages.TaskInfo(*facts, mark=self.mark)

        with mock.patch.object(messages, "fetch_info", ask):
            return self.view()

    def test_another_folder_is_refused_at_the_second_look(self):
        self.absent = "gone"
        self.assertEqual((self._look(), self.asked), ("gone", 0))
        self.absent, self.mark = "", None
        self.assertEqual((self._look(), self.asked), ("", 1))
        self.mark = "mark"
        self.assertEqual(self._look(), "")
        words = f"^train_dir={self.folder}: on .* this is not the folder in which the "
        with self.assertRaisesRegex(ValueError, f"{words}controller at c:1 saves; nam"):
            self._look()

    def test_the_same_folder_is_looked_for_once(self):
        open(os.path.join(self.folder, "mark"), "w").close()
        for _ in range(3):
            self.assertEqual(self._look(), "")
        self.assertEqual(self.asked, 1)
