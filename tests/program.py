"""Runs the tests of one module, as Bazel does.

python -m tests.program tests.gradients.reduction_test
"""

import importlib
import sys
from unittest import mock

from absl.testing import absltest

# Measuring the processor takes more of its time than most of the runs of tests.
KNOWN_PEAK = mock.patch("towers.compute.flops.measure_peak", lambda *_, **how: 5e12)

if __name__ == "__main__":
    tests = importlib.import_module(sys.argv.pop(1))
    KNOWN_PEAK.start()
    absltest.main(module=tests)
