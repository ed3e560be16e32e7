"""Threads of towers: the gate's bound, errors, the order of results."""

import random
import threading
import time

import tensorflow as tf
from absl.testing import parameterized

from towers.variable_update import asynchronous


class _Session:
    """Makes callables of Python functions in place of fetches."""

    def make_callable(self, step):
        return step


def _towers(count: int, seed: int = 0):
    """Steps that take random times and report their true staleness."""
    lock, updates = threading.Lock(), [0]
    rng = random.Random(seed)

    def step():
        read = updates[0]
        time.sleep(rng.random() * 2e-3)
        with lock:
            stale = updates[0] - read
            updates[0] += 1
        return None, 1.0, stale

    return [step] * count


def _run(steps, count, bound=None):
    loop = asynchronous.AsynchronousLoop(steps, bound)
    updates = list(loop.runner(_Session())(10, count))
    return loop, updates


class LoopTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.product(bound=(None, 0, 1, 2, 4, 7), seed=(0, 1))
    def test_no_update_is_staler_than_the_bound(self, bound, seed):
        loop, updates = _run(_towers(4, seed), 60, bound)
        self.assertEqual(sum(loop.staleness.values()), 60)
        self.assertEqual(updates[-1][0], 70)
        self.assertEqual(sum(len(losses) for _, losses, _ in updates), 60)
        if bound is not None:
            self.assertLessEqual(max(loop.staleness), bound)
        else:
            self.assertGreater(max(loop.staleness), 0)

    @parameterized.parameters(1, 2, 3)
    def test_fewer_steps_than_towers(self, count):
        loop, _ = _run(_towers(4), count)
        self.assertEqual(sum(loop.staleness.values()), count)

    @parameterized.parameters(None, 1)
    def test_an_error_of_one_tower_ends_all(self, bound):
        def broken():
            raise ValueError("tower 1 is broken")

        before = threading.active_count()
        with self.assertRaisesRegex(ValueError, "tower 1 is broken"):
            _run([*_towers(2), broken], 10_000, bound)
        self.assertEqual(threading.active_count(), before)

    def test_leaving_early_ends_all(self):
        before = threading.active_count()
        loop = asynchronous.AsynchronousLoop(_towers(4), None)
        steps = loop.runner(_Session())(0, 10_000)
        next(steps)
        steps.close()
        self.assertEqual(threading.active_count(), before)

    def test_the_report_is_a_histogram(self):
        loop = asynchronous.AsynchronousLoop([], None)
        self.assertEqual(loop.report(), [])
        loop.staleness.update([0, 1, 1, 4])
        [line] = loop.report()
        self.assertEqual(
            line,
            "Staleness of 4 updates: mean 1.50, largest 4 "
            "(0: 25.0 %, 1: 50.0 %, 4: 25.0 %)",
        )
