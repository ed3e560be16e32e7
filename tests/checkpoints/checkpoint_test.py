"""Checkpoints: values are restored, from an older one if the newest is damaged."""

import os
from unittest import mock

import numpy as np
import tensorflow as tf

from towers.checkpoints import checkpoint, loading

v1 = tf.compat.v1


class CheckpointTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path
        self.lines = []
        self.max_to_keep = 3

    def _graph(self, **shapes):
        graph = tf.Graph()
        with graph.as_default():
            variables = {
                name: v1.get_variable(name, shape, use_resource=True)
                for name, shape in (shapes or {"a": [3], "b": [2, 2]}).items()
            }
            checkpoints = checkpoint.Checkpoints(
                self.directory,
                variables,
                max_to_keep=self.max_to_keep,
                finite=checkpoint.FiniteCheck(variables),
                log=self.lines.append,
            )
        return graph, variables, checkpoints

    def _save(self, steps):
        graph, variables, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            for step in steps:
                variables["a"].load(np.full([3], step, "f4"), session)
                variables["b"].load(np.full([2, 2], -step, "f4"), session)
                checkpoints.save(session, step)

    def _restore(self):
        graph, variables, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            path = checkpoints.restore(session)
            return path, session.run(variables["a"])[0]

    def test_the_newest_comes_back(self):
        self._save([1, 2])
        path, value = self._restore()
        self.assertEndsWith(path, "model.ckpt-2")
        self.assertEqual(value, 2)

    def test_room_for_what_is_kept(self):
        size = 4 * (3 + 4)
        self.max_to_keep = 3
        _, _, checkpoints = self._graph()
        # Checkpoints at the end only; at steps 4, 8 and 10; more than the 3 that are
        # kept, and one while it is written.
        for every, wanted in ((0, 1), (4, 3), (1, 4)):
            self.assertEqual(checkpoints.needed(10, every), wanted * size)
        self._save([1, 2])
        for every, wanted in ((0, 1), (4, 2), (1, 2)):
            self.assertEqual(checkpoints.needed(10, every), wanted * size)
        self._save([3, 4, 5])
        for last_step in (5, 10):
            self.assertEqual(checkpoints.needed(last_step, 1), size)
        self.max_to_keep = 0
        _, _, checkpoints = self._graph()
        self.assertEqual(checkpoints.needed(11, 2), 4 * size)

    def test_an_empty_directory_restores_nothing(self):
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            self.assertIsNone(checkpoints.restore(session))

    def test_only_the_newest_are_kept_also_after_a_restart(self):
        self._save([1, 2])
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            # Saver's method to recover them prints that it is deprecated.
            with mock.patch.object(
                v1.train.Saver, "recover_last_checkpoints", side_effect=AssertionError
            ):
                checkpoints.restore(session)
            for step in (3, 4):
                checkpoints.save(session, step)
        names = [os.path.basename(p) for p in checkpoint.all_paths(self.directory)]
        self.assertEqual(names, ["model.ckpt-2", "model.ckpt-3", "model.ckpt-4"])

    def test_what_killed_runs_left_is_removed(self):
        self._save([2, 3])
        left = [
            # left by a kill while the oldest was deleted
            "model.ckpt-1.data-00000-of-00001",
            # left by a kill while it was written
            "model.ckpt-4.data-00000-of-00001.tempstate123",
            "model.ckpt-4.index.tempstate45",
        ]
        others = ["model.ckpt-9.data-00000-of-00001", "model.ckpt-1.txt", "mine"]
        for name in left + others:
            with open(os.path.join(self.directory, name), "w"):
                pass
        before = set(os.listdir(self.directory))
        self._restore()
        self.assertEqual(set(os.listdir(self.directory)), before)
        self._save([5])
        after = set(os.listdir(self.directory))
        self.assertEqual(before - after, set(left))

    def test_a_directory_can_be_moved(self):
        self._save([1])
        moved = os.path.join(self.create_tempdir(), "moved")
        os.rename(self.directory, moved)
        self.directory = moved
        self.assertEqual(self._restore()[1], 1)

    def test_a_truncated_checkpoint_falls_back_to_the_one_before(self):
        for suffix in (".data-00000-of-00001", ".index"):
            with self.subTest(suffix):
                self.directory = self.create_tempdir().full_path
                self._save([1, 2])
                path = os.path.join(self.directory, "model.ckpt-2" + suffix)
                with open(path, "r+b") as file:
                    file.truncate(os.path.getsize(path) // 2)
                self.assertEqual(self._restore()[1], 1)
                self.assertIn("falling back", self.lines[-1])
                self.assertNotIn("Graph execution error", self.lines[-1])

    def test_a_missing_data_file_falls_back(self):
        self._save([1, 2])
        os.remove(os.path.join(self.directory, "model.ckpt-2.data-00000-of-00001"))
        self.assertEqual(self._restore()[1], 1)

    def test_one_that_is_replaced_while_it_is_read(self):
        self._save([1])
        load = loading.Loaders.load

        def replaced(loaders, session, path):
            if path.endswith("-1"):
                old = os.path.join(self.directory, "model.ckpt-1")
                for suffix in (".data-00000-of-00001", ".index"):
                    os.rename(old + suffix, f"{old[:-1]}2{suffix}")
                v1.train.update_checkpoint_state(self.directory, f"{old[:-1]}2")
            load(loaders, session, path)

        with mock.patch.object(loading.Loaders, "load", replaced):
            self.assertEqual(self._restore()[1], 1)  # the value that was saved
        self.assertEmpty(self.lines)

    def test_counts_that_no_run_comes_to_are_not_gone_on_from(self):
        with tf.Graph().as_default() as graph:
            steps = v1.get_variable("s", [], tf.int64, use_resource=True)
            checkpoints = checkpoint.Checkpoints(
                self.directory, {"global_step": steps}, log=self.lines.append
            )
            given = v1.placeholder(tf.int64, [])
            put = steps.assign(given, read_value=False)
        with v1.Session(graph=graph) as session:
            for step, count in (1, 7), (2, -7), (3, 2**62):
                session.run(put, {given: count})
                checkpoints.save(session, step)
            self.assertEndsWith(checkpoints.restore(session), "-1")
            self.assertEqual(session.run(steps), 7)
        self.assertRegex(self.lines[0], rf"\(its global_step is {2**62}\); falling")
        self.assertRegex(self.lines[1], r"\(its global_step is -7\); falling")

    def test_no_readable_checkpoint_is_an_error_not_a_new_start(self):
        self._save([1])
        path = os.path.join(self.directory, "model.ckpt-1.data-00000-of-00001")
        with open(path, "r+b") as file:
            file.truncate(1)
        with self.assertRaisesRegex(ValueError, "none of the 1 checkpoints"):
            self._restore()

    def test_another_model_is_named(self):
        self._save([1])
        graph, _, checkpoints = self._graph(a=[4], c=[1])
        with v1.Session(graph=graph) as session:
            with self.assertRaisesRegex(
                ValueError, r"not in it: c; only in it: b; of another shape: a is \[3\]"
            ):
                checkpoints.restore(session)

    def test_partial_reads_what_it_wants(self):
        self._save([5])
        graph = tf.Graph()
        with graph.as_default():
            variable = v1.get_variable("b", [2, 2], use_resource=True)
            checkpoints = checkpoint.Checkpoints(
                self.directory, {"b": variable}, partial=True
            )
        with v1.Session(graph=graph) as session:
            checkpoints.restore(session)
            self.assertAllEqual(session.run(variable), np.full([2, 2], -5))

    def test_a_checkpoint_that_cannot_be_written_leaves_the_last_one_whole(self):
        self._save([1])
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            checkpoints.restore(session)
            # A directory in the way of the data file fails for root, too.
            os.makedirs(
                os.path.join(self.directory, "model.ckpt-2.data-00000-of-00001", "x")
            )
            with self.assertRaisesRegex(checkpoint.CheckpointError, "model.ckpt-1"):
                checkpoints.save(session, 2)
        self.assertEqual(self._restore()[1], 1)

    def test_the_directory_is_made(self):
        self.directory = os.path.join(self.directory, "new", "folder")
        self._save([1])
        self.assertEqual(self._restore()[1], 1)

    def test_checkpoints_are_found_without_the_list_of_them(self):
        self._save([9, 10])
        os.remove(os.path.join(self.directory, "checkpoint"))
        with open(os.path.join(self.directory, "model.ckpt-tmp.index"), "w"):
            pass
        path, value = self._restore()
        self.assertEndsWith(path, "model.ckpt-10")
        self.assertEqual(value, 10)

    def test_all_are_kept_and_all_are_fallen_back_to(self):
        self.max_to_keep = 0
        self._save(range(1, 9))
        for step, suffix in ((8, ".index"), (7, ".data-00000-of-00001")):
            with open(f"{self.directory}/model.ckpt-{step}{suffix}", "r+b") as file:
                file.truncate(20)
        self.max_to_keep = 3
        self.assertEqual(self._restore()[1], 6)
        # A run that keeps few does not delete those of a run that kept all.
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            checkpoints.restore(session)
            for step in (20, 21, 22, 23):
                checkpoints.save(session, step)
        steps = [int(p.rsplit("-")[-1]) for p in checkpoint.all_paths(self.directory)]
        self.assertEqual(steps, [*range(1, 9), 21, 22, 23])

    def test_the_list_may_name_an_older_one_as_the_newest(self):
        self._save([1, 2, 3])
        with open(os.path.join(self.directory, "checkpoint"), "w") as file:
            file.write('model_checkpoint_path: "model.ckpt-2"\n')
        self.assertEqual(self._restore()[1], 2)

    def test_a_malformed_list_says_nothing(self):
        self._save([1, 2])
        for text in (b"\xff\xfe", b"model_checkpoint_path", b"", b"a: 1\n" * 1000):
            with open(os.path.join(self.directory, "checkpoint"), "wb") as file:
                file.write(text)
            path, value = self._restore()
            self.assertEndsWith(path, "model.ckpt-2")
            self.assertEqual(value, 2)

    def test_what_is_listed_elsewhere_is_not_deleted(self):
        self._save([1, 2])
        here, other = self.directory, self.create_tempdir().full_path
        for name in tf.io.gfile.glob(f"{here}/model.ckpt-1*"):
            tf.io.gfile.copy(name, os.path.join(other, os.path.basename(name)))
        before = sorted(os.listdir(other))
        with open(os.path.join(here, "checkpoint"), "w") as file:
            file.write('model_checkpoint_path: "model.ckpt-2"\n')
            for folder in (other, os.path.relpath(other, here)):
                file.write(f'all_model_checkpoint_paths: "{folder}/model.ckpt-1"\n')
        self.max_to_keep = 1
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            checkpoints.restore(session)
            checkpoints.save(session, 3)
            checkpoints.save(session, 4)
        self.assertEqual(sorted(os.listdir(other)), before)

    def test_a_restored_checkpoint_is_not_written_again(self):
        self._save([1])
        path = os.path.join(self.directory, "model.ckpt-1.index")
        before = os.stat(path).st_mtime_ns
        graph, _, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            restored = checkpoints.restore(session)
            self.assertEqual(checkpoints.save(session, 1), restored)
        self.assertEqual(os.stat(path).st_mtime_ns, before)

    def test_what_is_not_finite_is_not_saved(self):
        self._save([1])
        graph, variables, checkpoints = self._graph()
        with v1.Session(graph=graph) as session:
            checkpoints.restore(session)
            variables["b"].load(np.array([[1, np.nan], [0, 0]], "f4"), session)
            with self.assertRaisesRegex(
                checkpoint.NotFiniteError, "b is not finite after step 2.*model.ckpt-1"
            ) as caught:
                checkpoints.save(session, 2)
            self.assertEqual(caught.exception.step, 2)
        self.assertEqual(self._restore()[1], 1)
