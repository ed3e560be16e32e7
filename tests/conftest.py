"""Lets pytest run, in one process, the files that Bazel runs one by one."""

import gc
import os

from absl import flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as in .bazelrc; read at import


def pytest_configure() -> None:
    """Parses absl's own flags, which `absltest.main()` does otherwise."""
    flags.FLAGS.mark_as_parsed()


def pytest_collection_finish() -> None:
    """Spares the garbage collector what the imports made, which stays."""
    gc.freeze()
