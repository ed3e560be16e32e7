"""Runs the tests of one module, as Bazel does.

python -m tests.program tests.gradients.reduction_test
"""

import importlib
import sys

from absl.testing import absltest

from tests.processes.known_peak import KNOWN_PEAK

if __name__ == "__main__":
    tests = importlib.import_module(sys.argv.pop(1))
    KNOWN_PEAK.start()
    absltest.main(module=tests)
