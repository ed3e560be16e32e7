"""The steps of `deploy/Dockerfile`, and a run in what they make."""

import subprocess
import sys

from absl.testing import absltest

from tests.deploy import image_steps
from tests.processes import hosts
from tests.processes.programs import PATIENCE, ROOT


class ImageTest(absltest.TestCase):
    def test_the_steps_are_read(self):
        text = (
            '# of an image\nFROM a\nRUN b \\\n  # why\n  && c\nENTRYPOINT ["d", "e"]\n'
        )
        wanted = [("FROM", "a"), ("RUN", "b    && c"), ("ENTRYPOINT", '["d", "e"]')]
        self.assertEqual(list(image_steps.steps(text)), wanted)

    def test_the_image_trains_without_root_on_a_read_only_disk(self):
        hosts.need("setpriv", "chroot", "mount")
        as_root = ["unshare", "--mount", "setpriv", "--clear-groups"]
        probe = [*as_root, "mount", "-t", "tmpfs", "none", "/mnt"]
        if subprocess.run(probe, capture_output=True).returncode:
            self.skipTest("mounting takes root")
        finished = subprocess.run(
            [
                *(*as_root, sys.executable, "-m", "tests.deploy.image_steps"),
                *("--model=lenet", "--batch_size=8", "--device=cpu"),
                *("--num_batches=3", "--num_warmup_batches=0", "--train_dir=/tmp/run"),
                "--display_every=1",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
        )
        said = finished.stdout
        self.assertEqual(finished.returncode, 0, said)
        self.assertRegex(said, r"(?m)^3\t.*images/sec")
        self.assertIn("Checkpoints are in /tmp/run.", said)
