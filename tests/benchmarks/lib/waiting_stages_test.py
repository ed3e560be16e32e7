"""The benchmark of schedules, on stages that only wait."""

import contextlib
import io

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import pipelines
from benchmarks.lib import waiting_stages
from towers.layout.stages import Pipeline


class WaitingStagesTest(tf.test.TestCase, parameterized.TestCase):
    def test_stages_wait_side_by_side(self):
        cut = (2, 4, 6, 8)
        one_stage = Pipeline(1, 4, "1f1b", 1, (8,))
        four = Pipeline(4, 4, "1f1b", 1, cut)
        alone = waiting_stages.speed_up(one_stage, seconds=0.01, steps=2)
        speed_up = waiting_stages.speed_up(four, seconds=0.01, steps=2)
        # 4 x 4 / 7 = 2.29 is the most; less on a busy machine.
        self.assertBetween(alone, 0.2, 1.0)
        self.assertBetween(speed_up, 1.05, 2.29)

    def test_every_pipeline_that_the_blocks_can_make(self):
        variants = waiting_stages.pipelines([2, 3, 8], [1, 4])
        self.assertLen(variants, 3 * 2 * 3)
        for how in variants:
            pieces = how.stages * how.chunks
            self.assertLen(how.cut, pieces)
            sizes = {after - before for before, after in zip((0, *how.cut), how.cut)}
            self.assertEqual(sizes, {max(1, waiting_stages.BLOCKS // pieces)})

    def test_rows_are_beside_the_ideal(self):
        how = Pipeline(4, 8, "gpipe", 1, (2, 4, 6, 8))
        self.assertEqual(
            waiting_stages.row(how, 2.5).split(),
            ["gpipe", "4", "8", "2.91", "2.50", "0.859"],
        )

    def test_the_command_prints_a_table(self):
        output = io.StringIO()
        size = ["--stages=2", "--micro_batches=2", "--wait_ms=1", "--steps=1"]
        with contextlib.redirect_stdout(output):
            pipelines.main(["schedules", *size])
        lines = output.getvalue().splitlines()
        self.assertLen([line for line in lines if line.startswith("1f1b")], 1)
        self.assertIn("smallest share", lines[-1])
