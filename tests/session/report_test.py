"""Lines in tf_cnn_benchmarks' formats; JSON files in the documented schema."""

import json
import math
import os
import re

import numpy as np
import tensorflow as tf

from towers.errors.side_outputs import SideOutputs
from towers.session import report


class ReportTest(tf.test.TestCase):
    def test_header(self):
        rows = [("Model", "lenet"), ("Batch size", "128 global\n32 per device")]
        self.assertEqual(
            report.header(rows),
            [
                "Model:       lenet",
                "Batch size:  128 global",
                "             32 per device",
                "==========",
            ],
        )

    def test_step_line_parses_as_tf_cnn_benchmarks_writes_it(self):
        line = report.step_line(10, (228.43, 0.31, 1.14), 7.8571, (0.002, 0.01))
        self.assertEqual(
            line, "10\timages/sec: 228.4 +/- 0.3 (jitter = 1.1)\t7.857\t0.002\t0.010"
        )

    def test_total_and_evaluation_lines(self):
        self.assertIn("total images/sec: 228.35", report.total_lines(228.349))
        means = {"top_1_accuracy": 0.76012, "loss": 2.0, "top_5_accuracy": 0.93006}
        line = report.evaluation_line(means, 50000)
        self.assertEqual(
            line, "Accuracy @ 1 = 0.7601 Accuracy @ 5 = 0.9301 [50000 examples]"
        )

    def test_utilization_is_a_share_or_unknown(self):
        line = report.utilization_line(2000.0, 6e6, 48e9)
        self.assertEqual(
            line, "MFU: 25.0 % (12.0 of 48 GFLOP/s measured; 6.0 MFLOP per image)"
        )
        line = report.utilization_line(2000.0, 6e6, 10e9)
        self.assertRegex(line, r"^MFU: unknown, .* \(12.0 of 10 GFLOP/s measured; ")
        line = report.utilization_line(1.0, 6e6, 6e6, unit=report.Unit("tokens", 2))
        self.assertRegex(line, r"^MFU: 100.0 % .*; 3.0 MFLOP per token\)$")

    def test_lines_of_models_that_read_no_images(self):
        unit = report.Unit("tokens", 64)
        self.assertEqual(
            report.step_title("total_loss", unit=unit), "Step\tTokens/sec\ttotal_loss"
        )
        line = report.step_line(10, (640.0, 0.31, 1.14), 2.5, unit=unit)
        self.assertEqual(line, "10\ttokens/sec: 640.0 +/- 0.3 (jitter = 1.1)\t2.500")
        self.assertIn("total tokens/sec: 64.00", report.total_lines(64, unit=unit))

    def test_evaluation_lines_without_accuracies(self):
        means = {"loss": 0.5, "bits_per_character": 0.72135, "perplexity": 1.6487}
        self.assertEqual(
            report.evaluation_line(means, 7),
            "bits_per_character = 0.7214 perplexity = 1.6487 [7 examples]",
        )
        self.assertEqual(
            report.evaluation_line({"loss": 0.5}, 7), "loss = 0.5000 [7 examples]"
        )

    def test_speed(self):
        speed = report.Speed(10)
        for seconds in (0.1, 0.2, 0.1, 0.1):
            speed.add(seconds)
        mean, uncertainty, jitter = speed.statistics()
        self.assertAlmostEqual(mean, 10 / 0.125)
        self.assertAlmostEqual(uncertainty, np.std([100, 50, 100, 100]) / 2)
        self.assertEqual(jitter, 0)
        speed.add(0.4, steps=4)
        self.assertLen(speed, 8)

    def test_speed_of_late_steps_counts_more(self):
        """As numpy computes tf_cnn_benchmarks' weights of all steps' times."""
        times = np.array([0.5, 0.1, 0.4, 0.2, 0.2, 0.2, 0.3])
        for ewma in (0.01, 0.5, 0.9, 1.0):
            single, together = report.Speed(10, ewma=ewma), report.Speed(10, ewma=ewma)
            for seconds in times:
                single.add(seconds)
            for seconds, steps in ((0.5, 1), (0.1, 1), (0.4, 1), (0.6, 3), (0.3, 1)):
                together.add(seconds, steps)
            weights = (1 - ewma) ** np.arange(len(times) - 1, -1, -1)
            wanted = 10 / np.average(times, weights=weights)
            for speed in (single, together):
                self.assertAlmostEqual(speed.statistics()[0], wanted)
            spread = np.std(10 / times) / np.sqrt(len(times))
            self.assertAlmostEqual(single.statistics()[1], spread)

    def test_speeds_are_taken_over_the_least_time(self):
        speed = report.Speed(10, least=0.15)
        for seconds, steps in ((1e-6, 1), (0.1, 1), (0.1, 2), (1e-6, 1), (0.2, 3)):
            speed.add(seconds, steps)
        self.assertLen(speed, 8)
        mean, uncertainty, _ = speed.statistics()
        self.assertAlmostEqual(mean, 200, delta=0.01)  # short times are joined
        self.assertLess(uncertainty, 1e-3)
        short = report.Speed(10, least=0.15)
        short.add(0.1, 2)
        self.assertAlmostEqual(short.statistics()[0], 200)

    def test_the_jitter_is_that_of_the_latest_steps(self):
        speed = report.Speed(10)
        speed.add(0.1 * 100_000, steps=100_000)
        for _ in range(4096):
            speed.add(0.1)
            speed.add(0.2)
        mean, uncertainty, jitter = speed.statistics()
        speeds = np.repeat([100.0, 50.0], [100_000 + 4096, 4096])
        self.assertAlmostEqual(mean, len(speeds) / np.sum(1 / speeds))
        self.assertAlmostEqual(uncertainty, np.std(speeds) / np.sqrt(len(speeds)))
        self.assertAlmostEqual(jitter, 1.4826 * 25)

    def test_benchmark_log(self):
        directory = os.path.join(self.create_tempdir(), "log")
        log = report.BenchmarkLog(directory, SideOutputs())
        log.run({"model_name": "lenet", "test_id": "t"})
        log.metric("loss", 1.5, 3)
        log.metric("mfu", 0.5, 4, unit=None, peak=2.0)
        for value in (math.nan, math.inf):
            log.metric("loss", value, 5)
        with open(os.path.join(directory, "benchmark_run.log")) as file:
            run = json.load(file)
        self.assertEqual(run["model_name"], "lenet")
        self.assertEqual(run["tensorflow_version"], tf.version.VERSION)
        self.assertGreater(run["machine_config"]["memory_bytes"], 0)
        with open(os.path.join(directory, "metric.log")) as file:
            first, second, *others = map(json.loads, file)
        self.assertEqual((first["name"], first["value"]), ("loss", 1.5))
        self.assertEqual(first["global_step"], 3)
        self.assertEqual(second["extras"], {"peak": 2.0})
        # JSON has neither NaN nor infinity.
        self.assertEqual([other["value"] for other in others], [None, None])
        self.assertTrue(re.match(r"\d{4}-\d\d-\d\dT", first["timestamp"]))

    def test_no_directory_writes_nothing(self):
        folder = self.create_tempdir().full_path
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        log = report.BenchmarkLog(None, SideOutputs())
        log.run({})
        log.metric("loss", 1.0, 1)
        self.assertEmpty(os.listdir(folder))
