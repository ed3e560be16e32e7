"""Hooks act after the steps they should, alone or between steps inside the graph."""

import contextlib
import io
import json
import os
import resource
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.checkpoints import checkpoint
from towers.checkpoints.saving import Saving
from towers.data import inputs
from towers.errors.side_outputs import SideOutputs
from towers.optimizers.loss_scale import LossScaling
from towers.session import hooks, loop, summary

v1 = tf.compat.v1


def _trainer(source=None, **options):
    training = trainer.Trainer(
        trainer.dense_model(),
        source or trainer.random_source(),
        **{"towers": 2, "batch_size": 4, **options},
    )
    return training.add_loop().start()


def _summaries(training, merged, directory, steps, side=None):
    """The hook that writes them."""
    file = summary.EventFile(
        "summaries", directory, side or SideOutputs(), training.train.graph
    )
    return hooks.WriteSummaries(training.train, merged, file, steps=steps)


class _Notes(hooks.Every):
    """Notes the steps it acts after, and what is due besides."""

    def __init__(self, train, **options):
        super().__init__(train, **options)
        self.steps = []

    def act(self, run_context, step):
        self.steps.append(step)


class SkipsTest(parameterized.TestCase):
    @parameterized.parameters(1, 50)
    def test_says_how_many_and_the_factor(self, steps_per_loop):
        training = _trainer(dtype=tf.float16, loss_scaling=LossScaling(2.0**24, 1000))
        lines = []
        training.run(
            [hooks.ReportSkips(training.train, lines.append)], 20, steps_per_loop
        )
        scale = training.train.loss_scale
        value, skipped = training.session.run((scale.value, scale.skipped))
        self.assertGreater(skipped, 0)
        self.assertLess(skipped, 20)
        self.assertEqual(value, 2.0**24 / 2**skipped)
        self.assertRegex(
            lines[-1],
            f"skipped: .* the loss scale is now {value:g} .{skipped} skipped in all.",
        )

    def test_a_step_is_one_session_call(self):
        """What it says belongs to the step, and costs no call of its own."""
        training = _trainer(dtype=tf.float16, loss_scaling=LossScaling(2.0**24, 1000))
        lines, calls = [], []
        skips = hooks.ReportSkips(training.train, lines.append)
        for last_step in (3, 9):
            with mock.patch.object(
                training.session, "run", wraps=training.session.run
            ) as run:
                training.run([skips], last_step)
            calls.append(run.call_count)
        self.assertEqual(calls[0], calls[1])
        for number, line in enumerate(lines, 1):
            scale = f"{2.0 ** (24 - number):g}"
            self.assertStartsWith(line, "A step was skipped: ")
            self.assertEndsWith(line, f" now {scale} ({number} skipped in all)")
        self.assertGreater(len(lines), 2)


class StopOnNanTest(parameterized.TestCase):
    def _stop(self, training):
        with training.train.graph.as_default():
            return hooks.StopOnNan(
                training.train, checkpoint.FiniteCheck(training.train.saved)
            )

    def _source(self, poison, example):
        images = np.random.default_rng(1).normal(size=(64, 4, 4, 1)).astype(np.float32)
        images[example] = poison
        examples = images, np.arange(64) % 5  # as arrays they would be refused
        return inputs.from_dataset(
            lambda: tf.data.Dataset.from_tensor_slices(examples),
            num_examples=64,
            num_classes=5,
            training=False,
        )

    @parameterized.product(steps_per_loop=(1, 3, 50), poison=(np.nan, np.inf))
    def test_names_the_step_and_no_checkpoint_is_written_after_it(
        self, steps_per_loop, poison
    ):
        # Of the 8 examples of step 6, one is bad.
        training = _trainer(self._source(poison, 43))
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            saver = checkpoint.Checkpoints(directory, training.train.saved)
        around = [
            self._stop(training),
            hooks.SaveCheckpoints(training.train, Saving(saver), steps=2),
        ]
        with self.assertRaisesRegex(
            hooks.NanLossError, "^the loss of step 6 is (nan|inf); lower --init_learn"
        ):
            training.run(around, 8, steps_per_loop)
        self.assertTrue(checkpoint.latest(directory).endswith("model.ckpt-4"))

    def test_an_infinite_loss_among_steps_inside_the_graph(self):
        stop = self._stop(_trainer())
        with self.assertRaisesRegex(hooks.NanLossError, "^the loss of step 9 is inf"):
            stop.after_steps(10, np.float32([1.0, np.inf, 1.0]), 1.0)

    @parameterized.parameters(1, 3)
    def test_no_learning_rate_is_to_blame_for_the_first_loss(self, steps_per_loop):
        training = _trainer(self._source(np.nan, 3))
        with self.assertRaisesRegex(
            hooks.NanLossError, "^the loss of step 1 is nan; it is that of the initial"
        ):
            training.run([self._stop(training)], 8, steps_per_loop)

    def test_nor_for_the_first_loss_after_a_checkpoint(self):
        training = _trainer(self._source(np.nan, 43))
        training.steps(5)
        with self.assertRaisesRegex(
            hooks.NanLossError, "^the loss of step 6 is nan; it is that of the checkp"
        ):
            training.run([self._stop(training)], 8)

    def test_a_loss_scale_that_is_too_large(self):
        training = _trainer(dtype=tf.float16, loss_scaling=LossScaling(2.0**120))
        with self.assertRaisesRegex(hooks.NanLossError, " or --fp16_loss_scale$"):
            training.run([self._stop(training)], 8)

    def test_finite_losses_pass(self):
        training = _trainer()
        self.assertEqual(training.run([self._stop(training)], 6, 4), 6)


class EveryTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"steps": 4}, [4, 8, 12]),
        ({"at": (7, 2, 3)}, [2, 3, 7]),
        ({"steps": 5, "at": (1, 5, 99)}, [1, 5, 10]),
        ({"steps": 2.8}, [3, 6, 9, 12]),
        ({"steps": 13 / 3}, [5, 9, 13]),
        ({"steps": 0.4}, [*range(1, 14)]),
        ({}, []),
    )
    def test_by_steps(self, options, steps):
        training = _trainer()
        for steps_per_loop in (1, 3, 50):
            notes = _Notes(training.start().train, **options)
            training.run([notes], 13, steps_per_loop)
            self.assertEqual(notes.steps, steps)

    def test_many_steps_between_two_times(self):
        train = _trainer().train
        for steps in (10**6, 2**31 - 1):
            every = hooks.Every(train, steps=steps)
            for times in (1, 3):
                self.assertEqual(every.next_due(times * steps - 1), times * steps)
                self.assertEqual(every.next_due(times * steps), (times + 1) * steps)

    def test_steps_count_from_the_beginning_also_in_a_resumed_run(self):
        training = _trainer()
        training.steps(6)
        notes = _Notes(training.train, steps=4, at=(3, 7))
        training.run([notes], 12, 50)
        self.assertEqual(notes.steps, [7, 8, 12])

    @parameterized.parameters((1, [4, 8, 12]), (5, [6, 12]))
    def test_by_seconds(self, steps_per_loop, steps):
        """Each step takes a second; the clock is looked at between calls."""
        now = [50.0]

        class Tick(loop.Hook):
            def next_due(self, step):
                return hooks.NEVER

            def before_run(self, run_context):
                now[0] += 1.0

            def after_steps(self, step, losses, seconds):
                now[0] += len(losses)

        training = _trainer()
        with (
            mock.patch.object(hooks.time, "monotonic", lambda: now[0]),
            mock.patch.object(loop, "_SECONDS", 100.0),
        ):
            notes = _Notes(training.train, seconds=4)
            training.run([Tick(), notes], 13, steps_per_loop)
        self.assertEqual(notes.steps, steps)


class SaveCheckpointsTest(parameterized.TestCase):
    @parameterized.parameters(1, 7)
    def test_the_values_are_those_of_the_step(self, steps_per_loop):
        training, other = _trainer(), _trainer()
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            saver = checkpoint.Checkpoints(
                directory, training.train.saved, max_to_keep=2
            )
        save = hooks.SaveCheckpoints(training.train, Saving(saver), steps=3)
        training.run([save], 10, steps_per_loop)
        paths = checkpoint.all_paths(directory)
        self.assertEqual([path.rsplit("-")[-1] for path in paths], ["6", "9"])
        for path, step in zip(paths, (6, 9)):
            reader = tf.train.load_checkpoint(path)
            values = {name: reader.get_tensor(name) for name in training.train.saved}
            trainer.assert_same_bits(values, other.steps(step))

    def test_after_a_failure_it_is_tried_again_in_a_while(self):
        now, tried = [0.0], []
        training = _trainer()
        saver = mock.create_autospec(Saving, instance=True)

        def attempt(session, step):
            tried.append(step)
            return len(tried) > 2

        saver.attempt.side_effect = attempt

        class Tick(loop.Hook):  # 4 seconds each
            def after_run(self, run_context, run_values):
                now[0] += 4

        save = hooks.SaveCheckpoints(training.train, saver, steps=2)
        with mock.patch.object(hooks.time, "monotonic", lambda: now[0]):
            training.run([save, Tick()], 12)
        self.assertEqual(tried, [2, 5, 8, 10, 12])


class EvaluateTest(parameterized.TestCase):
    @parameterized.parameters((0.75, 9), (0.76, 12), (None, 14))
    def test_stops_at_the_accuracy(self, stop_at, last_step):
        accuracies = {3: 0.1, 6: 0.5, 9: 0.75, 12: 0.8}
        training = _trainer()

        def evaluate(session, step):
            self.assertEqual(session.run(training.train.global_step), step)
            return accuracies[step]

        hook = hooks.Evaluate(training.train, evaluate, stop_at=stop_at, steps=3)
        self.assertEqual(training.run([hook], 14), last_step)


class WriteSummariesTest(tf.test.TestCase):
    def _events(self, directory):
        events = {}
        for path in tf.io.gfile.glob(f"{directory}/events*"):
            for event in v1.train.summary_iterator(path):
                for value in event.summary.value:
                    events.setdefault(event.step, {})[value.tag] = value.simple_value
                if event.HasField("graph_def"):
                    events["nodes"] = len(v1.GraphDef.FromString(event.graph_def).node)
        return events

    def test_losses_of_the_right_steps(self):
        other = _trainer()
        losses = [None]
        for _ in range(11):
            losses.append(other.session.run([other.train.loss, other.train.step])[0])
        for begin, every, k, steps in (
            (0, 4, 1, [4, 8]),
            (0, 4, 50, [4, 8]),
            (3, 4, 1, [4, 8]),
            (4, 1, 50, [5, 6, 7, 8, 9, 10, 11]),
        ):
            with self.subTest(begin=begin, every=every, k=k):
                training = _trainer()
                training.steps(begin)
                directory = self.create_tempdir().full_path
                with training.train.graph.as_default():
                    merged = summary.build(training.train, 1)
                training.train.graph.finalize()
                hook = _summaries(training, merged, directory, every)
                training.run([hook], 11, k)
                events = self._events(directory)
                nodes = len(training.train.graph.get_operations())
                self.assertEqual(events.pop("nodes"), nodes)
                self.assertEqual(list(events), steps)
                for step, values in events.items():
                    self.assertAlmostEqual(values["loss"], losses[step], places=6)
                    self.assertAlmostEqual(values["learning_rate"], 0.05)

    def test_what_was_written_before_a_run_breaks_off_can_be_read(self):
        training = _trainer()
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            merged = summary.build(training.train, 1)

        def fail():
            raise hooks.NanLossError("the loss of step 5 is nan", 5)

        around = [_summaries(training, merged, directory, 2), trainer.Do(fail, at=5)]
        with self.assertRaises(hooks.NanLossError):
            training.run(around, 9)
        self.assertEqual([*self._events(directory)], ["nodes", 2, 4])


class FullDiskTest(parameterized.TestCase):
    """From step 2 on, files of more than 4 kB cannot be written."""

    def _run(self, training, hook):
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        limit = (4096, before[1])
        fill = trainer.Do(
            lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit), at=2
        )
        try:
            training.run([fill, hook], 5)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_summaries(self):
        training = _trainer()
        directory = self.create_tempdir().full_path
        with training.train.graph.as_default():
            merged = summary.build(training.train, 1)
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            side = SideOutputs()
            self._run(training, _summaries(training, merged, directory, 1, side))
            side.report()
        self.assertEqual(training.session.run(training.train.global_step), 5)
        first, last = printed.getvalue().splitlines()
        self.assertStartsWith(
            first, f"warning: summaries cannot be written to {directory}"
        )
        self.assertEndsWith(last, f"not complete in {directory}: 4 writes failed")
        # What was written before can be read, and nothing else is there.
        [path] = tf.io.gfile.glob(f"{directory}/*")
        steps = [event.step for event in v1.train.summary_iterator(path)]
        self.assertEqual(steps, [0, 0, 1])

    def test_trace(self):
        training = _trainer()
        path = os.path.join(self.create_tempdir(), "trace.json")
        side = SideOutputs()
        hook = hooks.TraceStep(training.train, path, step=3, console=print, side=side)
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            self._run(training, hook)
        self.assertRegex(printed.getvalue(), f"trace .* {path} .*too large")
        self.assertEqual(training.session.run(training.train.global_step), 5)
        self.assertFalse(os.path.exists(path))  # no half of it


class TraceStepTest(parameterized.TestCase):
    @parameterized.parameters((0, 1, 1), (0, 4, 1), (0, 4, 50), (3, 5, 50))
    def test_a_chrome_trace_of_the_step(self, begin, step, steps_per_loop):
        training = _trainer()
        training.steps(begin)
        path = os.path.join(self.create_tempdir(), "new", "trace.json")
        written = []

        class Look(v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                done = run_context.session.run(training.train.global_step)
                if os.path.exists(path) and not written:
                    written.append(done)

        said = []
        hook = hooks.TraceStep(
            training.train, path, step=step, console=said.append, side=SideOutputs()
        )
        around = [hook, *([Look()] if steps_per_loop == 1 else [])]
        self.assertEqual(training.run(around, 6, steps_per_loop), 6)
        if steps_per_loop == 1:
            self.assertEqual(written, [step])
        self.assertEmpty(said)
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        processes = {e["pid"]: e["args"]["name"] for e in events if e["ph"] == "M"}
        products = {
            (processes[event["pid"]].split("device:")[-1], event["args"]["name"])
            for event in events
            if event["ph"] == "X" and "/MatMul" in event["args"]["name"]
        }
        towers = {(device, name.split("/")[0]) for device, name in products}
        self.assertEqual(towers, {("CPU:0", "tower_0"), ("CPU:1", "tower_1")})

    def test_a_step_that_is_past_is_not_traced(self):
        training = _trainer()
        training.steps(3)
        path = os.path.join(self.create_tempdir(), "trace.json")
        said = []
        hook = hooks.TraceStep(
            training.train, path, step=2, console=said.append, side=SideOutputs()
        )
        training.run([hook], 6)
        self.assertFalse(os.path.exists(path))
        self.assertEqual(
            said,
            [f"{path} is not written: it is about step 2, which this run did not take"],
        )
