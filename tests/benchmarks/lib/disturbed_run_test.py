"""The memory of a process; real runs are in `elastic_test`."""

import os
import subprocess
import sys

from absl.testing import absltest

from benchmarks.lib import disturbed_run


class DisturbedRunTest(absltest.TestCase):
    def test_memory(self):
        self.assertGreater(disturbed_run.resident_bytes(os.getpid()), 2**20)
        with subprocess.Popen([sys.executable, "-c", ""]) as ended:
            pass
        self.assertEqual(disturbed_run.resident_bytes(ended.pid), 0)
