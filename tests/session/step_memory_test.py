"""The estimate of a step's memory, and what is printed about it."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, trainer
from towers.errors import memory_limits
from towers.errors.memory_limits import Limit
from towers.layout.stages import Pipeline
from towers.session import step_memory

_BATCH, _WIDE = 500, 1000
_LAYER = _BATCH * _WIDE * 4  # bytes of a wide layer's result
_IMAGES = _BATCH * (16 + 1) * 4  # 16 pixels and a label
_WEIGHTS = 4 * (16 * _WIDE + _WIDE + _WIDE * 5 + 5)


def _graph(batch_size=_BATCH, **options):
    """A wide layer and a narrow one: the wide one's output is kept, and differentiated
    where it is."""

    def hidden(x, nn):
        return nn.dense(nn.flatten(x), _WIDE, activation=tf.nn.relu)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    training = trainer.Trainer(
        trainer.model_of(hidden, logits),
        trainer.random_source(num_examples=2000),
        batch_size=batch_size,
        **options,
    )
    return training.train


class EstimateTest(parameterized.TestCase):
    def _assert_about(self, estimate, wanted):
        """At the peak not all gradients are there; narrow layers come on top."""
        self.assertBetween(estimate, wanted - _WEIGHTS, wanted + 0.05 * _LAYER)

    def test_of_one_tower(self):
        # Variables, their momentum and gradients; the layer, and its gradient.
        wanted = 3 * _WEIGHTS + 2 * _LAYER + _IMAGES
        self._assert_about(step_memory.estimate(_graph()), wanted)

    def test_prefetched_batches(self):
        train = _graph()
        more = step_memory.estimate(train, prefetch=3) - step_memory.estimate(train)
        self.assertBetween(more, 3 * _IMAGES, 3 * _IMAGES * 1.2)

    def test_values_that_are_held_while_they_are_written(self):
        train = _graph()
        more = step_memory.estimate(train, holds=True) - step_memory.estimate(train)
        # variables and their momentum
        self.assertBetween(more, 2 * _WEIGHTS, 2 * _WEIGHTS * 1.01)

    @parameterized.parameters((0, 2), (1, 1))
    def test_of_towers_that_compute_together_or_in_turn(self, at_a_time, computing):
        train = _graph(towers=2, at_a_time=at_a_time or 2)
        wanted = 2 * _WEIGHTS + 2 * (_WEIGHTS + _IMAGES) + computing * 2 * _LAYER
        self._assert_about(step_memory.estimate(train), wanted)

    def test_of_rounds(self):
        train = _graph(batch_size=_BATCH // 2, accumulate_steps=2)
        wanted = 2 * _WEIGHTS + 2 * _WEIGHTS + _LAYER + _IMAGES
        self._assert_about(step_memory.estimate(train), wanted)

    def test_of_a_pipeline_activations_are_not_counted(self):
        train = _graph(pipeline=Pipeline(micro_batches=2))
        self._assert_about(step_memory.estimate(train), 3 * _WEIGHTS + _IMAGES)


class CheckTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.lines = []
        patch = mock.patch.object(step_memory, "estimate", return_value=10 * 10**9)
        patch.start()
        self.addCleanup(patch.stop)

    def _check(self, *limits):
        limits = [Limit(*limit) for limit in limits]
        step_memory.check(None, limits, self.lines.append)

    def test_what_surely_fits(self):
        self._check()
        self._check(("a", 15 * 10**9, 15 * 10**9))
        self.assertEmpty(self.lines)

    def test_what_may_not_fit(self):
        self._check(("a", 10 * 10**9, 9 * 10**9), ("b", 9 * 10**9, 10 * 10**9))
        self.assertEqual(
            self.lines,
            [
                "Memory may run out: a step needs 10.0 GB or more, and a leaves 9.0 GB;"
                " if it does, lower `batch_size` (`accumulate_steps` keeps the examples"
                " of a step) or write `recompute=block`."
            ],
        )

    def test_what_cannot_fit(self):
        with self.assertRaisesRegex(
            ValueError, "^a step needs about 10.0 GB of memory, and b leaves 7.0 GB; lo"
        ):
            self._check(("a", 9 * 10**9, 10**9), ("b", 7 * 10**9, 10 * 10**9))
        self.assertEmpty(self.lines)


class RunTest(digit_runs.Runs):
    def test_a_run_is_refused_before_its_first_step(self):
        limit = Limit("the least", 150_000, 150_000)
        with mock.patch.object(memory_limits, "of_process", return_value=[limit]):
            with self.assertRaisesRegex(ValueError, "^a step needs .* the least leave"):
                self.run_flags(num_batches=1, batch_size=64)
