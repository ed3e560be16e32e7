"""The plan of a pipeline."""

from absl.testing import absltest, parameterized

from towers.layout import schedule
from towers.layout.stages import RECOMPUTE, Pipeline


class PipelineTest(parameterized.TestCase):
    @parameterized.parameters(("gpipe", 1), ("1f1b", 1), ("interleaved", 2))
    def test_order_is_that_of_the_schedule(self, name, chunks):
        pipeline = Pipeline(stages=2, micro_batches=4, schedule=name, chunks=chunks)
        wanted = schedule.SCHEDULES[name].order(2, 4, chunks)
        self.assertEqual(pipeline.order(), wanted)

    def test_evaluation_goes_forward_only(self):
        order = Pipeline(stages=2, micro_batches=4).order(training=False)
        self.assertEqual(order, schedule.forward_only(2, 4))

    @parameterized.parameters((8, 4, 4), (6, 4, 2), (7, 4, 1), (16, 4, 4))
    def test_micro_batches_divide_the_batch(self, batch_size, asked, found):
        pipeline = Pipeline(stages=2, micro_batches=asked).for_batch(batch_size)
        self.assertEqual(pipeline, Pipeline(stages=2, micro_batches=found))

    def test_every_way_to_recompute_is_described(self):
        self.assertEqual(list(RECOMPUTE), ["none", "stage", "block", "auto"])


if __name__ == "__main__":
    absltest.main()
