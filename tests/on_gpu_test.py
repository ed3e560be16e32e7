"""What users start, on the GPUs of this machine; skipped where there are none."""

import re
import subprocess
import sys

import tensorflow as tf
from absl.testing import absltest

_FOUR_ON_ONE = ("--device=gpu", "--num_gpus=4", "--gpu_indices=0,1,2,3")


class OnGpuTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        if not tf.config.list_physical_devices("GPU"):
            self.skipTest("this machine has no GPU")

    def _run(self, *arguments: str, status: int = 0) -> str:
        """What a main prints, in a process of its own."""
        found = subprocess.run(
            [sys.executable, "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=280,
            check=False,
        )
        self.assertEqual(found.returncode, status, found.stdout)
        return found.stdout

    def _accuracy(self, printed: str) -> float:
        return float(re.search("Accuracy @ 1 = ([0-9.]+)", printed).group(1))

    def test_one_tower_trains_and_evaluates(self):
        said = self._run("towers.train", "--device=gpu", "--num_epochs=20")
        self.assertIn("['/device:GPU:0']", said)
        self.assertGreater(self._accuracy(said), 0.95)

    def test_four_towers_share_a_gpu(self):
        for where in ("cpu", "gpu"):
            said = self._run(
                "towers.train",
                *_FOUR_ON_ONE,
                "--logical_gpus=4",
                f"--local_parameter_device={where}",
                "--num_epochs=20",
            )
            self.assertIn("'/device:GPU:3'", said)
            self.assertGreater(self._accuracy(said), 0.95)

    def test_towers_take_the_steps_of_one(self):
        self._run(
            "towers.verify",
            "--model=mlp",
            "--device=gpu",
            "--logical_gpus=2",
            "--num_towers=1,2",
            "--num_steps=3",
            "--pipelines=none",
            "--variable_update=parameter_server,staged,relaxed",
        )

    def test_nccl_needs_gpus_of_their_own(self):
        said = self._run(
            "towers.train",
            *_FOUR_ON_ONE,
            "--logical_gpus=4",
            "--variable_update=replicated",
            "--all_reduce_spec=nccl",
            status=2,
        )
        self.assertIn("nccl runs on GPU devices only", said)

    def test_more_than_there_are(self):
        said = self._run("towers.train", "--num_gpus=1024", status=2)
        self.assertIn("to split", said)


if __name__ == "__main__":
    absltest.main()
