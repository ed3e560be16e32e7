"""The examples of clients that were dropped are left out, or taken again."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.layout import placement
from towers.options import Options
from towers.variable_update import synchronous, train_steps
from towers.variable_update.dropped_examples import DroppedExamples

v1 = tf.compat.v1

_CPU = placement.device("CPU", 0)
_SIZES = (4, 2, 3)  # of a tower of each of three clients


class _Dropped:
    """What one client counts, step by step.

    Args:
      client: whose.
      **options: of `DroppedExamples`.
    """

    def __init__(self, client: int, **options):
        with tf.Graph().as_default():
            where = placement.Placement(
                *("cpu", (_CPU,), (_CPU,), (_CPU,)), client=client, clients=3
            )
            mode = synchronous.ParameterServer(where)
            counters = train_steps.create_counters(mode, Options(batch_size=1))
            self.dropped = DroppedExamples(counters, where, _SIZES, **options)
            self.used = v1.placeholder(tf.bool, [3])
            limit = options["limit"] or 2**40
            left = tf.clip_by_value(limit - counters.position_before, 0, sum(_SIZES))
            more, changes = self.dropped.consumed(left, self.used)
            self.step = [*changes, counters.position.assign_add(more).op]
            self.position = counters.position
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def take(self, *used: int) -> tuple[int, int, list[int]]:
        """After a step: the position, that of the client, and what is left of each."""
        self.session.run(self.step, {self.used: np.isin(range(3), used)})
        return self.now()

    def now(self) -> tuple[int, int, list[int]]:
        fetches = [self.position, self.dropped.position, self.dropped.left]
        position, mine, left = self.session.run(fetches)
        return int(position), int(mine), left.tolist()


class DroppedExamplesTest(absltest.TestCase):
    def test_skipped_ones_are_counted(self):
        examples = _Dropped(1, limit=25, replay=False)
        self.assertEqual(examples.now(), (0, 0, [4, 2, 3]))
        self.assertEqual(examples.take(0, 2), (9, 9, [4, 2, 3]))
        self.assertEqual(examples.take(0, 1, 2), (18, 18, [4, 2, 1]))
        self.assertEqual(examples.take(0), (25, 25, [0, 0, 0]))
        self.assertEqual(examples.session.run(examples.dropped.skipped), 2 + 2 + 1)
        shares = examples.session.run(examples.dropped.shares)
        np.testing.assert_allclose(shares, np.array(_SIZES) / 9, rtol=1e-6)

    def test_those_that_are_taken_again_have_their_place(self):
        examples = _Dropped(1, limit=20, replay=True)
        self.assertIsNone(examples.dropped.skipped)
        self.assertEqual(examples.take(0, 2), (7, 0, [4, 2, 3]))
        self.assertEqual(examples.take(0, 1), (13, 9, [2, 2, 3]))
        # The first client has 2 left up to the limit, the others 2 and 3 of this step.
        self.assertEqual(examples.take(0, 1, 2), (20, 18, [0, 0, 0]))

    def test_without_a_limit_all_are_left(self):
        examples = _Dropped(0, limit=None, replay=True)
        self.assertEqual(examples.take(0), (4, 9, [4, 2, 3]))
        self.assertEqual(examples.take(0), (8, 18, [4, 2, 3]))
