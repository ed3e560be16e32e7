"""Lets pytest run, in one process, the files that Bazel runs one by one."""

import os

from absl import flags

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # as in .bazelrc; read at import


def pytest_configure() -> None:
    """Parses absl's own flags, which `absltest.main()` does otherwise."""
    flags.FLAGS.mark_as_parsed()
