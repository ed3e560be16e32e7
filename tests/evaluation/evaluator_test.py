"""The evaluations of whole runs: how many examples they count, and how they stop."""

import contextlib
import functools
import io
import signal
import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest, parameterized

from flags import config
from tests import digit_runs
from towers import planning
from towers.callbacks import every
from towers.cluster import sessions
from towers.evaluation import eval_graph, evaluator


class _Interrupts(io.StringIO):
    """Gets a signal when the first batch of an evaluation is told."""

    def __init__(self, number: int):
        super().__init__()
        self._number = number

    def write(self, text: str) -> int:
        """Writes, and raises it."""
        written = super().write(text)
        if "examples/sec" in text:
            signal.raise_signal(self._number)
        return written


class NumExamplesTest(absltest.TestCase):
    def test_the_least_of_a_split_is_an_example(self):
        plan = types.SimpleNamespace(
            config=config.make(num_eval_epochs=1e-6),
            eval_source=types.SimpleNamespace(num_examples=355),
        )
        self.assertEqual(evaluator.num_examples(plan), 1)


class TimesTest(parameterized.TestCase):
    @parameterized.parameters(
        # (steps asked for, evaluation at the end asked for, whether there is one)
        (None, None, True),
        (None, False, False),
        (5, None, False),
        (5, True, True),
    )
    def test_at_the_end(self, num_batches, asked, wanted):
        plan = types.SimpleNamespace(
            config=config.make(eval_at_end=asked),
            num_batches=num_batches,
            options=types.SimpleNamespace(forward_only=False),
        )
        self.assertEqual(evaluator.at_end(plan), wanted)

    def test_epochs_need_not_be_whole_steps(self):
        plan = types.SimpleNamespace(
            config=config.make(eval_during_training_every_n_epochs=0.5),
            source=types.SimpleNamespace(num_examples=355),
            examples_per_step=32,
        )
        self.assertEqual(evaluator.steps(plan), (0.5 * 355 / 32, [], 0.0))

    @parameterized.parameters(
        ({"eval_during_training_every_n_epochs": 1.0}, [14, 33, 52]),
        ({"eval_during_training_at_specified_epochs": (1.0, 2.0)}, [14, 33]),
        ({"eval_during_training_every_n_steps": 20}, [20, 40, 60]),
    )
    def test_epochs_are_counted_in_examples(self, interval, steps):
        """Of 300 examples; 10 steps took 24 each, and later ones take 16."""
        plan = types.SimpleNamespace(
            config=config.make(**interval),
            source=types.SimpleNamespace(num_examples=300),
            examples_per_step=16,
        )
        plan.steps = functools.partial(planning.Plan.steps, plan)
        due = evaluator.steps(plan, 10, 240)._asdict()
        evaluated = [step for step in range(11, 61) if every.is_due(step, **due)]
        self.assertEqual(evaluated, steps)


class LostTest(digit_runs.Runs):
    def test_an_evaluation_that_a_lost_task_ended_is_made_again(self):
        lost = tf.errors.UnavailableError(None, None, "Socket closed")
        outcomes = [lost, mock.DEFAULT]

        def keep(self, attempt, stop, *, resumes):
            with contextlib.suppress(tf.errors.UnavailableError):
                return attempt()
            return attempt()

        with (
            mock.patch.object(sessions.Local, "keep", keep),
            mock.patch.object(
                eval_graph, "run", wraps=eval_graph.run, side_effect=outcomes
            ),
        ):
            lines = self.run_flags(
                train_dir=self.directory,
                num_batches=1,
                num_warmup_batches=0,
                eval_at_end=True,
            )
        self.assertLen(digit_runs.accuracies(lines), 1)


class FollowingTest(absltest.TestCase):
    def test_what_ended_whole_in_this_session_is_followed(self):
        whole, stopped = eval_graph.EvalResult(3, 8, {"loss": 0.5}, 1.0, {}, {}), None
        lost = tf.errors.UnavailableError(None, None, "Socket closed")
        plan = mock.Mock(**{"config.evaluation.eval_dir": ""})
        plan.model.with_derived = dict
        evaluate = evaluator.Evaluator(plan, None, mock.Mock(), mock.Mock())
        followed = []
        for session, outcome in (
            ("a", whole),
            ("a", whole),
            ("a", stopped),
            ("a", whole),
            ("a", lost),
            ("a", whole),
            ("b", whole),
            ("b", whole),
        ):
            with (
                mock.patch.object(eval_graph, "run", side_effect=[outcome]) as run,
                contextlib.suppress(tf.errors.UnavailableError),
            ):
                evaluate(session, 3, bool)
            followed.append(run.call_args.kwargs["follows"])
        self.assertEqual(followed, [False, True, True, False, True, False, False, True])


class StopTest(digit_runs.Runs):
    def _run(self, number, status, **flags):
        flags = dict(train_dir=self.directory, eval_batch_size=5, **flags)
        stream = _Interrupts(number)
        lines = self.run_flags(
            status=status, stream=stream, display_every=1, num_epochs=0.2, **flags
        )
        self.assertEqual(digit_runs.accuracies(lines), [])
        self.assertLen([line for line in lines if "examples/sec" in line], 1)
        return "\n".join(lines)

    @parameterized.parameters(
        (signal.SIGTERM, 143, {"eval_during_training_at_specified_steps": (4,)}, 4),
        (signal.SIGINT, 130, {}, 18),
    )
    def test_a_signal_ends_it_and_training_saves(self, number, status, flags, step):
        text = self._run(number, status, num_gpus=1, batch_size=16, **flags)
        self.assertIn(f"global_step {step} was stopped", text)
        name = signal.Signals(number).name
        self.assertIn(f"Stopped by {name} after step {step}, saved to", text)
        self.assertEqual(self.steps(), [step])

    @parameterized.parameters({}, {"eval_interval_secs": 1})
    def test_a_signal_ends_evaluation_alone(self, **flags):
        trained = dict(num_batches=1, num_warmup_batches=0)
        self.run_flags(train_dir=self.directory, batch_size=16, **trained)
        text = self._run(signal.SIGINT, 130, eval=True, **flags)
        self.assertIn("global_step 1 was stopped", text)
