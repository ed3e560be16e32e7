"""The versions that a task says of itself."""

import pathlib
import platform
import shutil
import types
from unittest import mock

import numpy as np
from absl.testing import absltest

from tests.processes.programs import ROOT
from towers.cluster import software


class SoftwareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.project = pathlib.Path(self.create_tempdir().full_path)
        for package in ("flags", "towers/errors"):
            shutil.copytree(ROOT / package, self.project / package)

    def _towers(self):
        """The version of the copied project."""
        names = "flags", "towers"
        copies = [types.SimpleNamespace(__path__=[self.project / n]) for n in names]
        with mock.patch.object(software, "_PACKAGES", copies):
            return software.versions.__wrapped__()["towers"]

    def test_versions(self):
        versions = dict(software.versions())
        self.assertRegex(versions.pop("towers"), r"^\d+\.\d+\.\d+\+[0-9a-f]{8}$")
        wanted = {"Python": platform.python_version(), "numpy": np.__version__}
        self.assertEqual(versions, wanted)

    def test_another_source_is_another_version(self):
        seen = [self._towers()]
        self.assertEqual(self._towers(), seen[0])
        source = self.project / "towers" / "errors" / "lock.py"
        text = source.read_text()
        source.write_text(text + "# mended\n")
        seen.append(self._towers())
        source.write_text(text)
        (self.project / "towers" / "notes.txt").write_text("no source")
        self.assertEqual(self._towers(), seen[0])
        source.rename(source.with_name("locks.py"))
        seen.append(self._towers())
        self.assertLen(set(seen), 3)
