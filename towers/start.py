"""The start of a main: finds this project's packages, imports TensorFlow without Keras.

Only mains set the environment variables that TensorFlow reads at its import; a library
must not change the process that imports it.
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

# Threads of a small run: a constant number, and a measured number per core.
_THREADS, _THREADS_PER_CORE = 8, 5


def train() -> NoReturn:
    """The `towers-train` script: the same as `python -m towers.train`."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = ""  # the current folder instead of the script's
    runpy.run_module("towers.train", run_name="__main__", alter_sys=True)
    raise AssertionError("a main exits")


class _OwnPackages:
    """Imports `flags` and `models` from beside `towers`, not from Python's path."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The method of `importlib.abc.MetaPathFinder`."""
        del path, target
        if name not in ("flags", "models"):
            return None
        (folder,) = map(os.path.dirname, towers.__path__)
        return importlib.machinery.PathFinder.find_spec(name, [folder])


def import_tensorflow() -> None:
    """Imports TensorFlow, and makes sure that `flags` and `models` are those here.

    TensorFlow is imported without Keras, with oneDNN's kernels, and without log lines
    about traces and about its own deprecated calls.

    Keras would take a quarter of the import's time and 40 MB, and is not needed.  A
    model can still use `tf.keras`: TensorFlow imports it at the first use.

    TensorFlow turns oneDNN off on x86 CPUs without AVX-512 VNNI or later instructions;
    convolutions are then up to two and a half times as slow, and there is no NCHW.

    Until `take_interrupts` is called, Ctrl-C and similar signals end the process with a
    sentence.

    Raises:
      SystemExit: the process cannot start the threads that TensorFlow needs.
        TensorFlow would abort; here the reason is printed.
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
        library = crash.during("importing TensorFlow")(
            lambda: _on_wide_stack(lambda: importlib.import_module("tensorflow"))
        )
    logging.getLogger("tensorflow").addFilter(_of_callers(library))


def _on_wide_stack(call: Callable[[], Any]) -> Any:
    """The result of a call, below which Python's stack does not grow in small pieces.

    Since 3.11, CPython maps its stack in pieces of 16 KiB, and unmaps each when the
    first function in it returns.  If functions are called in a loop where a piece ends,
    each call maps one.  How deep this function is called decides whether that happens:
    importing TensorFlow mapped 20,000 or 68,000 pieces, which takes 0.1 or 0.4 s.  A
    function with 20,000 local variables gets a piece of 256 KiB.
    """
    names = " = ".join(f"_{number}" for number in range(20_000))
    scope: dict[str, Any] = {}
    exec(f"def wide(call):\n if 0: {names} = 0\n return call()", scope)
    return scope["wide"](call)


@contextlib.contextmanager
def _not_found(*modules: str) -> Iterator[None]:
    """In this block, importing these modules fails unless they are imported already."""
    left_out = [name for name in modules if name not in sys.modules]
    modules_found: dict[str, Any] = sys.modules  # None: there is none
    modules_found.update(dict.fromkeys(left_out))
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]


def _of_callers(library: types.ModuleType) -> Callable[[logging.LogRecord], bool]:
    """A filter that drops a library's deprecation warnings about its own calls.

    Such a line would come in the middle of a run, as when the sixth checkpoint is
    written, and a user cannot do anything about it.
    """
    itself = f"From {os.path.dirname(str(library.__file__))}{os.sep}"
    return lambda record: not record.getMessage().startswith(itself)


def _open_streams() -> None:
    """Opens the null device for each closed standard stream (`>&-` closes one).

    Otherwise the next opened file, such as a checkpoint, would get the stream's file
    descriptor, and printed lines would be written into it.
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
    """Starts this program again in Python's UTF-8 mode if paths have another encoding.

    TensorFlow reads every path as UTF-8.  Python may not (`LC_ALL=C PYTHONUTF8=0`), and
    would then open another file than TensorFlow, or none.
    """
    if sys.getfilesystemencoding() == "utf-8" or os.environ.get("PYTHONUTF8") == "1":
        return
    os.environ["PYTHONUTF8"] = "1"
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _print_whatever_the_encoding() -> None:
    """Prints characters that a stream's encoding lacks as escapes, as in paths."""
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
    """How many threads this process can start at once; it tries at most `most`."""
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
    """Gives signals back to Python and the system; a main handles them from now on."""
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
