"""Costs of blocks, and the cuts that follow from them."""

import dataclasses
import json
import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from models.model import Images, Model, Recipe, Schedule
from towers.compute.tower import TowerSpec
from towers.layout import placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.pipelines import costs
from towers.pipelines.segment import MicroBatchSpec

_FEATURES, _LABELS = tf.TensorSpec([8, 4, 4, 1]), tf.TensorSpec([8], tf.int32)
_BATCH = MicroBatchSpec(_FEATURES, _LABELS)


def _dense(units):
    return lambda x, nn: nn.dense(nn.flatten(x), units)


def _task(*units, **how):
    return TowerSpec(
        model=Model(
            name="test",
            blocks=tuple((f"b{i}", _dense(n)) for i, n in enumerate(units)),
            inputs=Images(shape=(4, 4, 1), num_classes=3),
            recipe=Recipe(batch_size=8, schedule=Schedule(rates=(0.1,))),
        ),
        num_classes=3,
        pipeline=Pipeline(**how) if how else None,
    )


def _work(*units):
    where = placement.local(1, kind="cpu")
    return costs.TowerToCut(_task(*units), _BATCH, where)


# Files that do not hold the times of two blocks.
_DAMAGED = (
    "{",
    "[]",
    '{"seconds": [3.0, 4.0]}',
    '{"blocks": ["b0", "other"], "seconds": [3.0, 4.0]}',
    *(
        '{"blocks": ["b0", "b1"], "seconds": ' + seconds + "}"
        for seconds in (
            "null",
            "[3.0]",
            '[3.0, "x"]',
            "[3.0, NaN]",
            "[3.0, -4.0]",
            "[0, 0]",
        )
    ),
)


class CostsTest(tf.test.TestCase, parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.cache = self.create_tempdir().full_path
        patch = mock.patch.dict(os.environ, XDG_CACHE_HOME=self.cache)
        patch.start()
        self.addCleanup(patch.stop)

    def test_params(self):
        counts = costs.params(_work(5, 7, 3))
        self.assertEqual(counts, [16 * 5 + 5, 5 * 7 + 7, 7 * 3 + 3])

    def test_flops_forward_and_backward(self):
        # One product forward; backward one for the kernel and, except in the first
        # layer, one for x.
        counts = costs.flops(_work(5, 7, 3))
        self.assertEqual(
            counts, [8 * 2 * n for n in (2 * 16 * 5, 3 * 5 * 7, 3 * 7 * 3)]
        )

    def test_time_is_that_of_the_work(self):
        times = costs.measure(_work(4, 2048, 4))
        self.assertLen(times, 3)
        self.assertTrue(all(seconds > 0 for seconds in times))

    def test_time_is_kept(self):
        with mock.patch.object(costs, "measure", return_value=[1.0, 2.0]) as measure:
            self.assertEqual(costs.time(_work(4, 3)), [1.0, 2.0])
            self.assertEqual(costs.time(_work(4, 3)), [1.0, 2.0])
            self.assertEqual(measure.call_count, 1)
            costs.time(_work(5, 3))  # another model
            self.assertEqual(measure.call_count, 2)
        folder = os.path.join(self.cache, "towers", "block_times")
        kept = [json.load(open(os.path.join(folder, n))) for n in os.listdir(folder)]
        self.assertEqual(kept[0], {"blocks": ["b0", "b1"], "seconds": [1.0, 2.0]})

    def test_a_file_that_cannot_be_read_is_measured_again(self):
        with mock.patch.object(costs, "measure", return_value=[1.0, 2.0]) as measure:
            costs.time(_work(4, 3))
            folder = os.path.join(self.cache, "towers", "block_times")
            [name] = os.listdir(folder)
            for damaged in _DAMAGED:
                with open(os.path.join(folder, name), "w") as file:
                    file.write(damaged)
                self.assertEqual(costs.time(_work(4, 3)), [1.0, 2.0])
        self.assertEqual(measure.call_count, 1 + len(_DAMAGED))

    @parameterized.parameters(
        ("flops", (1, 4)),  # the first block has most of the work
        ("params", (1, 4)),
    )
    def test_a_cut_follows_the_costs(self, balance, cut):
        task = _task(64, 4, 4, 3, stages=2, balance=balance)
        where = placement.local(2, kind="cpu", num_stages=2)
        cut_tower = costs.with_cut(task, _FEATURES, _LABELS, where)
        self.assertEqual(cut_tower.pipeline.cut, cut)

    @parameterized.parameters(
        (dict(stages=5), r"Pipeline\(stages=5, chunks=1\) has 5 pieces, and test is a"),
        (
            dict(stages=2, schedule="interleaved", chunks=2),
            r"Pipeline\(stages=2, chunks=2\) has 4 pieces, and test is a chain of 3",
        ),
        (dict(stages=2, cut=(1, 2)), r"Pipeline.cut is \(1, 2\), and test is a chain"),
        (dict(stages=2, cut=(1, 9)), r"Pipeline.cut is \(1, 9\), and test is a chain"),
        (dict(stages=2, balance="bytes"), "Pipeline.balance is 'bytes', and must be"),
    )
    def test_a_cut_of_another_model(self, how, sentence):
        where = placement.local(2, kind="cpu", num_stages=2)
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            costs.with_cut(_task(4, 4, 3, **how), _FEATURES, _LABELS, where)

    def test_a_cut_that_is_given_stays(self):
        task = _task(4, 4, 3, stages=2, cut=(2, 3))
        where = placement.local(2, kind="cpu", num_stages=2)
        self.assertIs(costs.with_cut(task, _FEATURES, _LABELS, where), task)
        whole = _task(4, 3)
        self.assertIs(costs.with_cut(whole, _FEATURES, _LABELS, where), whole)

    @parameterized.parameters("flops", "params")
    def test_a_spread_classifier_is_no_block_s(self, balance):
        """Its part is on every stage, so the other blocks alone are to be balanced."""
        spread = dataclasses.replace(
            _task(64, 64, 64, 5000, stages=2, balance=balance),
            num_classes=5000,
            shards=Shards(2),
        )
        where = placement.local(2, kind="cpu", num_stages=2)
        whole = costs.with_cut(
            dataclasses.replace(spread, shards=None), _FEATURES, _LABELS, where
        )
        self.assertEqual(whole.pipeline.cut, (3, 4))
        plain = dataclasses.replace(spread, pipeline=None)
        work = costs.TowerToCut(plain, _BATCH, where)
        *others, last = costs.COSTS[balance](work)
        self.assertEqual(last, 0.0)
        unsharded = dataclasses.replace(
            work, task=dataclasses.replace(plain, shards=None)
        )
        self.assertEqual(others, costs.COSTS[balance](unsharded)[:-1])
        cut_tower = costs.with_cut(spread, _FEATURES, _LABELS, where)
        self.assertEqual(cut_tower.pipeline.cut, (2, 4))

    def test_the_time_of_a_block_that_is_spread_is_that_of_the_rest(self):
        task = dataclasses.replace(_task(5, 7, 3), shards=Shards(2))
        where = placement.local(2, kind="cpu", num_stages=2)
        work = costs.TowerToCut(task, _BATCH, where)
        with mock.patch.object(costs, "measure", return_value=[1.0, 2.0, 4.0]):
            self.assertEqual(costs.time(work), [1.0, 2.0, 0.0])

    def test_every_block_a_stage_needs_no_costs(self):
        task = _task(4, 4, 3, stages=3, balance="time")
        where = placement.local(3, kind="cpu", num_stages=3)
        cut_tower = costs.with_cut(task, _FEATURES, _LABELS, where)
        self.assertEqual(cut_tower.pipeline.cut, (1, 2, 3))

    def test_every_cost_is_tested(self):
        self.assertEqual(list(costs.COSTS), ["flops", "params", "time"])
        self.assertIn(costs.AUTO, costs.COSTS)
