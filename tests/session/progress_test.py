"""Step lines, the bar and the speed, on real steps and a clock of our own."""

import contextlib
import io
import json
import os
import re
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from flags.problem import in_python
from tests import trainer
from towers.callbacks.base import Callback
from towers.session import loop, progress, report

v1 = tf.compat.v1

EXAMPLES = 8  # per step


class _Clock:
    """A clock that only moves when a step runs or somebody works."""

    now = 100.0

    def __call__(self):
        return self.now


class _Session:
    """A session whose n-th step takes `seconds[n]`, or the last of them."""

    def __init__(self, session, clock, seconds):
        self._session, self._clock = session, clock
        self._seconds = list(seconds)

    def __getattr__(self, name):
        return getattr(self._session, name)

    def make_callable(self, *args, **options):
        run = self._session.make_callable(*args, **options)

        def timed(*args):
            for _ in range(*args or [1]):
                self._clock.now += self._seconds[0]
                del self._seconds[: len(self._seconds) > 1]
            return run(*args)

        return timed


class _Work(Callback):
    """Another hook that takes its time after one step."""

    def __init__(self, train, clock, step, seconds):
        self._fetch, self._clock = train.step, clock
        self._step, self._seconds = step, seconds

    def next_due(self, step):
        return self._step if step < self._step else 2**62

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._fetch)

    def after_run(self, run_context, run_values):
        if run_values.results == self._step:
            self._clock.now += self._seconds


class _Terminal(io.StringIO):
    def isatty(self):
        return True


class _Runs(absltest.TestCase):
    """Runs steps on a clock that says how long each takes."""

    def setUp(self):
        super().setUp()
        self.clock = _Clock()
        patch = mock.patch.object(progress.time, "perf_counter", self.clock)
        patch.start()
        self.addCleanup(patch.stop)
        self.stream = io.StringIO()
        self.made = trainer.Trainer(towers=2, batch_size=4)
        self.log_dir = self.create_tempdir().full_path
        self.made.add_loop().start()
        self.losses = {}

    def _run(self, last_step, *, begin=0, seconds=(0.5,), work=None, k=1, **display):
        if begin:
            self.made.steps(begin)
        display = progress.Display(**display)
        console = progress.Console(self.stream)
        log = report.BenchmarkLog(self.log_dir, console.side)
        shown = progress.Progress(self.made.train, console, log, display)
        shown.begin_at(begin, last_step)
        train = self.made.train
        hooks = [shown, *([_Work(train, self.clock, *work)] if work else [])]
        session = _Session(self.made.session, self.clock, seconds)
        loop.run(train, session, hooks, last_step=last_step, steps_per_loop=k)
        return shown

    def _wanted_losses(self, last_step, name="total_loss"):
        """As another run, step by step, finds them."""
        other = trainer.Trainer(towers=2, batch_size=4).start()
        fetches = [getattr(other.train, name), other.train.metrics, other.train.step]
        return [None] + [other.session.run(fetches) for _ in range(last_step)]


class ProgressTest(_Runs):
    @property
    def lines(self):
        return self.stream.getvalue().splitlines()

    def test_warm_up_steps_are_neither_timed_nor_shown(self):
        shown = self._run(11, every=4, warmup=3, seconds=[9, 9, 9, 1, 0.5])
        losses = self._wanted_losses(11)
        rows = [
            (1, "8.0 +/- 0.0 (jitter = 0.0)"),
            # Steps of 1, 0.5, 0.5 and 0.5 s: 4 x 8 images in 2.5 s.
            (4, "12.8 +/- 1.7 (jitter = 0.0)"),
            (8, "14.2 +/- 0.9 (jitter = 0.0)"),
        ]
        self.assertEqual(
            self.lines,
            [
                "Running warm up",
                "Done warm up",
                "Step\tImg/sec\ttotal_loss",
                *(
                    f"{step}\timages/sec: {rate}\t{losses[step + 3][0]:.3f}"
                    for step, rate in rows
                ),
            ],
        )
        self.assertLen(shown.speed, 8)
        self.assertAlmostEqual(shown.examples_per_second, 8 * EXAMPLES / 4.5)
        self.assertAlmostEqual(shown.last_loss, losses[11][0], places=6)

    def test_without_warm_up_step_1_is_shown_but_not_timed(self):
        shown = self._run(4, every=2, seconds=[8, 0.5])
        self.assertEqual(
            [re.sub(r" \+.*", "", line) for line in self.lines],
            [
                "Step\tImg/sec\ttotal_loss",
                "1\timages/sec: 1.0",
                "2\timages/sec: 16.0",
                "4\timages/sec: 16.0",
            ],
        )
        self.assertAlmostEqual(shown.examples_per_second, 3 * EXAMPLES / 1.5)

    def test_a_single_step(self):
        shown = self._run(1)
        self.assertEqual(self.lines[1].split("\t")[0], "1")
        self.assertEqual(shown.examples_per_second, 0)

    def test_a_resumed_run_goes_on_counting(self):
        shown = self._run(12, begin=5, every=3, warmup=3, seconds=[7, 0.5])
        self.assertEqual(
            [line.split("\t")[0] for line in self.lines], ["Step", "3", "6", "9"]
        )
        losses = self._wanted_losses(12)
        self.assertEqual(self.lines[2].split("\t")[2], f"{losses[9][0]:.3f}")
        self.assertLen(shown.speed, 6)  # without step 6, the first of this process

    def test_a_run_resumed_in_the_warm_up_ends_it(self):
        shown = self._run(8, begin=2, every=3, warmup=4)
        self.assertEqual(
            [line.split("\t")[0] for line in self.lines],
            ["Running warm up", "Done warm up", "Step", "1", "3"],
        )
        self.assertLen(shown.speed, 4)

    def test_nothing_left_to_do(self):
        shown = self._run(3, begin=3, warmup=9)
        self.assertEqual(
            self.lines,
            ["Step 3 is reached and this run ends at 3: none is left to train"],
        )
        self.assertEqual(shown.examples_per_second, 0)

    def test_accuracies_and_the_loss_without_penalty(self):
        self._run(2, every=2, total_loss=False, metrics=True)
        self.assertEqual(
            self.lines[0], "Step\tImg/sec\tbase_loss\ttop_1_accuracy\ttop_5_accuracy"
        )
        wanted = self._wanted_losses(2, "loss")
        for step in (1, 2):
            loss, metrics, _ = wanted[step]
            values = [loss, metrics["top_1_accuracy"], metrics["top_5_accuracy"]]
            self.assertEqual(
                self.lines[step].split("\t")[2:], [f"{value:.3f}" for value in values]
            )

    def test_steps_inside_the_graph_give_the_same_lines(self):
        self._run(21, every=5, warmup=4, seconds=[4] * 4 + [0.5])
        lines = self.lines
        self.setUp()
        shown = self._run(21, every=5, warmup=4, seconds=[4] * 4 + [0.5], k=3)
        self.assertEqual(self.lines, lines)
        self.assertLen(shown.speed, 17)
        self.assertAlmostEqual(shown.examples_per_second, 16.0)

    def test_a_resumed_process_does_not_time_its_first_call(self):
        shown = self._run(20, begin=5, every=10, warmup=4, seconds=[4] * 3 + [0.5], k=3)
        self.assertAlmostEqual(shown.examples_per_second, 16.0)
        self.assertLen(shown.speed, 12)

    def test_other_hooks_count_and_pauses_do_not(self):
        shown = self._run(9, warmup=1, work=(5, 4.0))
        self.assertAlmostEqual(shown.examples_per_second, 8 * EXAMPLES / (8 * 0.5 + 4))
        self.setUp()

        def pause(shown):
            class Pausing(_Work):
                def after_run(self, *args):
                    with shown.paused():
                        super().after_run(*args)

            return Pausing

        console = progress.Console(self.stream)
        shown = progress.Progress(
            self.made.train,
            console,
            report.BenchmarkLog(None, console.side),
            progress.Display(warmup=1),
        )
        shown.begin_at(0, 9)
        # A pause during the warm-up has no effect either.
        hooks = [shown] + [
            pause(shown)(self.made.train, self.clock, step, 4.0) for step in (1, 5, 9)
        ]
        session = _Session(self.made.session, self.clock, [0.5])
        loop.run(self.made.train, session, hooks, last_step=9)
        self.assertAlmostEqual(shown.examples_per_second, 16.0)

    def test_the_log_gets_the_numbers_of_each_line(self):
        self._run(4, every=2, metrics=True)
        with open(os.path.join(self.log_dir, "metric.log")) as file:
            records = [json.loads(line) for line in file]
        self.assertEqual(
            [(line["name"], line["global_step"]) for line in records],
            [
                (name, step)
                for step in (1, 2, 4)
                for name in (
                    "current_examples_per_sec",
                    "interval_examples_per_sec",
                    "loss",
                    "learning_rate",
                    "input_wait",
                    "top_1_accuracy",
                    "top_5_accuracy",
                )
            ],
        )
        values = {(x["name"], x["global_step"]): x["value"] for x in records}
        self.assertEqual(values["current_examples_per_sec", 4], 16)
        self.assertAlmostEqual(values["learning_rate", 2], 0.05)
        self.assertAlmostEqual(values["loss", 4], self._wanted_losses(4)[4][0], 6)

    def test_the_log_has_the_speed_of_the_last_interval(self):
        # Two steps of 2 s after two of 0.5 s: the mean lags behind.
        self._run(8, every=2, seconds=[0.5] * 5 + [2.0, 2.0, 0.25])
        with open(os.path.join(self.log_dir, "metric.log")) as file:
            records = [json.loads(line) for line in file]
        speeds = {
            name: [
                x["value"] for x in records if x["name"] == f"{name}_examples_per_sec"
            ]
            for name in ("current", "interval")
        }
        # The speeds of steps 1 (not timed), 2, 3 to 4, 5 to 6, 7 to 8.
        np.testing.assert_allclose(speeds["interval"], [16, 16, 16, 6.4, 64 / 9])
        np.testing.assert_allclose(speeds["current"], [16, 16, 16, 40 / 4.0, 56 / 6.25])

    def test_a_line_of_its_own_says_when_steps_wait_for_input(self):
        shares = [0.02, 0.25, 0.0999, 0.1]
        with mock.patch.object(progress.InputShare, "since_last", side_effect=shares):
            self._run(9, every=3)
        lines = [re.sub(r"\t.*", "", line) for line in self.lines[1:]]
        said = "waiting for input: {} % of the time"
        self.assertEqual(
            lines, ["1", "3", said.format("25.0"), "6", "9", said.format("10.0")]
        )
        with open(os.path.join(self.log_dir, "metric.log")) as file:
            records = [json.loads(line) for line in file]
        values = [x["value"] for x in records if x["name"] == "input_wait"]
        self.assertEqual(values, shares)

    def test_speeds_in_tokens(self):
        shown = self._run(4, every=2, unit=report.Unit("tokens", 5))
        self.assertIn("Step\tTokens/sec\ttotal_loss", self.stream.getvalue())
        self.assertIn("4\ttokens/sec: 80.0", self.stream.getvalue())
        self.assertAlmostEqual(shown.examples_per_second, 16.0)
        with open(os.path.join(self.log_dir, "metric.log")) as file:
            records = [json.loads(line) for line in file]
        for name in ("current_examples_per_sec", "interval_examples_per_sec"):
            rates = [line["value"] for line in records if line["name"] == name]
            self.assertAlmostEqual(rates[-1], 16.0)


class TerminalTest(_Runs):
    """On a terminal the same numbers stand beside a bar."""

    def setUp(self):
        super().setUp()
        self.stream = _Terminal()

    def test_a_bar_in_place_of_lines(self):
        with contextlib.redirect_stderr(io.StringIO()) as stderr:
            shown = self._run(12, begin=5, every=3, warmup=6)
        text = self.stream.getvalue()
        self.assertEqual(stderr.getvalue(), "")
        self.assertIn("12/12", text)
        self.assertIn("5/12", text)
        self.assertIn(f"total_loss {shown.last_loss:.3f}, 16 images/s, mean 16", text)
        self.assertNotIn("warm up", text)
        self.assertNotIn("images/sec", text)
        self.assertTrue(text.endswith("\n"))

    def test_a_notebook_is_watched_and_a_file_is_not(self):
        # the class of Jupyter's output has it
        module = {"__module__": "ipykernel.iostream"}
        notebook = type("OutStream", (io.StringIO,), module)()
        self.assertTrue(progress.Console(notebook).is_watched)
        self.assertFalse(progress.Console(io.StringIO()).is_watched)

    def test_a_line_is_written_in_one_piece(self):
        stream = mock.create_autospec(io.StringIO(), instance=True)
        progress.Console(stream)("worker 2 takes no part.")
        written = [call.args[0] for call in stream.write.call_args_list]
        self.assertEqual([*filter(None, written)], ["worker 2 takes no part.\n"])
        stream.flush.assert_called_once_with()

    def test_a_process_without_standard_output(self):
        with mock.patch("sys.stdout", None):
            console = progress.Console(None)
            console("Nobody reads this line.")
        self.assertFalse(console.is_watched)

    def test_a_line_names_settings_as_flags_or_as_python_does(self):
        for show, wanted in (((), "write --xla\n"), ((in_python,), "write xla\n")):
            stream = io.StringIO()
            progress.Console(stream, *show)("write `xla`")
            self.assertEqual(stream.getvalue(), wanted)

    def test_lines_stand_above_the_bar_and_it_goes_when_a_run_breaks_off(self):
        console = progress.Console(self.stream)
        console.open_bar(0, 10)
        console.advance(3, "words")
        console("A line")
        self.assertRegex(self.stream.getvalue(), r"\rA line\n\r? *0*.*3/10")
        console.close()
        console.close()
        console("The last line")
        self.assertTrue(self.stream.getvalue().endswith("\nThe last line\n"))
