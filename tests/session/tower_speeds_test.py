"""Batch sizes by the measured speed of each tower."""

import os

import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from towers import planning, run
from towers.cluster.sessions import Local
from towers.session import tower_speeds
from towers.session.progress import Console
from towers.session.stop import StopOnSignal

_SLOW = (0.01, 0.01, 0.01, 0.03)


def _plan(**settings) -> planning.Plan:
    settings = {"model": "lenet", "device": "cpu", "num_gpus": 4, **settings}
    settings = {"batch_size": 10, "tower_batch_sizes": "auto", **settings}
    return planning.make(config.make(data_name="synthetic", **settings), models.get)


def _settled(plan, seconds) -> planning.Plan:
    def measured(*_):
        if seconds is None:
            raise AssertionError("it was not to be measured")
        return list(seconds)

    return tower_speeds.settled(
        plan, Console(open(os.devnull, "w")), Local(), StopOnSignal(), measured=measured
    )


class SettledTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ({}, _SLOW, (12, 12, 12, 4)),
        ({"num_micro_batches": 5, "partition": "params"}, _SLOW, (15, 10, 10, 5)),
        ({}, (0.01, 0.0101, 0.0102, 0.0103), (10, 10, 10, 10)),
    )
    def test_sizes(self, settings, seconds, sizes):
        options = _settled(_plan(**settings), seconds).options
        self.assertEqual(options.tower_batches(4), sizes)
        self.assertTrue(options.keeps_batch_sizes)

    def test_about_equal_towers_are_equally_fast(self):
        first, second, third = tower_speeds.speeds((0.01, 0.03, 0.0105))
        self.assertEqual(first, third)
        self.assertAllClose(first / second, 0.03 / 0.01025)

    def test_without_auto_nothing_changes(self):
        plan = _plan(tower_batch_sizes=None)
        self.assertIs(_settled(plan, None), plan)

    def test_batches_that_may_change_are_kept_and_their_towers_timed(self):
        plan = _settled(_plan(tower_batch_sizes=None, rebalance=5), None)
        self.assertEqual(plan.options.kept_batch_sizes(4), (10,) * 4)
        self.assertTrue(plan.options.times_towers)
        self.assertEqual(plan.placement.at_a_time, 0)

    def test_a_resumed_run_takes_the_sizes_of_its_checkpoint(self):
        directory = self.create_tempdir().full_path
        length = {"train_dir": directory, "num_warmup_batches": 1, "num_batches": 1}
        plan = _settled(_plan(**length), _SLOW)
        run.train(plan, Console(open(os.devnull, "w")))
        again = _settled(_plan(**length), None)
        self.assertEqual(again.options, plan.options)
        may_change = _plan(**length, tower_batch_sizes=None, rebalance=5)
        self.assertEqual(_settled(may_change, None).options.sizes(4), (12, 12, 12, 4))
        cut = _plan(**length, num_micro_batches=5, partition="params")
        self.assertEqual(_settled(cut, (1, 1, 1, 1)).options.sizes(4), (10,) * 4)
        # Of another global batch, and of another number of towers.
        more = _settled(_plan(**length, batch_size=20), (1, 1, 1, 1))
        self.assertEqual(more.options.tower_batches(4), (20, 20, 20, 20))
        fewer = _settled(_plan(**length, num_gpus=2), (1, 3))
        self.assertEqual(fewer.options.tower_batches(2), (15, 5))
