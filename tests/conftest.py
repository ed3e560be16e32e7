"""Lets pytest run, in one process, the files that Bazel runs in several."""

import ast
import functools
import gc
import itertools
import os
import pathlib
import signal
from collections.abc import Callable, Iterator

import pytest
from absl import flags

from tests.processes.known_peak import KNOWN_PEAK

# As in .bazelrc; read when TensorFlow is imported.  The mains have oneDNN on, too.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# Towers are on logical CPU devices, whatever GPUs there are: those are for the programs
# of on_gpu_test.py, which share them.
os.environ.setdefault("TESTED_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", "all"))
os.environ["CUDA_VISIBLE_DEVICES"] = ""
os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")


def pytest_addoption(parser: pytest.Parser) -> None:
    words = "also run the files that BUILD files call large; a file that is named runs"
    parser.addoption("--large", action="store_true", help=words)
    parser.addoption("--only_large", action="store_true", help="run those alone")


def pytest_ignore_collect(
    collection_path: pathlib.Path, config: pytest.Config
) -> bool | None:
    """Leaves out the large files, or the others, unless they are asked for."""
    is_test = collection_path.name.endswith("_test.py")
    if not is_test or config.getoption("large") or collection_path in _named(config):
        return None
    is_large = collection_path in _large_files()
    return True if is_large != config.getoption("only_large") else None


def _named(config: pytest.Config) -> set[pathlib.Path]:
    """The files and folders on the command line, or those of the configuration."""
    start = config.invocation_params.dir
    return {(start / arg.partition("::")[0]).resolve() for arg in config.args}


@functools.cache
def _large_files() -> set[pathlib.Path]:
    """The test files whose rows in BUILD files say that they are large."""
    large = set()
    for build in pathlib.Path(__file__).resolve().parent.rglob("BUILD"):
        call = ast.parse(build.read_text()).body[-1].value
        table = ast.literal_eval(call.args[0]) if call.func.id == "python_tests" else {}
        for test, options in table.items():
            if options.get("size") == "large":
                large.add(build.parent / f"{test}.py")
    return large


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Says how much was left out of the folders that were named."""
    inside = [f for f in _large_files() if _named(config) & {*f.parents}]
    if inside and not config.getoption("large") and not config.getoption("only_large"):
        terminalreporter.line(f"{len(inside)} large files left out; --large runs them")


def pytest_configure(config: pytest.Config) -> None:
    """Parses absl's own flags, which `absltest.main()` does otherwise."""
    flags.FLAGS.mark_as_parsed()
    # By default xdist begins with the classes that have most tests.  Those that wait
    # for processes have few, and would all run at the end, with the cores idle.
    config.option.loadscopereorder = False  # see `pytest_collection_modifyitems`
    # `nohup` and the background of a shell leave signals ignored, which runs respect.
    _heed(signal.SIGHUP, signal.SIG_DFL)
    _heed(signal.SIGINT, signal.default_int_handler)


def _heed(number: int, handler: signal.Handlers | Callable) -> None:
    """Sets the handler of a signal that this process was started to ignore."""
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Puts each class of tests/cluster, which wait much, between two others' classes.

    One of three processes waits then, while the others keep the cores busy.
    """
    waiting: dict[str, list[pytest.Item]] = {}
    others: dict[str, list[pytest.Item]] = {}
    for item in items:
        kind = waiting if "cluster" in item.path.parts else others
        kind.setdefault(item.nodeid.rpartition("::")[0], []).append(item)
    first, second = iter(others.values()), iter(waiting.values())
    rows = itertools.zip_longest(second, first, first, fillvalue=[])
    items[:] = [item for row in rows for tests in row for item in tests]


@pytest.fixture(scope="session", autouse=True)
def _peak() -> Iterator[None]:
    """Runs report a peak that no test has measured."""
    with KNOWN_PEAK:
        yield


def pytest_collection_finish() -> None:
    """Exempts the objects that imports made, which stay, from garbage collection.

    That of others comes after more of them than by default, as a graph is many objects.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
