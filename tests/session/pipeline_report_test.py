"""The report on a step's stages, from made-up and from real traces."""

import json
import os
import xml.etree.ElementTree

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.errors.side_outputs import SideOutputs
from towers.layout.schedule import SCHEDULES, Pass, simulate
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.pipelines import spans
from towers.pipelines.spans import TowerSpan
from towers.session import pipeline_report
from towers.session.pipeline_report import PipelineReport, ReportPipeline, StageUse

v1 = tf.compat.v1


def _wide_model():
    """Two equal stages whose activations are the memory that counts."""

    def wide(x, nn):
        return tf.reshape(tf.tanh(nn.dense(nn.flatten(x), 64)), [x.shape[0], 64])

    def spread(x, nn):
        return tf.tanh(wide(x, nn)[:, :, None] * tf.ones([1, 1, 256]))

    def join(x, nn):
        return nn.dense(tf.reduce_mean(tf.tanh(x * 2.0), 2), nn.num_classes)

    return trainer.model_of(spread, join)


def _made(how, towers=1, batch_size=16):
    return trainer.Trainer(
        _wide_model(), towers=towers, batch_size=batch_size, pipeline=how
    ).start()


def _traced(training):
    training.steps(2)
    metadata = v1.RunMetadata()
    fetched = [training.train.train_op, training.train.loss]
    training.session.run(fetched, options=spans.traced(), run_metadata=metadata)
    return metadata


class NumbersTest(parameterized.TestCase):
    def _report(self, *busy, seconds=10.0, stages=2, micro_batches=4, chunks=1):
        uses = [
            StageUse("tower_0", k, f"d{k}", ("a",), index, 2_000_000)
            for k, index in enumerate(busy)
        ]
        return PipelineReport(uses, seconds, stages, micro_batches, chunks)

    def test_bubble_beside_that_of_equal_stages(self):
        report = self._report(8.0, 4.0)
        self.assertAlmostEqual(report.bubble, 0.4)
        self.assertAlmostEqual(report.ideal_bubble, 1 / 5)
        self.assertAlmostEqual(report.imbalance, 8 / 6)
        self.assertEqual(report.enough, 19)
        interleaved = self._report(8.0, 4.0, chunks=2)
        self.assertAlmostEqual(interleaved.ideal_bubble, 1 / 9)

    def test_lines(self):
        first, stage, *_, last = pipeline_report.lines(self._report(8.0, 4.0), 7)
        self.assertEqual(
            first,
            "Pipeline in step 7: bubble 40.0 %; equal stages would have 20.0 % (K = 2, "
            "M = 4)",
        )
        self.assertEqual(
            stage, "  tower_0 stage 0 on d0: busy 8000.00 ms (80.0 %), peak 2.00 MB: a"
        )
        self.assertIn("imbalance 1.33", last)
        self.assertEndsWith(
            last,
            "num_micro_batches=19 on; these at most 75 %, as the busiest sets the pace",
        )
        *_, last = pipeline_report.lines(self._report(8.0, 8.0), 7)
        self.assertEndsWith(last, "num_micro_batches=19 on")
        *_, last = pipeline_report.lines(self._report(8.0, 8.0, chunks=2), 7)
        self.assertEndsWith(last, "num_micro_batches=10 on, in multiples of 2")

    def test_what_times_are_of_on_gpus(self):
        report = self._report(8.0, 4.0)
        stages = [use._replace(device="/device:GPU:0") for use in report.stages]
        *_, last = pipeline_report.lines(report._replace(stages=stages), 7)
        self.assertEqual(
            last, "  times are of launching the kernels, which GPUs run later"
        )

    def test_unequal_stages_are_no_busier_than_the_busiest_lets_them(self):
        """However many micro-batches, in the schedule's own arithmetic."""
        times = (3.0, 1.0)
        report = self._report(*times)
        for name in ("gpipe", "1f1b"):
            order = SCHEDULES[name].order(2, 400, 1)
            ran = simulate(order, lambda pass_: times[pass_.chunk])
            busy = 400 * sum(times) / max(span.end for span in ran)
            self.assertLessEqual(busy, report.most_busy)
            self.assertAlmostEqual(busy, report.most_busy, places=2)
        self.assertEqual(pipeline_report.facts(report, 7)["most_busy"], 2 / 3)

    def test_where_micro_batches_meet(self):
        report = self._report(8.0, 4.0)._replace(meeting=0.5)
        self.assertEqual(report.ideal_bubble, 0.5)
        self.assertIsNone(report.enough)
        first, *_, last = pipeline_report.lines(report, 7)
        self.assertIn("would have 50.0 % (K = 2, M = 4, with the waits at", first)
        self.assertIn("with no number of micro-batches", last)
        self.assertIsNone(pipeline_report.facts(report, 7)["enough_micro_batches"])
        alone = self._report(8.0, stages=1)._replace(meeting=1.0)
        self.assertEqual(alone.enough, 1)

    def test_peak_is_the_most_at_a_time(self):
        metadata = v1.RunMetadata()
        device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
        for at, size in ((1, 100), (2, 50), (3, -100), (3, 70), (5, -120)):
            memory = device.node_stats.add().memory.add()
            memory.allocation_records.add(alloc_micros=at, alloc_bytes=size)
        self.assertEqual(pipeline_report.peak_bytes(metadata), {"/device:CPU:0": 150})

    def _bars(self, all_spans, num_stages):
        chart = pipeline_report.gantt(all_spans, "a < b", num_stages)
        root = xml.etree.ElementTree.fromstring(chart)
        return root.findall("{http://www.w3.org/2000/svg}rect")

    def test_each_chunk_of_a_stage_has_its_shade(self):
        all_spans = [
            TowerSpan("tower_0", 0, Pass(chunk, 0, backward), at, at + 1.0)
            for at, (chunk, backward) in enumerate(
                [(0, False), (1, False), (2, False), (2, True), (1, True), (0, True)]
            )
        ]
        bars = self._bars(all_spans, 1)
        self.assertLen({bar.get("fill") for bar in bars}, 6)
        self.assertEqual(
            bars[0].get("fill"), self._bars(all_spans[:1], 1)[0].get("fill")
        )
        self.assertLen({bar.get("fill") for bar in self._bars(all_spans, 3)}, 2)

    def test_chart_has_a_bar_for_each_pass(self):
        all_spans = [
            TowerSpan("tower_0", 0, Pass(0, 0), 0.0, 1.0),
            TowerSpan("tower_0", 1, Pass(1, 0), 1.0, 2.0),
            TowerSpan("tower_0", 1, Pass(1, 0, True), 2.0, 4.0),
        ]
        bars = self._bars(all_spans, 2)
        self.assertEqual(
            [(float(b.get("x")), float(b.get("width"))) for b in bars],
            [(130.0, 250.0), (380.0, 250.0), (630.0, 500.0)],
        )
        self.assertLen({bar.get("fill") for bar in bars}, 2)
        events = pipeline_report.chrome_events(all_spans)
        self.assertEqual(
            [(e["tid"], e["dur"]) for e in events if e["ph"] == "X"],
            [(0, 1e6), (1, 1e6), (1, 2e6)],
        )


class StepTest(tf.test.TestCase, parameterized.TestCase):
    def _peaks(self, how):
        report, _ = pipeline_report.analyse(*self._step(how))
        return [use.peak_bytes for use in report.stages]

    def _step(self, how, **options):
        training = _made(how, **options)
        return training.train, _traced(training)

    def test_a_real_step(self):
        how = Pipeline(2, 4, "1f1b", cut=(1, 2))
        report, all_spans = pipeline_report.analyse(*self._step(how, towers=2))
        self.assertLen(all_spans, 2 * 2 * 2 * 4)
        self.assertEqual(
            [(use.scope, use.stage, use.blocks) for use in report.stages],
            [
                (scope, stage, blocks)
                for scope in ("tower_0", "tower_1")
                for stage, blocks in enumerate([("spread",), ("join",)])
            ],
        )
        for use in report.stages:
            self.assertBetween(use.busy, 1e-9, report.seconds)
        self.assertBetween(report.bubble, 0.0, 1.0)

    def test_passes_at_one_time_keep_a_stage_busy_once(self):
        training = _made(Pipeline(1, 2, "gpipe", cut=(2,)))
        metadata = v1.RunMetadata()
        device = metadata.step_stats.dev_stats.add(device="/device:CPU:0")
        for m, begin, lasts in ((0, 100, 50), (1, 120, 10), (0, 140, 40), (1, 190, 10)):
            device.node_stats.add(
                node_name=f"tower_0/stage_0/micro_batch_{m}/forward_0/PartitionedCall",
                all_start_micros=begin,
                all_end_rel_micros=lasts,
            )
        report, _ = pipeline_report.analyse(training.train, metadata)
        self.assertAlmostEqual(report.stages[0].busy, 90e-6)
        self.assertAlmostEqual(report.bubble, 0.1)

    def test_devices_that_only_have_parts_are_no_stages(self):
        training = trainer.Trainer(
            _wide_model(),
            pipeline=Pipeline(1, 2, cut=(2,)),
            shards=Shards(classifier=2),
        ).start()
        report, all_spans = pipeline_report.analyse(training.train, _traced(training))
        self.assertEqual([use.blocks for use in report.stages], [("spread", "join")])
        self.assertEqual([use.blocks for use in report.beside], [()])
        self.assertEqual(report.imbalance, 1.0)
        self.assertBetween(report.bubble, 0.0, 0.9)
        *_, line, _ = pipeline_report.lines(report, 2)
        self.assertRegex(line, "^  tower_0 on /device:CPU:1: .*: its part of what is")
        chart = pipeline_report.gantt(all_spans, "", report.num_stages)
        self.assertIn("tower_0 stage 0<", chart)
        self.assertIn("tower_0 device 1<", chart)

    def test_memory_is_what_the_schedule_and_recomputation_make_it(self):
        """The first stage keeps a micro-batch's 2 x 64 x 256 floats till it is back."""
        activation = 2 * 64 * 256 * 4
        gpipe = self._peaks(Pipeline(2, 8, "gpipe", cut=(1, 2)))
        alternating = self._peaks(Pipeline(2, 8, "1f1b", cut=(1, 2)))
        again = self._peaks(Pipeline(2, 8, "gpipe", cut=(1, 2), recompute="stage"))
        self.assertGreater(gpipe[0], 8 * activation)
        self.assertLess(alternating[0], 6 * activation)
        self.assertLess(alternating[0], 0.7 * gpipe[0])
        self.assertLess(again[0] + again[1], gpipe[0] + gpipe[1])

    @parameterized.parameters(("tower", 1), ("sync", 2), ("micro_batch", 1))
    def test_batch_norms_that_meet(self, batch_norm, towers):
        def first(x, nn):
            return nn.batch_norm(nn.conv(x, 2, 3))

        def last(x, nn):
            return nn.dense(nn.flatten(nn.batch_norm(x)), nn.num_classes)

        training = trainer.Trainer(
            trainer.model_of(first, last),
            towers=towers,
            pipeline=Pipeline(2, 4, "gpipe", cut=(1, 2)),
            batch_norm=batch_norm,
        ).start()
        report, _ = pipeline_report.analyse(training.train, _traced(training))
        if batch_norm == "micro_batch":
            self.assertAlmostEqual(report.ideal_bubble, 1 / 5)
            self.assertEqual(report.enough, 19)
        else:  # M L / (M L + (K - 1) ((L - 1) M + 1)) with L = 2
            self.assertAlmostEqual(report.ideal_bubble, 1 - 8 / 13)
            self.assertIsNone(report.enough)
        self.assertBetween(report.bubble, 0.0, 1.0)

    def test_files(self):
        folder = os.path.join(self.create_tempdir(), "new")
        training = _made(Pipeline(2, 2, "gpipe", cut=(1, 2)))
        said = []
        hook = ReportPipeline(
            training.train, folder, step=2, console=said.append, side=SideOutputs()
        )
        training.steps(3, [hook])
        self.assertIn("Pipeline in step 2", said[0])
        self.assertLen(said, 4)
        with open(os.path.join(folder, "report.json")) as file:
            facts = json.load(file)
        self.assertEqual((facts["step"], facts["num_micro_batches"]), (2, 2))
        self.assertLen(facts["stages"], 2)
        with open(os.path.join(folder, "passes.json")) as file:
            events = json.load(file)["traceEvents"]
        self.assertLen([e for e in events if e["ph"] == "X"], 8)
        xml.etree.ElementTree.parse(os.path.join(folder, "gantt.svg"))
