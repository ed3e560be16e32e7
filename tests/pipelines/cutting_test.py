"""Flags of stages become a pipeline, or an error that says what is wrong."""

from absl.testing import parameterized

import models
from flags import stages
from tests import trainer
from towers import graph
from towers.errors.collected import PlanError
from towers.layout import placement
from towers.layout.stages import Pipeline
from towers.pipelines import cutting
from towers.pipelines.costs import COSTS


def _plan(batch_size=32, **flags):
    return cutting.plan(stages.StagesFlags(**flags), models.get("lenet"), batch_size)


class CuttingTest(parameterized.TestCase):
    def test_whole_towers_have_no_pipeline(self):
        self.assertIsNone(_plan())

    @parameterized.parameters(
        dict(num_stages=2), dict(num_micro_batches=2), dict(recompute="block")
    )
    def test_each_of_the_settings_makes_a_pipeline(self, **flags):
        self.assertIsInstance(_plan(**flags), Pipeline)

    def test_settings_arrive(self):
        pipeline = _plan(
            num_stages=2,
            num_micro_batches=4,
            schedule="interleaved",
            recompute="stage",
            partition="params",
        )
        self.assertEqual(
            pipeline, Pipeline(2, 4, "interleaved", 2, (), "stage", "params")
        )

    def test_the_memory_limit_is_in_megabytes(self):
        pipeline = _plan(num_stages=2, recompute="auto", memory_limit=3)
        self.assertEqual(pipeline.memory_limit, 3_000_000)

    def test_chunks_are_for_the_schedule_that_interleaves(self):
        self.assertEqual(_plan(num_stages=2, schedule="gpipe").chunks, 1)

    def test_auto_is_what_is_measured(self):
        self.assertEqual(_plan(num_stages=2).balance, "time")
        for name in COSTS:
            self.assertEqual(_plan(num_stages=2, partition=name).balance, name)

    def test_a_cut_by_names(self):
        pipeline = _plan(num_stages=3, partition="conv1, dense")
        self.assertEqual(pipeline.cut, (1, 3, 4))

    @parameterized.parameters(
        (
            (6, 4),
            "num_gpus=6: is not a multiple of num_stages=4; write num_gpus=4 or "
            "8, or num_stages=1 or 2 or 3 or 6",
        ),
        (
            (1, 4),
            "num_gpus=1: is not a multiple of num_stages=4; write num_gpus=4, or "
            "num_stages=1",
        ),
        (
            (3, 4, 2),
            "num_gpus=3: of 2 workers is not a multiple of num_stages=4; write "
            "num_gpus=2 or 4, or num_stages=1 or 2 or 3 or 6",
        ),
    )
    def test_devices_that_make_no_towers(self, numbers, sentence):
        with self.assertRaises(ValueError) as caught:
            cutting.check_devices(*numbers)
        self.assertEqual(str(caught.exception), sentence)

    @parameterized.parameters(
        (2**31 - 1, "write 1$"),  # a prime number
        (2**20, "write 1, 2, 4, 8, 16, 32, 64 or 128$"),
    )
    def test_micro_batches_of_huge_batches(self, batch_size, sentence):
        flags, model = stages.StagesFlags(num_micro_batches=7), models.get("lenet")
        with self.assertRaisesRegex(ValueError, f"batch of {batch_size}; {sentence}"):
            cutting.plan(flags, model, batch_size)

    def test_devices_that_make_towers(self):
        for numbers in ((4, 2), (1, 1), (1, 2, 2), (3, 2, 2), (2, 4, 2)):
            cutting.check_devices(*numbers)

    def test_what_is_not_timed(self):
        flags, model = stages.StagesFlags(num_stages=2), models.get("lenet")
        self.assertEqual(cutting.plan(flags, model, 8, timed=False).balance, "flops")
        timed = stages.StagesFlags(num_stages=2, partition="time")
        with self.assertRaisesRegex(ValueError, "^partition=time: .*=flops"):
            cutting.plan(timed, model, 8, timed=False)

    def test_all_that_is_wrong_is_told_at_once(self):
        with self.assertRaises(PlanError) as caught:
            _plan(num_stages=2, partition="conv3", num_micro_batches=5)
        blocks, batch = caught.exception.errors
        self.assertStartsWith(blocks, "--partition=conv3: ")
        self.assertStartsWith(batch, "--num_micro_batches=5: ")
        # the required number is given wrongly
        with self.assertRaises(PlanError) as caught:
            _plan(num_stages=5, partition="conv1,conv2")
        self.assertLen(caught.exception.errors, 1)

    @parameterized.parameters(
        (dict(num_stages=5), "chain of 4 blocks, too few for 5 .*num_stages=4 or"),
        (
            dict(num_stages=3, schedule="interleaved"),
            "too few for 3 stages of 2 chunks each; write num_stages=2 or fewer",
        ),
        (
            dict(num_stages=2, schedule="interleaved", chunks_per_stage=5),
            "of 5 chunks each; write chunks_per_stage=2$",
        ),
        (  # a single stage cannot be interleaved
            dict(num_stages=3, schedule="interleaved", chunks_per_stage=4),
            "of 4 chunks each; write schedule=1f1b, without chunks_per_stage$",
        ),
        (
            dict(num_stages=6, schedule="interleaved", chunks_per_stage=4),
            "write schedule=1f1b and num_stages=4 or fewer, without chunks_per",
        ),
        (
            dict(num_micro_batches=5),
            "num_micro_batches=5: does not divide a tower's batch of 32; write 1, 2, "
            "4, 8, 16 or 32",
        ),
        (
            dict(num_stages=2, partition="conv3"),
            "partition=conv3: cannot cut after 'conv3'; cut after some of conv1, "
            "conv2, dense; or write auto, flops, params, time",
        ),
        (
            dict(num_stages=3, partition="conv1"),
            "3 pieces need 2 of conv1, conv2, dense",
        ),
    )
    def test_what_cannot_be_cut(self, flags, sentence):
        with self.assertRaisesRegex(ValueError, sentence):
            _plan(**flags)


class FitTest(parameterized.TestCase):
    @parameterized.parameters(
        (Pipeline(2, 3), 2, "Pipeline.micro_batches is 3, and does not divide .* of 8"),
        (Pipeline(2, 4), 1, "each tower of the placement has 1 of the .* ask for 2"),
        (Pipeline(2, 4), 4, "each tower of the placement has 4 of the .* ask for 2"),
        (None, 2, "each tower of the placement has 2 of the .* ask for 1"),
    )
    def test_the_pipeline_and_the_placement(self, how, num_stages, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            graph.build(
                trainer.dense_model(),
                trainer.random_source(),
                trainer.MOMENTUM,
                placement=placement.local(4, kind="cpu", num_stages=num_stages),
                options=graph.Options(batch_size=8, pipeline=how),
            )
