"""Reads examples of a Python source; run as a program, it is a worker process.

A worker gets the source on its standard input, and then numbers of examples; it writes
their rows to its standard output.  It ends when its input ends, which happens in any
case when the process that started it ends.

It does not import TensorFlow, and so starts ten times as fast.
"""

import importlib.util
import os
import pickle
import queue
import runpy
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# A variable in the environment of a worker.
MARK = "TOWERS_SOURCE_WORKER"


class Leaf(NamedTuple):
    """The name, dtype and shape of an array of each example."""

    name: str  # as `features['table']`
    dtype: np.dtype
    shape: tuple[int, ...]


class Setup(NamedTuple):
    """The first message to a worker process."""

    length: int  # of the source
    path: list[str]  # Python's path for modules
    files: dict[str, str]  # modules that are not on it -> their files
    main: str  # the program's file if the source needs it, or ""
    source: bytes  # pickled
    leaves: list[tuple]  # of `Leaf`, as tuples: its module would import TensorFlow


class SourceError(Exception):
    """An example cannot be read; the message is the sentence for the user."""


def parts_of(example: Any) -> tuple[Any, ...]:
    """(features, labels), or (features, labels, weight), of a source's example.

    Raises:
      SourceError: it is another tuple.
    """
    if isinstance(example, list):
        example = tuple(example)
    if not isinstance(example, tuple):
        return example, ()
    if not 1 <= len(example) <= 3:
        raise SourceError(
            f"is a tuple of {len(example)}; an example is features, (features, labels) "
            "or (features, labels, weight), each of which may be a tuple or a dict"
        )
    return example if len(example) > 1 else (*example, ())


def flattened(nest: Any) -> list[Any]:
    """The leaves of a nest of dicts and tuples, in the order of `tf.nest.flatten`."""
    if isinstance(nest, Mapping):
        nest = tuple(nest[key] for key in sorted(nest))
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in flattened(part)]
    return [nest]


def array_of(value: Any) -> np.ndarray:
    """A value as an array; Python's numbers become int32 and float32."""
    if type(value) in (int, float):
        return np.array(value, np.int32 if isinstance(value, int) else np.float32)
    return np.asarray(value)


def rows(
    source: Any, numbers: Sequence[int], leaves: Sequence[Leaf], length: int
) -> list[np.ndarray]:
    """Reads examples.

    Args:
      source: `source[i]` is an example.
      numbers: of the examples.
      leaves: of each example.
      length: of the source.

    Returns:
      for each leaf an array [numbers, ...].

    Raises:
      SourceError: an example cannot be read; the sentence has its number.
    """
    if (now := len(source)) != length:
        raise SourceError(
            f"len(source) is {now} and was {length} when the run began; it must not "
            "change"
        )
    batch = [np.empty((len(numbers), *leaf.shape), leaf.dtype) for leaf in leaves]
    for row, number in enumerate(numbers):
        try:
            arrays = map(array_of, flattened(parts_of(source[int(number)])))
            _fill(batch, row, leaves, list(arrays))
        except SourceError as error:
            raise SourceError(f"source[{number}] {error}") from error
        except (Exception, SystemExit) as error:  # the user's code may raise anything
            raise SourceError(f"source[{number}] failed: {told(error)}") from error
    return batch


def _fill(
    batch: Sequence[np.ndarray],
    row: int,
    leaves: Sequence[Leaf],
    arrays: Sequence[np.ndarray],
) -> None:
    """Writes an example into a row of a batch.

    Raises:
      SourceError: it has other arrays than `leaves`.
    """
    if len(arrays) != len(leaves):
        raise SourceError(
            f"has {len(arrays)} arrays, and source[0] has {len(leaves)}; each example "
            "must have the same"
        )
    for column, leaf, array in zip(batch, leaves, arrays):
        weighs = leaf.name == "weights" and array.dtype.kind in "fiu"
        if array.shape != leaf.shape or not (weighs or array.dtype == leaf.dtype):
            raise SourceError(
                f"has {leaf.name} of {array.dtype} {list(array.shape)}, and source[0] "
                f"of {leaf.dtype} {list(leaf.shape)}; make them the same, by padding "
                "say"
            )
        if array.dtype.kind in "fc" and not np.all(np.isfinite(array)):
            raise SourceError(f"has {leaf.name} that is not finite")
        if leaf.name == "weights" and array < 0:
            raise SourceError(f"has the weight {array}, which is negative")
        column[row] = array


def told(error: BaseException) -> str:
    """An error and its place in the user's code, on one line."""
    words = " ".join(str(error).split())[:200]
    trace = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in trace if frame.filename != __file__]
    place = f" ({frames[-1].filename}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {words}{place}"


def main() -> None:
    """Serves one process until it ends."""
    # Lines that the user's code prints must not get between the rows.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # A terminal sends these signals to all its processes.  The run decides when it
    # ends, and still reads examples until then.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive() -> None:
        try:
            while True:
                waiting.put(pickle.load(requests))
        except Exception:
            pass
        os._exit(0)  # even in the middle of an example

    threading.Thread(target=receive, daemon=True).start()
    setup: Setup = Setup(*waiting.get())
    leaves, source = [Leaf(*leaf) for leaf in setup.leaves], None
    try:
        source = _source(setup)
        failure = ""
    except BaseException as error:  # of the user's modules
        failure = f"a worker process cannot load the source: {told(error)}"
    while True:
        numbers = waiting.get()
        try:
            if failure:
                raise SourceError(failure)
            reply: Any = rows(source, numbers, leaves, setup.length)
        except SourceError as error:
            reply = str(error)
        pickle.dump(reply, replies, protocol=5)
        replies.flush()


def _source(setup: Setup) -> Any:
    """Unpickles the source, after importing the modules that it needs."""
    sys.path[:] = setup.path
    for name, file in setup.files.items():
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    if setup.main:  # under multiprocessing's name, so that the program does not start
        main_module = type(sys)("__mp_main__")
        names = runpy.run_path(setup.main, run_name="__mp_main__")
        vars(main_module).update(names)
        sys.modules["__main__"] = sys.modules["__mp_main__"] = main_module
    return pickle.loads(setup.source)


if __name__ == "__main__":
    main()
