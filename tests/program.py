"""Runs the tests of one module, as Bazel does.

python -m tests.program tests.gradients.reduction_test
"""

import importlib
import sys

from absl.testing import absltest

if __name__ == "__main__":
    absltest.main(module=importlib.import_module(sys.argv.pop(1)))
