"""Plants faults one by one in copies of a tree, and runs their tests there."""

import contextlib
import importlib
import multiprocessing
import os
import pathlib
import queue
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from multiprocessing.process import BaseProcess
from typing import NamedTuple, NoReturn

from tests.mutants.fault import Fault

CAUGHT, SURVIVED, HUNG, BROKEN = "caught", "survived", "hung", "broken"

# pytest's exit statuses.
_PASSED, _FAILED = 0, 1

# `FAILED tests/gradients/spec_test.py::SpecTest::test_order` among its last lines.
_FAILURE = re.compile(
    r"^(?:(?:SUB)?FAILED.*?|ERROR) \S+/(\w+)\.py::\w+::(\w+)", re.MULTILINE
)

_OPTIONS = ("-o", "addopts=-q", "-p", "no:cacheprovider")  # number of lines with names

# What tests import and the tree does not have: it is imported once, and each run of
# tests is a fork of that process.  The first settles what the others read.
_IMPORTED = ("tests.conftest", "tensorflow", "tensorflow_datasets", "pytest", "tqdm")


class Outcome(NamedTuple):
    """What became of a fault.

    Attributes:
      fault: that was planted.
      kind: `caught` by a test that failed, `survived`, `hung` where tests did not end,
        or `broken` where they could not be run.
      seconds: that it took.
      output: of the tests.
    """

    fault: Fault
    kind: str
    seconds: float
    output: str

    @property
    def by(self) -> str:
        """The first test that failed, "" if none did."""
        failure = _FAILURE.search(self.output)
        return f"{failure[1]}::{failure[2]}" if failure else ""

    @property
    def counts(self) -> bool:
        """Whether it counts as caught."""
        return self.kind == CAUGHT or (self.kind == HUNG and self.fault.hangs)


class UnfitError(Exception):
    """The rows do not fit the tree, or its tests fail without a fault."""


def run(
    faults: Sequence[Fault],
    root: pathlib.Path,
    paths: Iterable[str],
    *,
    processes: int = 1,
    seconds: float = 300.0,
    imported: Sequence[str] = _IMPORTED,
) -> Iterator[Outcome]:
    """Plants each fault alone, and runs its tests; outcomes as they come.

    Args:
      faults: to be planted.
      root: of the tree, which stays as it is.
      paths: of its files, from there.
      processes: how many faults are tried at once, each in a copy of its own.
      seconds: after which tests are ended.
      imported: modules that are imported once for all runs of tests.

    Raises:
      UnfitError: a row does not fit, or a test fails without a fault; nothing was
        planted.
    """
    paths = list(paths)
    with contextlib.ExitStack() as stack:
        scratch = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants_"))
        )
        copies: queue.SimpleQueue[pathlib.Path] = queue.SimpleQueue()
        for number in range(processes):
            copies.put(_copied(root, paths, scratch / str(number)))
        tests = _Tests(imported)
        first = copies.get()
        wanted = _fitting(faults, first, tests)
        _check_passing(wanted, first, tests, processes)
        copies.put(first)

        def attempt(fault: Fault, names: Sequence[str]) -> Outcome:
            copy, begun = copies.get(), time.monotonic()
            before = fault.plant(copy)
            try:
                status, output = tests.run(["-x", *names], copy, seconds)
            finally:
                (copy / fault.file).write_text(before, encoding="utf-8")
                copies.put(copy)
            seconds_taken = time.monotonic() - begun
            return Outcome(fault, _kind(status, output), seconds_taken, output)

        pool = futures.ThreadPoolExecutor(processes)
        # On an interrupt, the tests that threads wait for are ended first.
        stack.callback(pool.shutdown, wait=True)
        stack.callback(tests.end)
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        attempts = [pool.submit(attempt, *pair) for pair in zip(faults, wanted)]
        for done in futures.as_completed(attempts):
            yield done.result()


def _kind(status: int | None, output: str) -> str:
    """What became of a fault, from what became of its tests.

    Any process may end with pytest's status, but only pytest names what has failed.
    """
    if status == _FAILED and not _FAILURE.search(output):
        return BROKEN
    return {_PASSED: SURVIVED, _FAILED: CAUGHT, None: HUNG}.get(status, BROKEN)


def _copied(
    root: pathlib.Path, paths: Iterable[str], target: pathlib.Path
) -> pathlib.Path:
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / path, target / path)
    return target


def _fitting(
    faults: Sequence[Fault], copy: pathlib.Path, tests: "_Tests"
) -> list[list[str]]:
    """The tests of each fault, by pytest's names; tries each text once."""
    problems = []
    for fault in faults:
        try:
            before = fault.plant(copy)
            (copy / fault.file).write_text(before, encoding="utf-8")
        except (OSError, ValueError) as error:
            problems.append(str(error))
    files = sorted({file for fault in faults for file in fault.test_files})
    gone = [f"{file} is not there" for file in files if not (copy / file).is_file()]
    if problems or gone:
        raise UnfitError("\n".join(problems + gone))
    status, output = tests.run(["--collect-only", *files], copy)
    collected = [line for line in output.splitlines() if "::" in line]
    if status != _PASSED:
        raise UnfitError(f"the tests cannot be collected:\n{output}")
    wanted = []
    for fault in faults:
        try:
            wanted.append(fault.chosen(collected))
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise UnfitError("\n".join(problems))
    return wanted


def _check_passing(
    wanted: Sequence[Sequence[str]], copy: pathlib.Path, tests: "_Tests", processes: int
) -> None:
    """Runs all tests once without a fault."""
    names = sorted({name for tests_of_row in wanted for name in tests_of_row})
    spread = ["-n", str(processes), "--dist", "loadscope"] if processes > 1 else []
    status, output = tests.run([*spread, *names], copy)
    if status != _PASSED:
        raise UnfitError(f"tests fail without a fault:\n{output}")


class _Tests:
    """Runs of pytest in trees, each a process that is ended with all that it started.

    Args:
      imported: modules that are imported before, once.
    """

    def __init__(self, imported: Sequence[str]):
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(imported))
        self._running: set[BaseProcess] = set()
        self._lock = threading.Lock()
        self._over = False

    def run(
        self, arguments: Sequence[str], tree: pathlib.Path, seconds: float | None = None
    ) -> tuple[int | None, str]:
        """Runs tests in a tree.

        Returns:
          (pytest's exit status, None if it did not end in time; what was printed).
        """
        with tempfile.NamedTemporaryFile() as printed:
            process = self._context.Process(
                target=_pytest, args=(list(arguments), os.fspath(tree), printed.name)
            )
            with self._lock:
                if self._over:
                    raise InterruptedError("no tests are run any more")
                process.start()
                self._running.add(process)
            try:
                process.join(seconds)
                status = process.exitcode
            finally:
                _end(process)
                with self._lock:
                    self._running.remove(process)
            return status, printed.read().decode(errors="replace")

    def end(self) -> None:
        """Ends all that run, and runs no more."""
        with self._lock:
            self._over = True
            for process in self._running:
                _end(process)


def _pytest(arguments: Sequence[str], tree: str, printed: str) -> NoReturn:
    """In a process of its own: pytest, whose imports are those of a tree."""
    os.setsid()
    output = os.open(printed, os.O_WRONLY | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    project_names = {entry.name.removesuffix(".py") for entry in os.scandir(tree)}
    for name in [name for name in sys.modules if name.split(".")[0] in project_names]:
        del sys.modules[name]
    elsewhere = [
        path for path in sys.path if not os.path.isdir(f"{path or '.'}/towers")
    ]
    sys.path[:] = [tree, *elsewhere]
    os.environ |= {"PYTHONPATH": tree, "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    os.chdir(tree)
    pytest = importlib.import_module("pytest")
    status = pytest.main([*_OPTIONS, *arguments])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end(process: BaseProcess) -> None:
    """Ends a process and what a failed test of it left behind."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.join()
