"""Folders are looked at before a run, and nothing is left in them."""

import os
import stat
from unittest import mock

from absl.testing import absltest, parameterized

from flags import config
from towers.errors import output_paths


class OutputPathsTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.root = self.create_tempdir().full_path

    def test_a_new_folder_is_not_left_behind(self):
        output_paths.check("d", os.path.join(self.root, "new", "deep"))
        self.assertEqual(os.listdir(self.root), [])

    def test_one_that_is_killed_leaves_nothing_behind(self):
        files = []
        with mock.patch.object(os, "fsync") as written:
            written.side_effect = lambda file: files.append(os.listdir(self.root))
            output_paths.check("d", self.root)
        self.assertEqual(files, [[]])

    def test_a_folder_that_is_there_stays_as_it_is(self):
        mine = os.path.join(self.root, "mine")
        with open(mine, "w") as file:
            file.write("text")
        output_paths.check("d", self.root)
        self.assertEqual(os.listdir(self.root), ["mine"])

    def test_a_folder_is_kept_to_one_run(self):
        new, deep = (os.path.join(self.root, *p) for p in (["new"], ["new", "deep"]))
        with output_paths.held("d", None), output_paths.held("d", deep):
            with self.assertRaisesRegex(ValueError, "^d=.*: another run is training"):
                with output_paths.held("d", deep):
                    pass
            with output_paths.held("d", new):
                pass
        self.assertEqual(os.listdir(self.root), [])  # nothing was written
        with output_paths.held("d", deep):
            open(os.path.join(deep, "mine"), "w").close()
        self.assertEqual(os.listdir(deep), ["mine"])
        with self.assertRaisesRegex(ValueError, "^d=.*: cannot be written to"):
            with output_paths.held("d", os.path.join(deep, "mine")):
                pass

    def test_places_that_cannot_be_written(self):
        file = os.path.join(self.root, "file")
        open(file, "w").close()
        for place in ("/proc/nope", file, os.path.join(file, "below")):
            with self.subTest(place):
                with self.assertRaisesRegex(ValueError, "^d=.*: .*name another place"):
                    output_paths.check("d", place)
        self.assertEqual(os.listdir(self.root), ["file"])

    def test_a_folder_without_permission(self):
        if os.getuid() == 0:
            self.skipTest("root may write everywhere")
        os.chmod(self.root, stat.S_IRUSR | stat.S_IXUSR)
        self.addCleanup(os.chmod, self.root, stat.S_IRWXU)
        with self.assertRaisesRegex(ValueError, "Permission denied"):
            output_paths.check("d", os.path.join(self.root, "new"))

    def test_a_disk_that_is_too_small(self):
        for place in (self.root, os.path.join(self.root, "not", "yet")):
            output_paths.check_room("d", place, 1)
            with self.assertRaisesRegex(
                ValueError, r"^d=.*: [\d.]+ MB are free.*make room"
            ):
                output_paths.check_room("d", place, 2**60)
        self.assertEqual(os.listdir(self.root), [])

    def test_files(self):
        output_paths.check_file("f", os.path.join(self.root, "new", "file"))
        output_paths.check_file("f", "relative_file")
        self.assertEqual(os.listdir(self.root), [])
        with self.assertRaisesRegex(ValueError, "f=.*: is a folder"):
            output_paths.check_file("f", self.root)
        with self.assertRaisesRegex(ValueError, "f=.*: cannot be written"):
            output_paths.check_file("f", "/proc/nope/file")

    def test_files_that_cannot_be_made(self):
        def there(name):
            return os.path.join(self.root, name)

        os.symlink("loop", there("loop"))
        os.symlink("/proc/nope", there("link"))
        os.mkfifo(there("pipe"))
        before = sorted(os.listdir(self.root))
        for name in ("loop", "link", "pipe", "x" * 300):
            with self.subTest(name):
                with self.assertRaisesRegex(ValueError, "^f=.*: cannot be written"):
                    output_paths.check_file("f", there(name))
        self.assertEqual(sorted(os.listdir(self.root)), before)

    def test_a_file_that_is_there_stays_as_it_is(self):
        mine = os.path.join(self.root, "mine")
        with open(mine, "w") as file:
            file.write("text")
        output_paths.check_file("f", mine)
        with open(mine) as file:
            self.assertEqual(file.read(), "text")

    def test_places_on_other_machines(self):
        for place in ("gs://bucket/x", f"file://{self.root}/x"):
            for check in (output_paths.check, output_paths.check_file):
                with self.assertRaisesRegex(ValueError, "^f=.*: is not on this mach"):
                    check("f", place)


class ChecksTest(parameterized.TestCase):
    def _places(self, **flags):
        return [check.args for check in output_paths.checks(config.make(**flags))]

    def test_what_a_run_writes(self):
        self.assertEqual(self._places(), [])
        self.assertEqual(
            self._places(train_dir="d", trace_file="t", eval_dir="e"),
            [("d",), ("train_dir", "d"), ("trace_file", "t"), ("eval_dir", "e")],
        )

    def test_what_an_evaluation_writes(self):
        there = self.create_tempdir().full_path
        flags = {"eval": True}
        self.assertEqual(
            self._places(train_dir=there, **flags),
            [(there,), ("eval_dir", f"{there}/eval")],
        )
        self.assertEqual(
            self._places(train_dir=there, eval_dir="e", **flags),
            [(there,), ("eval_dir", "e")],
        )
        # A training process may be about to make it.
        missing = f"{there}/not"
        self.assertEqual(self._places(train_dir=missing, **flags), [(missing,)])

    @parameterized.parameters("a[b", "[ab]/c", "a\\b", "a*", "what?")
    def test_folders_that_tensorflow_takes_for_patterns(self, name):
        for flags in ({}, {"eval": True}):
            look, *_ = output_paths.checks(config.make(train_dir=name, **flags))
            with self.assertRaisesRegex(
                ValueError, "^train_dir=.*would take the . in it"
            ):
                look()
        output_paths.checks(config.make(train_dir="a b{c} \u00fc]"))[0]()
