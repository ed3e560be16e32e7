"""Worker processes read what this process would read, and end with it."""

import gc
import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import numpy as np
from absl.testing import absltest

from tests.processes.programs import ROOT
from tests.squares import Modules, Squares
from towers.data import source_worker, worker_pool
from towers.data.source_worker import Leaf, SourceError

_LEAVES = [
    Leaf("features['i']", np.dtype(np.float32), (2,)),
    Leaf("features['n']", np.dtype(np.int16), ()),
    Leaf("labels", np.dtype(np.int32), ()),
]

_PARENT = """
    import sys, threading, time
    import numpy as np
    from tests.squares import Modules, Squares
    from towers.data.source_worker import Leaf
    from towers.data.worker_pool import WorkerPool

    pool = WorkerPool(Squares(sleeps=3), {leaves}, 2)
    pool.rows(np.array([1]))
    threading.Thread(target=pool.rows, args=[np.array([3])], daemon=True).start()
    print(*(worker.process.pid for worker in {{pool._idle.get(), pool._idle.get()}}))
    sys.stdout.flush()
    time.sleep(1000)
"""


def _is_gone(pid, seconds=10.0):
    """Whether a process ends in so many seconds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


class WorkerPoolTest(absltest.TestCase):
    def test_reads_what_this_process_reads(self):
        pool = worker_pool.WorkerPool(Squares(50, raises=40, prints=3), _LEAVES, 2)
        results = {}

        def read(first):
            results[first] = pool.rows(np.arange(first, first + 5))

        threads = [threading.Thread(target=read, args=[5 * k]) for k in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for first, columns in results.items():
            here = source_worker.rows(Squares(50), range(first, first + 5), _LEAVES, 50)
            for part, expected in zip(columns, here, strict=True):
                np.testing.assert_array_equal(part, expected)
        self.assertLen(results, 8)
        with self.assertRaisesRegex(SourceError, r"source\[40\] failed: KeyError"):
            pool.rows(np.array([40]))
        self.assertLen(pool.rows(np.array([41]))[0], 1)  # the other processes go on

    def test_workers_start_without_tensorflow(self):
        pool = worker_pool.WorkerPool(
            Modules(), [Leaf("features", np.dtype(bool), ())], 1
        )
        self.assertEqual(pool.rows(np.array([0]))[0], [False])

    def test_a_worker_that_ends_is_told(self):
        pool = worker_pool.WorkerPool(Squares(exits=4), _LEAVES, 1)
        with self.assertRaisesRegex(SourceError, r"status 7 while it read source\[4\]"):
            pool.rows(np.array([4]))
        with self.assertRaisesRegex(SourceError, "status 7"):
            pool.rows(np.array([1]))

    def test_workers_end_with_the_pool(self):
        pool = worker_pool.WorkerPool(Squares(), _LEAVES, 1)
        pool.rows(np.array([1]))
        pid = pool._idle.get().process.pid
        del pool
        gc.collect()
        self.assertTrue(_is_gone(pid))

    def test_workers_end_with_a_process_that_is_killed(self):
        code = textwrap.dedent(_PARENT).format(
            leaves="[Leaf(\"features['i']\", np.dtype('f4'), (2,)), "
            "Leaf(\"features['n']\", np.dtype('i2'), ()), "
            "Leaf('labels', np.dtype('i4'), ())]"
        )
        environment = os.environ | {"PYTHONPATH": os.fspath(ROOT)}
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment
        ) as parent:
            workers = list(map(int, parent.stdout.readline().split()))
            parent.kill()
        self.assertNotEmpty(workers)
        for pid in workers:
            self.assertTrue(_is_gone(pid))

    def test_a_source_that_cannot_be_sent_is_refused(self):
        with self.assertRaisesRegex(ValueError, "cannot be sent to worker processes"):
            worker_pool.WorkerPool(Squares(raises=lambda: None), _LEAVES, 1)

    def test_a_module_that_workers_cannot_import(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "vanishing.py")
            with open(path, "w") as file:
                file.write("class Source:\n    __len__ = lambda self: 1\n")
            sys.path.insert(0, folder)
            try:
                module = __import__("vanishing")
                pool = worker_pool.WorkerPool(module.Source(), _LEAVES, 1)
                os.remove(path)
                with self.assertRaisesRegex(SourceError, "cannot load the source: Mod"):
                    pool.rows(np.array([0]))
            finally:
                sys.path.remove(folder)
