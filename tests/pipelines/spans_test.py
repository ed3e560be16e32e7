"""Passes are found in the trace of a step."""

import itertools

import tensorflow as tf

from tests import trainer
from towers.layout.schedule import Pass
from towers.layout.stages import Pipeline
from towers.pipelines import spans


class SpansTest(tf.test.TestCase):
    def test_every_pass_of_every_tower_in_its_order(self):
        how = Pipeline(stages=2, micro_batches=2, cut=(1, 2))
        training = trainer.Trainer(towers=2, batch_size=4, pipeline=how).start()
        metadata = tf.compat.v1.RunMetadata()
        training.session.run(
            training.train.train_op, options=spans.traced(), run_metadata=metadata
        )
        all_spans = spans.of_step(metadata)
        self.assertEqual({span.scope for span in all_spans}, {"tower_0", "tower_1"})
        for scope in ("tower_0", "tower_1"):
            for stage, passes in enumerate(how.order()):
                tower_spans = [
                    s for s in all_spans if (s.scope, s.stage) == (scope, stage)
                ]
                self.assertEqual([span.what for span in tower_spans], list(passes))
                for before, span in itertools.pairwise(tower_spans):
                    self.assertLessEqual(before.end, span.begin)
        self.assertEqual(all_spans[0].begin, 0.0)
        self.assertTrue(all(span.end > span.begin for span in all_spans))

    def test_legs_and_their_steps_on_other_devices(self):
        metadata = tf.compat.v1.RunMetadata()
        device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
        of = "tower_3/stage_1/micro_batch_2"
        for name, begin in (("backward_5_leg_4", 7), ("forward_5_leg_1/step_2", 3)):
            device.node_stats.add(
                node_name=f"{of}/{name}/PartitionedCall",
                all_start_micros=begin,
                all_end_rel_micros=2,
            )
        all_spans = spans.of_step(metadata)
        self.assertEqual(
            [(span.scope, span.stage, span.what) for span in all_spans],
            [("tower_3", 1, Pass(5, 2, False, 1)), ("tower_3", 1, Pass(5, 2, True, 4))],
        )

    def test_a_step_without_stages_has_none(self):
        self.assertEqual(spans.of_step(tf.compat.v1.RunMetadata()), [])
