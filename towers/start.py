"""The start of a main: the project's own packages, and TensorFlow without Keras.

Only mains set the environment variables that TensorFlow reads when it is imported: a
library must not change its process.
"""

import contextlib
import importlib
import importlib.machinery
import logging
import os
import platform
import runpy
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

import towers
from towers.errors import crash
from towers.errors.terminal import ENDING
from towers.layout import processor

_ONEDNN = "TF_ENABLE_ONEDNN_OPTS"

# Threads of a small run: some, and as many pools as were counted of one per core.
_THREADS, _THREADS_PER_CORE = 8, 5


def train() -> NoReturn:
    """The `towers-train` script: `python -m towers.train`, in all."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = ""  # the current folder, and not the script's
    runpy.run_module("towers.train", run_name="__main__", alter_sys=True)
    raise AssertionError("a main exits")


class _OwnPackages:
    """Finds the packages beside `towers`, whatever has their names on Python's path."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As an `importlib.abc.MetaPathFinder`."""
        del path, target
        if name not in ("flags", "models"):
            return None
        (folder,) = map(os.path.dirname, towers.__path__)
        return importlib.machinery.PathFinder.find_spec(name, [folder])


def import_tensorflow() -> None:
    """Imports TensorFlow, and has `flags` and `models` found beside `towers`.

    TensorFlow comes without its notes on each trace or on its own old calls, without
    Keras, and with oneDNN's kernels.

    Importing TensorFlow ends with importing Keras's optimizers, and so Keras, which
    takes a quarter of the time and 40 MB, and nothing here needs it.  A model that uses
    `tf.keras` gets it all the same: TensorFlow looks it up on first use.

    By itself, TensorFlow leaves oneDNN alone on an x86 CPU without instructions for
    neural networks (AVX-512 VNNI and later): convolutions are then up to two and a
    half times as slow, and there is no NCHW.

    Until `take_interrupts` is called, Ctrl-C and other signals that ask for it end the
    process with a sentence.

    Raises:
      SystemExit: the process may not start the threads that TensorFlow needs, which
        would abort; the reason is printed.
    """
    _open_streams()
    crash.show_stacks()
    _use_utf8()
    _print_whatever_the_encoding()
    _check_threads(_THREADS + _THREADS_PER_CORE * processor.cores())
    if _OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, _OwnPackages)
    for number in ENDING:
        if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, _leave)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if platform.machine().lower() in ("x86_64", "amd64"):
        os.environ.setdefault(_ONEDNN, "1")
    with _not_found("keras.src.optimizers", "tf_keras.src.optimizers"):
        library = crash.during(
            "importing TensorFlow", lambda: importlib.import_module("tensorflow")
        )
    logging.getLogger("tensorflow").addFilter(_of_callers(library))


@contextlib.contextmanager
def _not_found(*modules: str) -> Iterator[None]:
    """Lets importing these fail, where they are not imported yet."""
    left_out = [name for name in modules if name not in sys.modules]
    modules_found: dict[str, Any] = sys.modules  # None: there is none
    modules_found.update(dict.fromkeys(left_out))
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]


def _of_callers(library: types.ModuleType) -> Callable[[logging.LogRecord], bool]:
    """A filter against warnings that the library's own files call what is deprecated.

    Such a line would come in the middle of a run, as when the sixth checkpoint is
    written, and nobody who reads it can do what it says.
    """
    itself = f"From {os.path.dirname(str(library.__file__))}{os.sep}"
    return lambda record: not record.getMessage().startswith(itself)


def _open_streams() -> None:
    """Opens standard streams that are closed, as by `>&-`, on the null device.

    Otherwise the next file to be opened, a checkpoint perhaps, would get their file
    descriptor, and output would be written into it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            os.set_inheritable(number, True)
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w" if number else "r", closefd=False))


def _use_utf8() -> None:
    """Starts this program again in Python's UTF-8 mode, if it takes paths otherwise.

    TensorFlow takes every path for UTF-8, and Python, by `LC_ALL=C PYTHONUTF8=0` say,
    may not: a path would be another one to each, or none.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _print_whatever_the_encoding() -> None:
    """Has printed as an escape what the encoding of a stream lacks, of a path say."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _check_threads(needed: int) -> None:
    """Ends the process with a sentence if it may not start so many threads."""
    if (count := _startable(needed)) < needed:
        sys.stderr.write(
            f"error: only {count} more threads can be started, and TensorFlow needs "
            f"{needed}; raise the limit (ulimit -u, or pids of the container)\n"
        )
        sys.exit(1)


def _startable(most: int) -> int:
    """How many threads this process can start at once, of so many that are tried."""
    end, threads = threading.Event(), []
    size = threading.stack_size(2**18)  # they only wait
    try:
        with contextlib.suppress(RuntimeError):
            for _ in range(most):
                thread = threading.Thread(target=end.wait, daemon=True)
                thread.start()
                threads.append(thread)
    finally:
        threading.stack_size(size)
        end.set()
        for thread in threads:
            thread.join()
    return len(threads)


def take_interrupts() -> None:
    """Leaves signals to Python and to the kernel again, now that a main takes them."""
    for number in ENDING:
        if signal.getsignal(number) is _leave:
            ctrl_c = number == signal.SIGINT
            default = signal.default_int_handler if ctrl_c else signal.SIG_DFL
            signal.signal(number, default)


def _leave(number: int, frame: object) -> None:
    del frame
    name = signal.Signals(number).name
    said = f"Stopped by {name}: nothing was begun; the same command begins it.\n"
    os.write(2, said.encode())
    os._exit(128 + number)
