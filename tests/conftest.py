"""Lets pytest run, in one process, the files that Bazel runs one by one."""

import gc
import os

import pytest
from absl import flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as in .bazelrc; read at import


def pytest_configure(config: pytest.Config) -> None:
    """Parses absl's own flags, which `absltest.main()` does otherwise."""
    flags.FLAGS.mark_as_parsed()
    # xdist would begin with the classes of most tests.  Those that wait for processes
    # have few: all of them would come at the end, when nothing else is left to compute.
    config.option.loadscopereorder = False


def pytest_collection_finish() -> None:
    """Spares the garbage collector what the imports made, which stays."""
    gc.freeze()
