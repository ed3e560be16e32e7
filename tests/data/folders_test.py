"""Folders for derived files: those of the data, or temporary ones."""

import os
from unittest import mock

from absl.testing import absltest

from towers.data import folders


class FoldersTest(absltest.TestCase):
    def test_the_same_folder_if_it_can_be_written(self):
        folder = self.create_tempdir().full_path
        self.assertEqual(os.fspath(folders.derived(folder)), folder)

    def test_else_a_temporary_one_for_each_folder(self):
        root = self.create_tempdir().full_path
        with mock.patch.object(os, "access", return_value=False):
            with mock.patch.dict(os.environ, {"TMPDIR": root}):
                with mock.patch.object(folders.tempfile, "tempdir", root):
                    derived = [folders.derived(f) for f in ("/a", "/b/c", "/a")]
                    of_name = folders.derived("/a", "name")
        self.assertEqual(derived[0], derived[2])
        self.assertNotEqual(derived[0], derived[1])
        self.assertStartsWith(os.fspath(derived[1]), root)
        self.assertTrue(derived[1].is_dir())
        self.assertEqual(of_name.name, "name")

    def test_what_is_in_a_folder(self):
        folder = self.create_tempdir().full_path
        os.mkdir(f"{folder}/b")
        os.mkdir(f"{folder}/a")
        self.assertEqual(folders.listed("data_dir", folder), ["a", "b"])
        for path, words in (
            (f"{folder}/c", "there is no such directory"),
            ("s3://bucket/x", "it cannot be read: .* reads s3:// only with .*flow-io,"),
        ):
            with self.assertRaisesRegex(ValueError, f"^data_dir={path}: {words}"):
                folders.listed("data_dir", path)
