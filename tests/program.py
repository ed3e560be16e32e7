"""Runs the tests of some modules in one process, as Bazel does.

python -m tests.program tests.gradients.reduction_test tests.gradients.clipping_test
"""

from absl.testing import absltest

from tests.processes.known_peak import KNOWN_PEAK

if __name__ == "__main__":
    KNOWN_PEAK.start()
    absltest.main(module=None)
