"""Whole runs in this process: their lines, their files, resumed runs."""

import io
import json
import os
import re
from unittest import mock

import numpy as np
import tensorflow as tf

from tests import digit_runs, trainer
from towers.checkpoints import checkpoint, run_status
from towers.compute import flops
from towers.data import order
from towers.evaluation import eval_graph, watch
from towers.session import report

_TEST_EXAMPLES = 355


class OutputTest(digit_runs.Runs):
    def test_lines_and_files_of_a_run(self):
        out = self.create_tempdir().full_path
        lines = self.run_flags(
            num_gpus=4,
            num_epochs=2.0,
            train_dir=self.directory,
            save_model_steps=20,
            max_ckpts_to_keep=2,
            summary_verbosity=1,
            save_summaries_steps=8,
            display_every=10,
            print_training_accuracy=True,
            eval_during_training_at_specified_steps=(15,),
            eval_batch_size=50,
            trace_file=os.path.join(out, "trace", "trace.json"),
            graph_file=os.path.join(out, "graph.pbtxt"),
            benchmark_log_dir=os.path.join(out, "log"),
            benchmark_test_id="mine",
        )
        *lines, waiting, mfu, saved = lines
        self.assertRegex(waiting, r"^waiting for input: \d+\.\d % of the time$")
        lines = [line for line in [*lines, mfu, saved] if not line.startswith("wait")]
        number = r"\d+\.\d+"
        step = rf"images/sec: {number} \+/- {number} \(jitter = {number}\)"
        step += rf"\t{number}\t0\.\d{{3}}\t[01]\.\d{{3}}"
        evaluation = [
            r"Running evaluation at global_step (\d+)",
            rf"2\t{number} examples/sec",
            r"Accuracy @ 1 = 0\.\d{4} Accuracy @ 5 = [01]\.\d{4} \[355 examples\]",
        ]
        title = "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy"
        header = [
            "Model:       small",
            r"Dataset:     digits/1\.0\.0",
            r"Mode:        training \+ evaluation",
            "SingleSess:  True",
            "Batch size:  64 global",
            "             16 per device",
            "Num batches: 46",
            "Num epochs:  2.00",
            r"Devices:     \['/device:CPU:0', .*, '/device:CPU:3'\]",
            "NUMA bind:   False",
            "Data format: NHWC",
            "Optimizer:   momentum",
            "Variables:   parameter_server",
            r"Parameters:  2978 on /device:CPU:0",
            "Update:      .*",
            "Reduction:   mean over the examples of 4 towers",
            "Batch norm:  statistics per tower; saved: the mean over the towers",
            "Weight decay: 0.001, at the update",
        ]
        wanted = [
            "=" * 10,
            "Initializing graph",
            "Running warm up",
            "Done warm up",
            title,
            f"1\t{step}",
            *evaluation,
            *(f"{shown}\t{step}" for shown in (10, 20, 30)),
            *evaluation,
            "-" * 64,
            r"total images/sec: \d+\.\d\d",
            "-" * 64,
            rf"MFU: {number} % \({number} of 5000 GFLOP/s measured; "
            r"0\.\d MFLOP per image\)",
            rf"Checkpoints are in {self.directory}, summaries too\.",
        ]
        self.assertEqual(lines[0], "Generating training model")
        end = lines.index("=" * 10)
        rest = iter(lines[1:end])  # which other rows may stand between
        for pattern in header:
            self.assertTrue(
                any(re.match(f"{pattern}$", line) for line in rest), pattern
            )
        self.assertLen(lines[end:], len(wanted), "\n".join(lines))
        for line, pattern in zip(lines[end:], wanted):
            self.assertRegex(line, f"^{pattern}$")
        self._check_files(out, lines)

    def _check_files(self, out, lines):
        self.assertEqual(self.steps(), [40, 46])
        values = self.values()
        self.assertEqual((values["global_step"], values["position"]), (46, 2 * 1442))
        train = digit_runs.events(self.directory)
        steps = [step for step, tag, _ in train if tag == "loss"]
        self.assertEqual(steps, [8, 16, 24, 32, 40])
        self.assertEqual(len(train), 5 * 5)
        shown = [
            e for e in digit_runs.events(f"{self.directory}/eval") if "top_1" in e[1]
        ]
        self.assertEqual([step for step, *_ in shown], [15, 46])
        accuracies = digit_runs.accuracies(lines)
        for (_, _, value), (accuracy, count) in zip(shown, accuracies):
            self.assertAlmostEqual(value, accuracy, places=4)
            self.assertEqual(count, _TEST_EXAMPLES)
        with open(f"{out}/trace/trace.json") as file:
            events = json.load(file)["traceEvents"]
        self.assertGreater(len(events), 50)
        with open(f"{out}/graph.pbtxt") as file:
            self.assertIn('name: "tower_3/logits/dense/MatMul"', file.read())
        with open(f"{out}/log/benchmark_run.log") as file:
            facts = json.load(file)
        self.assertEqual((facts["model_name"], facts["test_id"]), ("small", "mine"))
        self.assertEqual(facts["dataset"], {"name": "digits/1.0.0"})
        self.assertEqual(facts["run_parameters"]["num_epochs"], 2.0)
        self.assertLen(facts["devices"], 4)
        with open(f"{out}/log/metric.log") as file:
            metrics = [json.loads(line) for line in file]
        keys = {"name", "value", "unit", "global_step", "timestamp", "extras"}
        documented = report.BenchmarkLog.__doc__
        for metric in metrics:
            self.assertEqual(set(metric), keys)
            self.assertIn(f"`{metric['name']}`", documented)
        of = {(m["name"], m["global_step"]): m["value"] for m in metrics}
        total = float(re.search(r"[\d.]+$", lines[-4]).group())
        self.assertAlmostEqual(of["average_examples_per_sec", 46], total, delta=0.006)
        self.assertAlmostEqual(
            of["eval_top_1_accuracy", 46], accuracies[-1][0], delta=1e-4
        )
        [first] = [line for line in lines if line.startswith("1\timages/sec")]
        loss = float(first.split("\t")[2])
        self.assertAlmostEqual(of["loss", 11], loss, delta=6e-4)

    def test_a_run_without_a_folder_says_what_it_reached(self):
        lines = self.run_flags(num_batches=3, num_warmup_batches=0, eval_at_end=True)
        self.assertLen(digit_runs.accuracies(lines), 1)
        self.assertNotIn("Checkpoints", "\n".join(lines))

    def test_a_terminal_gets_a_bar(self):
        class Terminal(io.StringIO):
            def isatty(self):
                return True

        stream = Terminal()
        self.run_flags(
            num_epochs=0.5, stream=stream, eval_during_training_every_n_epochs=0.2
        )
        text = stream.getvalue()
        self.assertIn("46/46", text)
        self.assertNotIn("images/sec: ", text.split("total images/sec")[0])
        self.assertLen(digit_runs.accuracies(re.split("[\r\n]+", text)), 2 + 1)
        self.assertIn("total images/sec", text.splitlines()[-4])


_TRAINED = (
    "block/batch_norm/beta",
    "block/batch_norm/gamma",
    "block/conv/kernel",
    "logits/dense/bias",
    "logits/dense/kernel",
)
_SAVED = {
    "global_step",
    "position",
    "order_version",
    "block/batch_norm/moving_mean",
    "block/batch_norm/moving_variance",
    *_TRAINED,
    *(f"{name}/Momentum" for name in _TRAINED),
    *(f"{name}/ExponentialMovingAverage" for name in _TRAINED),
}


class LengthTest(digit_runs.Runs):
    def test_training_ends_at_the_accuracy(self):
        lines = self.run_flags(
            num_gpus=2,
            num_epochs=30.0,
            eval_during_training_every_n_steps=6,
            stop_at_top_1_accuracy=0.5,
            train_dir=self.directory,
        )
        *before, last = digit_runs.accuracies(lines)  # the last step is evaluated once
        self.assertNotEmpty(before)
        for accuracy, _ in before:
            self.assertLess(accuracy, 0.5)
        self.assertGreaterEqual(last[0], 0.5)
        self.assertEqual(self.steps(), [6 * (len(before) + 1)])
        # An evaluator knows that no checkpoint will follow.
        with mock.patch.object(watch, "_wait", side_effect=AssertionError):
            flags = dict(eval=True, eval_interval_secs=7, num_epochs=30.0)
            lines = self.run_flags(train_dir=self.directory, **flags)
        self.assertEqual(digit_runs.accuracies(lines), [last])

    def test_a_lost_evaluation_is_made_up_for_and_ends_the_run(self):
        """One after whose step a run was killed; then one that was told of."""
        flags = dict(num_batches=30, num_warmup_batches=0, save_model_steps=6)
        flags |= dict(eval_during_training_every_n_steps=6, stop_at_top_1_accuracy=0.01)
        flags |= dict(train_dir=self.directory)
        with mock.patch.object(eval_graph, "run", side_effect=SystemExit):
            with self.assertRaises(SystemExit):
                self.run_flags(**flags)
        self.assertEqual(self.steps(), [6])
        for _ in range(2):
            lines = self.run_flags(**flags)
            self.assertIn("Running evaluation at global_step 6", lines)
            self.assertLen(digit_runs.accuracies(lines), 1)
            self.assertEqual(self.steps(), [6])
            self.assertEqual(run_status.end(self.directory), 6)
            run_status.clear(self.directory)

    def test_a_resumed_run_ends_where_the_straight_one_does(self):
        """Bit for bit, on 4 towers, shuffled and distorted, inside the graph or not."""
        options = dict(num_gpus=4, save_model_steps=10, max_ckpts_to_keep=0)
        self.run_flags(num_batches=30, train_dir=self.directory, **options)
        straight = {step: self.values(step=step) for step in (10, 20, 30, 40)}
        self.directory = os.path.join(self.create_tempdir(), "train")
        for num_batches, steps_per_loop in ((14, 7), (25, 1), (30, 50)):
            lines = self.run_flags(
                num_batches=num_batches,
                train_dir=self.directory,
                steps_per_loop=steps_per_loop,
                **options,
            )
        self.assertIn(f"Resuming from {self.directory}/model.ckpt-35", lines)
        self.assertEqual(self.steps(), [10, 20, 24, 30, 35, 40])
        # A literal list, as comparing the two runs does not show what neither saves.
        self.assertEqual(set(straight[40]), _SAVED)
        for step, values in straight.items():
            trainer.assert_same_bits(values, self.values(step=step))

    def test_an_old_checkpoint_goes_on_with_the_order_of_its_time(self):
        flags = dict(num_gpus=2, num_warmup_batches=0)
        self.run_flags(num_batches=30, train_dir=self.directory, **flags)
        new = self.values()
        with mock.patch.object(order, "NEWEST", order.PERMUTED):
            self.directory = os.path.join(self.create_tempdir(), "straight")
            self.run_flags(num_batches=30, train_dir=self.directory, **flags)
            straight = self.values()
            self.directory = os.path.join(self.create_tempdir(), "resumed")
            self.run_flags(num_batches=12, train_dir=self.directory, **flags)
        _forget(checkpoint.latest(self.directory), order.NAME)
        for num_batches in (19, 30):
            self.run_flags(num_batches=num_batches, train_dir=self.directory, **flags)
        trainer.assert_same_bits(straight, self.values())
        self.assertEqual(
            (straight[order.NAME], new[order.NAME]), (order.PERMUTED, order.NEWEST)
        )
        kernel = "logits/dense/kernel"
        self.assertFalse(np.array_equal(straight[kernel], new[kernel]))

    def test_a_run_resumed_on_other_towers_sees_the_same_examples(self):
        self.run_flags(num_gpus=4, num_epochs=1.0, train_dir=self.directory)
        self.assertEqual(self.steps(), [23])
        one_epoch = self._accuracy_of_the_end(num_gpus=3)
        self.assertEqual(one_epoch, self._accuracy_of_the_end(num_gpus=1))
        self.run_flags(num_gpus=3, num_epochs=2.0, train_dir=self.directory)
        # 1442 examples more in steps of 48.
        self.assertEqual(self.steps(), [23, 23 + 31])
        self.assertEqual(self.values()["position"], 2 * 1442)

    def _accuracy_of_the_end(self, **options):
        """A run with nothing left to do only evaluates."""
        before = {
            n: os.stat(f"{self.directory}/{n}") for n in os.listdir(self.directory)
        }
        lines = self.run_flags(num_epochs=1.0, train_dir=self.directory, **options)
        self.assertIn("Done with training: no step was timed", lines)
        for name, stat in before.items():
            now = os.stat(f"{self.directory}/{name}")
            if name.startswith("model.ckpt"):
                self.assertEqual(now.st_mtime_ns, stat.st_mtime_ns)
        return digit_runs.accuracies(lines)[-1]


def _forget(path, name):
    """Writes a checkpoint anew, without a variable."""
    reader = tf.train.load_checkpoint(path)
    names = sorted(reader.get_variable_to_shape_map().keys() - {name})
    tf.raw_ops.SaveV2(
        prefix=path,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=list(map(reader.get_tensor, names)),
    )


class MishapsTest(digit_runs.Runs):
    def test_a_peak_for_which_no_memory_is_left(self):
        error = tf.errors.ResourceExhaustedError(None, None, "out of memory")
        with mock.patch.object(flops, "measure_peak", side_effect=error):
            lines = self.run_flags(
                num_batches=2,
                train_dir=self.directory,
                benchmark_log_dir=self.directory,
            )
        with open(os.path.join(self.directory, "metric.log")) as log:
            self.assertIn("average_examples_per_sec", log.read())
        self.assertIn("MFU: not measured, as no memory is left to do so", lines)
        self.assertIn(f"Checkpoints are in {self.directory}.", lines)
