"""Worker processes that read examples of a Python source."""

import collections
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from towers.data import source_worker
from towers.data.source_worker import Leaf, Setup, SourceError

# Batches that a worker has at a time: it reads one while another is sent.
_AT_A_TIME = 2


class WorkerPool:
    """Processes that read batches of examples; they are started at the first read.

    They end when the process that started them ends, in any way, or when nothing refers
    to the pool any more.

    Args:
      source: picklable; `source[i]` is an example.
      leaves: of an example.
      workers: number of processes.

    Raises:
      ValueError: the source cannot be sent to another process.
    """

    def __init__(self, source: Any, leaves: Sequence[Leaf], workers: int):
        if source_worker.MARK in os.environ:
            raise ValueError(
                "from_source: a worker process would start worker processes; put what "
                "your program runs under `if __name__ == '__main__':`"
            )
        self._setup: Setup | None = _setup(source, leaves)
        self._count = workers
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._starting = threading.Lock()

    def rows(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The rows of these examples, as from `source_worker.rows`.

        Raises:
          SourceError: an example cannot be read, or a worker has ended.
        """
        with self._starting:
            if self._setup is not None:
                workers = [_Worker(self._setup) for _ in range(self._count)]
                weakref.finalize(self, _end, [worker.process for worker in workers])
                for worker in workers * _AT_A_TIME:
                    self._idle.put(worker)
                self._setup = None
        worker = self._idle.get()
        try:
            reply = worker.ask(numbers).result()
        finally:
            self._idle.put(worker)
        if isinstance(reply, str):
            raise SourceError(reply)
        return reply


class _Worker:
    """One process, and a thread that receives its replies."""

    def __init__(self, setup: Setup):
        environment = os.environ | {source_worker.MARK: "1"}
        # One thread each, as there are several workers; and no GPU, as the run uses
        # them.
        environment.setdefault("OMP_NUM_THREADS", "1")
        environment["CUDA_VISIBLE_DEVICES"] = ""
        self.process = subprocess.Popen(
            [sys.executable, source_worker.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        self._lock = threading.Lock()
        self._asked: collections.deque[tuple[np.ndarray, Future]] = collections.deque()
        self._end: str | None = None
        self._send(tuple(setup))
        threading.Thread(target=self._receive, daemon=True).start()

    def ask(self, numbers: np.ndarray) -> Future:
        """Sends numbers; the future is of the rows, or of a sentence if that fails."""
        future: Future = Future()
        with self._lock:
            if self._end is None:
                self._asked.append((numbers, future))
                self._send(numbers)
            else:
                future.set_result(self._end)
        return future

    def _send(self, message: Any) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(message, self.process.stdin, protocol=5)
            self.process.stdin.flush()
        except (BrokenPipeError, ValueError):
            pass  # the worker or the pool has ended, and the futures fail

    def _receive(self) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                reply = pickle.load(self.process.stdout)
                with self._lock:
                    _, future = self._asked.popleft()
                future.set_result(reply)
        except (EOFError, pickle.UnpicklingError, OSError, ValueError):
            pass
        status = self.process.wait()
        with self._lock:
            asked = [number for numbers, _ in self._asked for number in numbers]
            self._end = _ended(self.process.pid, status, asked)
            for _, future in self._asked:
                future.set_result(self._end)


def _ended(pid: int, status: int, asked: Sequence[int]) -> str:
    """The error about a worker that ended by itself."""
    how = f"exited with status {status}"
    if status < 0:
        how = f"was ended by {signal.Signals(-status).name}"
    shown = ", ".join(f"source[{number}]" for number in asked[:3])
    more = ", ..." if len(asked) > 3 else ""
    what = f" while it read {shown}{more}" if asked else ""
    return f"worker process {pid} {how}{what}; if memory ran out, use fewer workers"


def _end(processes: Sequence[subprocess.Popen]) -> None:
    for process in processes:
        process.kill()


def _setup(source: Any, leaves: Sequence[Leaf]) -> Setup:
    """The first message to a worker.

    Raises:
      ValueError: the source cannot be sent to another process.
    """
    cure = "define it at the top level of a module, or write workers=0"
    try:
        pickled = pickle.dumps(source, protocol=5)
    except Exception as error:  # of the user's class
        raise ValueError(
            "from_source: the source cannot be sent to worker processes "
            f"({source_worker.told(error)}); {cure}"
        ) from error
    main = ""
    if b"__main__" in pickled:
        main = getattr(sys.modules["__main__"], "__file__", "")
        if not main:
            raise ValueError(
                "from_source: worker processes do not find what is defined in a "
                f"notebook or at a prompt; {cure}"
            )
    # Modules that models.load has named by their files' paths.  The source cannot need
    # a file that no longer exists.
    paths = [name for name in list(sys.modules) if os.sep in name]
    files = {path: path for path in paths if os.path.isfile(path)}
    path, told = list(sys.path), list(map(tuple, leaves))
    return Setup(len(source), path, files, main, pickled, told)
