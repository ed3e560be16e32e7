"""Callbacks act after the steps they should, alone or between steps in the graph."""

from unittest import mock

from absl.testing import parameterized

from tests import trainer
from towers.callbacks import every
from towers.callbacks.base import NEVER, Callback
from towers.callbacks.every import Every
from towers.session import loop


def _trainer():
    return trainer.Trainer(towers=2, batch_size=4).add_loop().start()


class _Notes(Every):
    """Notes the steps it acts after, and what is due besides."""

    def __init__(self, train, **options):
        super().__init__(train, **options)
        self.steps = []

    def act(self, run_context, step):
        self.steps.append(step)


class EveryTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"steps": 4}, [4, 8, 12]),
        ({"at": (7, 2, 3)}, [2, 3, 7]),
        ({"steps": 5, "at": (1, 5, 99)}, [1, 5, 10]),
        ({"steps": 2.8}, [3, 6, 9, 12]),
        ({"steps": 13 / 3}, [5, 9, 13]),
        ({"steps": 0.4}, [*range(1, 14)]),
        ({"steps": 4, "since": -1.5}, [3, 7, 11]),
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
            due = Every(train, steps=steps)
            for times in (1, 3):
                self.assertEqual(due.next_due(times * steps - 1), times * steps)
                self.assertEqual(due.next_due(times * steps), (times + 1) * steps)

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

        class Tick(Callback):
            def next_due(self, step):
                return NEVER

            def before_run(self, run_context):
                now[0] += 1.0

            def after_steps(self, step, losses, seconds):
                now[0] += len(losses)

        training = _trainer()
        with (
            mock.patch.object(every.time, "monotonic", lambda: now[0]),
            mock.patch.object(loop, "_SECONDS", 100.0),
        ):
            notes = _Notes(training.train, seconds=4)
            training.run([Tick(), notes], 13, steps_per_loop)
        self.assertEqual(notes.steps, steps)
