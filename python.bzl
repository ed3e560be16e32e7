"""One Bazel target per Python file of a folder."""

_EVERYBODY = ["//visibility:public"]

def python_files(deps):
    """A library for each file of this folder, and one, named like it, of them all.

    `tests/rules_test.py` holds `deps` against what the files really import.

    Args:
      deps: file, without `.py` -> the targets of the project's files it imports.
        Files under the same name with another ending are its data.
    """
    for name, imported in deps.items():
        native.py_library(
            name = name,
            srcs = [name + ".py"],
            data = native.glob([name + ".*"], exclude = ["*.py"]),
            visibility = _EVERYBODY,
            deps = imported,
        )
    native.py_library(
        name = native.package_name(),
        visibility = _EVERYBODY,
        deps = [":" + name for name in deps],
    )

    # For tests that read the source.
    native.filegroup(
        name = "source",
        srcs = native.glob(["*.py"]) + ["BUILD"],
        visibility = _EVERYBODY,
    )
