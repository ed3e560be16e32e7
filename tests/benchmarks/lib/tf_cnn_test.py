"""Drivers are run, and flags translated."""

import sys

from absl.testing import absltest

from benchmarks.lib import tf_cnn
from benchmarks.peers.systems import Places

_DRIVER = """
import json, os, sys
with open(sys.argv[1]) as file:
    print(json.load(file), sys.argv[2:], os.getcwd(), os.environ["PYTHONPATH"])
"""


class TfCnnTest(absltest.TestCase):
    def test_runs_a_driver_in_its_folder(self):
        folder = self.create_tempdir().full_path
        with open(f"{folder}/driver.py", "w", encoding="utf-8") as file:
            file.write(_DRIVER)
        line = tf_cnn.run_driver(
            f"{folder}/driver",
            [{"a": 1}],
            f"{folder}/arguments.json",
            "more",
            places=Places(sys.executable, "", folder, sys.executable),
            timeout=60,
            packages=["packages"],
        )
        self.assertEqual(line, f"[{{'a': 1}}] ['more'] {folder} {folder}:packages")

    def test_translates_flags(self):
        flags = {"model": "resnet20", "data_name": "cifar10", "num_gpus": 2}
        translation = tf_cnn.translation_of({**flags, "variable_update": "replicated"})
        self.assertEqual(translation.settings["model"], "tf_cnn_resnet20")
        self.assertIn("--gradient_factor=2.0", translation.arguments)
