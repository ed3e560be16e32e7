"""Where the project is: for tests that read its documents or start its programs."""

import pathlib

# Not resolved: under Bazel that would leave the sandbox, for files not declared.
ROOT = pathlib.Path(__file__).absolute().parent.parent
