"""Runs the tests of some modules in one process, as Bazel does.

python -m tests.program tests.gradients.reduction_test tests.gradients.all_reduce_test
"""

import importlib
import sys

from absl.testing import absltest

from tests.processes.known_peak import KNOWN_PEAK

if __name__ == "__main__":
    for module in sys.argv[1:]:
        importlib.import_module(module)
    KNOWN_PEAK.start()  # after the imports, as some tests keep what it replaces
    absltest.main(module=None)
