"""Bazel targets: one per Python file, and tests that run together."""

_EVERYBODY = ["//visibility:public"]
_RUN_TOGETHER = 8  # test files in one process

def python_main(name, module):
    """A program that does what `python -m module` does.

    As the script itself, towers/train.py would put towers/ on the path, where its
    folders would pass for packages, and a relative --train_dir would end in Bazel's
    cache.

    Args:
      name: of the program.
      module: of towers/.
    """
    file = name + "_main.py"
    native.genrule(
        name = name + "_main",
        outs = [file],
        cmd = """cat > $@ <<'END'
import os
import runpy

os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))
runpy.run_module("%s", run_name="__main__")
END""" % module,
    )
    native.py_binary(name = name, srcs = [file], main = file, deps = ["//towers"])

def python_files(deps, folders = [], others = None, table = "__init__"):
    """A library for each file of this folder, and one, named like it, of them all.

    `tests/rules_test.py` holds `deps` against what the files really import.

    Args:
      deps: file, without `.py` -> the targets of the project's files it imports.
        Files under the same name with another ending are its data.
      folders: those in this one, each a package of its own.
      others: the targets that a file without a row in `deps` may import; `table`
        imports it.  None: every file has a row.
      table: the file, without `.py`, whose table names what is in those files.
    """
    if others != None:
        files = [file[:-len(".py")] for file in native.glob(["*.py"])]
        rest = {name: others for name in files if name not in deps}
        named = {table: deps[table] + [":" + name for name in rest]}
        deps = dict(dict(deps, **named), **rest)
    inner = ["//%s/%s" % (native.package_name(), folder) for folder in folders]
    for name, imported in deps.items():
        native.py_library(
            name = name,
            srcs = [name + ".py"],
            data = native.glob([name + ".*"], exclude = ["*.py"]),
            visibility = _EVERYBODY,
            deps = imported,
        )
    native.py_library(
        name = native.package_name().split("/")[-1],
        visibility = _EVERYBODY,
        deps = [":" + name for name in deps] + inner,
    )
    _source([label + ":source_files" for label in inner])

def python_tests(options, folders = []):
    """Tests of each `*_test.py` of this folder, which may import the whole project.

    Files without a row in `options` run together, some in each `tests_N`, since
    TensorFlow's import takes longer than most of them.  A large file has the tag
    `large`; such a file, and the target of a file that runs with others, is run only
    when it is named.

    Args:
      options: test -> how it differs from the others, by `py_test`'s names.
      folders: those in this one, each a package of its own.
    """
    inner = ["//%s/%s" % (native.package_name(), folder) for folder in folders]
    files = native.glob(["*_test.py"])
    native.py_library(
        name = "shared",
        srcs = native.glob(["*.py"], exclude = files + ["conftest.py"]),
        visibility = _EVERYBODY,
        deps = [
            "//:documents",
            "//benchmarks",
            "//flags",
            "//models",
            "//tests/processes",
            "//towers",
        ],
    )
    tests = [file[:-len(".py")] for file in files]
    for test in tests:
        own = options.get(test, {"tags": ["manual"]})
        tags = ["large", "manual"] if own.get("size") == "large" else []
        _python_test(test, [test], **dict({"tags": tags}, **own))
    together = [test for test in tests if test not in options]
    for start in range(0, len(together), _RUN_TOGETHER):
        _python_test(
            "tests_%d" % (start // _RUN_TOGETHER + 1),
            together[start:start + _RUN_TOGETHER],
            size = "large",
        )
    _source([label + ":source_files" for label in inner])

def _python_test(name, tests, **options):
    """A target that runs files of this folder, by their names without `.py`."""
    package = native.package_name()
    native.py_test(
        name = name,
        srcs = [test + ".py" for test in tests] + ["//tests:program.py"],
        main = "//tests:program.py",
        args = ["%s.%s" % (package.replace("/", "."), test) for test in tests],
        deps = [":shared"] if package == "tests" else [":shared", "//tests:shared"],
        **options
    )

def _source(inner):
    """The folder's files, and those of the folders in it, for a test that reads them."""
    native.filegroup(
        name = "source_files",
        srcs = native.glob(["**/*.py", "**/*.txt"]) + ["BUILD"] + inner,
        visibility = _EVERYBODY,
    )
