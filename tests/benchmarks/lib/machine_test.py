"""The facts about the machine that are written beside the numbers."""

import json
import os
import sys
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.lib import machine


class MachineTest(absltest.TestCase):
    def test_facts(self):
        facts = machine.facts()
        self.assertGreater(facts["cores"], 0)
        self.assertTrue(facts["cpu"])
        json.dumps(facts)

    def test_settings_of_libraries_are_facts(self):
        settings = {"TF_ENABLE_ONEDNN_OPTS": "1", "HOME": "here"}
        with mock.patch.dict(os.environ, settings, clear=True):
            self.assertEqual(
                machine.facts()["environment"], {"TF_ENABLE_ONEDNN_OPTS": "1"}
            )

    def test_versions(self):
        versions = machine.versions(sys.executable, ["numpy", "no-such-package"])
        self.assertEqual(set(versions), {"python", "numpy"})
        self.assertEqual(versions["numpy"], np.__version__)
        self.assertEqual(machine.versions("/no/such/python"), {})

    def test_no_revision_where_there_is_no_checkout(self):
        self.assertIsNone(machine.revision(self.create_tempdir().full_path))

    def test_json(self):
        path = os.path.join(self.create_tempdir().full_path, "a.json")
        machine.write_results(None, {"a": 1}, x=[1.5])
        machine.write_results(path, {"a": 1}, x=[1.5])
        with open(path, encoding="utf-8") as file:
            written = json.load(file)
        self.assertEqual((written["arguments"], written["x"]), ({"a": 1}, [1.5]))
        self.assertIn("numpy", written["versions"])
        self.assertIn("cores", written["machine"])
        self.assertEqual(os.listdir(os.path.dirname(path)), ["a.json"])
