"""The plan of a pipeline."""

from unittest import mock

from absl.testing import parameterized

from towers.layout import schedule
from towers.layout.schedule import Pass
from towers.layout.stages import RECOMPUTE, Pipeline


class PipelineTest(parameterized.TestCase):
    @parameterized.parameters(("gpipe", 1), ("1f1b", 1), ("interleaved", 2))
    def test_order_is_that_of_the_schedule(self, name, chunks):
        pipeline = Pipeline(stages=2, micro_batches=4, schedule=name, chunks=chunks)
        wanted = schedule.SCHEDULES[name].order(2, 4, chunks)
        self.assertEqual(pipeline.order(), wanted)

    def test_an_order_is_plain_data(self):
        """As a user's schedule may have it."""
        row = schedule.PipelineSchedule(
            lambda *sizes: (map(tuple, passes) for passes in schedule.gpipe(*sizes))
        )
        with mock.patch.dict(schedule.SCHEDULES, plain=row):
            order = Pipeline(2, 4, "plain").order()
        self.assertEqual(order, schedule.gpipe(2, 4))
        self.assertTrue(
            all(
                isinstance(pass_, Pass)
                for stage_passes in order
                for pass_ in stage_passes
            )
        )

    def test_evaluation_goes_forward_only(self):
        order = Pipeline(stages=2, micro_batches=4).order(training=False)
        self.assertEqual(order, schedule.forward_only(2, 4))

    @parameterized.parameters(
        (lambda order: order[:1], "stage 1 does not run forward of micro-batch 0 "),
        (
            # No stage waits for the last micro-batch to return.
            lambda order: [order[0][:-1], order[1]],
            "stage 0 does not run backward of micro-batch 3 through chunk 0",
        ),
        (lambda order: order[::-1], "stage 0 does not run forward of micro-batch 0 "),
        (
            lambda order: [order[0], [*order[1], Pass(1, 4)]],
            "stage 1 runs forward of micro-batch 4 through chunk 1, which it is not",
        ),
    )
    def test_every_stage_runs_its_passes(self, change, sentence):
        row = schedule.PipelineSchedule(lambda *sizes: change(schedule.gpipe(*sizes)))
        with (
            mock.patch.dict(schedule.SCHEDULES, changed=row),
            self.assertRaisesRegex(
                schedule.ScheduleError, f"^schedule changed: {sentence}"
            ),
        ):
            Pipeline(2, 4, "changed").order()

    @parameterized.parameters(
        (dict(stages=0), "Pipeline.stages is 0, and must be at least 1 and below"),
        (dict(micro_batches=2.5), "Pipeline.micro_batches is 2.5, and must be a whole"),
        (dict(chunks=0), "Pipeline.chunks is 0, and must be at least 1 and below"),
        (dict(schedule="zigzag"), "Pipeline.schedule is 'zigzag', and must be one of"),
        (dict(recompute="all"), "Pipeline.recompute is 'all', and must be one of none"),
        (dict(memory_limit=-5), "Pipeline.memory_limit is -5, and must be at least 0"),
        (dict(chunks=2), "Pipeline.chunks is 2, and must be 1 with schedule 1f1b"),
        (dict(cut=("a",)), r"Pipeline.cut is \('a',\), and must be \(a whole number"),
        *(
            (
                dict(stages=2, cut=cut),
                r"Pipeline.cut is \(.*, and must be the ends of 2",
            )
            for cut in ((4,), (1, 2, 4), (4, 4), (0, 4), (3, 2))
        ),
    )
    def test_pipelines_that_there_are_not(self, fields, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            Pipeline(**fields)

    @parameterized.parameters((8, 4, 4), (6, 4, 2), (7, 4, 1), (16, 4, 4))
    def test_micro_batches_divide_the_batch(self, batch_size, asked, wanted):
        pipeline = Pipeline(stages=2, micro_batches=asked).for_batch(batch_size)
        self.assertEqual(pipeline, Pipeline(stages=2, micro_batches=wanted))

    def test_every_way_to_recompute_is_described(self):
        self.assertEqual(list(RECOMPUTE), ["none", "stage", "block", "auto"])
