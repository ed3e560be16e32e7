"""What is kept is read again; what is damaged is as good as missing."""

import os
from unittest import mock

from absl.testing import parameterized

from towers.errors import cache_file
from towers.errors.cache_file import CacheFile


class CacheFileTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.home = self.create_tempdir().full_path
        here = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.home})
        self.enter_context(here)

    def test_the_folder_is_where_the_user_has_it(self):
        home = os.path.expanduser("~/.cache/towers")
        self.assertEqual(cache_file.folder({}), home)
        self.assertEqual(cache_file.folder({"XDG_CACHE_HOME": "relative"}), home)
        self.assertEqual(
            cache_file.folder({"XDG_CACHE_HOME": "/there"}), "/there/towers"
        )

    def test_a_value_is_kept_and_nothing_beside_it(self):
        file = CacheFile("times", "a.json")
        self.assertIsNone(file.read())
        for value in ({"a": 1}, [1.5]):
            self.assertEqual(file.write(value), "")
            self.assertEqual(CacheFile("times", "a.json").read(), value)
        self.assertEqual(os.listdir(os.path.dirname(file.path)), ["a.json"])
        self.assertStartsWith(file.path, self.home)

    @parameterized.parameters("", "{", "[" * 100_000, b"\xff\xfe")
    def test_a_damaged_file_is_as_good_as_missing(self, content):
        file = CacheFile("a.json")
        file.write(1)
        with open(file.path, "wb") as damaged:
            damaged.write(content if isinstance(content, bytes) else content.encode())
        self.assertIsNone(file.read())

    def test_a_folder_that_cannot_be_written_is_said(self):
        with open(os.path.join(self.home, "towers"), "w"):
            pass
        self.assertIn("exists", CacheFile("a.json").write(1))
