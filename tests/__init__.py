"""The tests, in the folders of the source."""

import os

# Bazel sets it (.bazelrc), as a test's own folder has `models` and `flags` too.  The
# programs that tests start are to find what lies in the current folder.
os.environ.pop("PYTHONSAFEPATH", None)
