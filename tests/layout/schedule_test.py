"""Schedules: each is possible, and has its published time and memory."""

from absl.testing import parameterized

from towers.layout import schedule
from towers.layout.schedule import SCHEDULES, Legs, Pass

_STAGES = (1, 2, 3, 4, 8)
_MICRO_BATCHES = (1, 2, 3, 5, 8, 17, 32)


def _cases():
    for name, row in SCHEDULES.items():
        for chunks in (2, 3) if row.interleaves else (1,):
            for stages in _STAGES:
                for micro_batches in _MICRO_BATCHES:
                    yield name, stages, micro_batches, chunks


def _time(order, backward=2.0):
    return max(
        span.end
        for span in schedule.simulate(order, lambda p: backward if p.backward else 1.0)
    )


class OrderTest(parameterized.TestCase):
    @parameterized.parameters(*_cases())
    def test_every_pass_runs_once_after_what_it_needs(
        self, name, stages, micro_batches, chunks
    ):
        order = SCHEDULES[name].order(stages, micro_batches, chunks)
        self.assertLen(order, stages)
        for stage, passes in enumerate(order):
            self.assertEqual({p.chunk % stages for p in passes}, {stage})
        passes = schedule.sequence(order)
        wanted = {
            Pass(c, m, backward)
            for c in range(stages * chunks)
            for m in range(micro_batches)
            for backward in (False, True)
        }
        self.assertLen(passes, len(wanted))
        done = set()
        for _, pass_ in passes:
            self.assertContainsSubset(schedule.needs(pass_, stages * chunks), done)
            done.add(pass_)
        self.assertEqual(done, wanted)
        for stage, passes_of_stage in enumerate(order):
            self.assertEqual(
                [p for s, p in passes if s == stage], list(passes_of_stage)
            )

    @parameterized.parameters(*_cases())
    def test_the_time_is_that_of_the_formula(self, name, stages, micro_batches, chunks):
        order = SCHEDULES[name].order(stages, micro_batches, chunks)
        busy = 3.0 * micro_batches * chunks
        share = busy / _time(order)
        ideal = schedule.busy_share(stages, micro_batches, chunks)
        self.assertAlmostEqual(share, ideal)
        if chunks > 1 and micro_batches % stages and micro_batches > stages:
            # A short last group leaves gaps, but no more than if it were full.
            full = -(-micro_batches // stages) * stages
            padded = _time(SCHEDULES[name].order(stages, full, chunks))
            self.assertLessEqual(busy / share, padded)

    @parameterized.product(stages=_STAGES, micro_batches=_MICRO_BATCHES)
    def test_activations_held(self, stages, micro_batches):
        for passes in schedule.gpipe(stages, micro_batches):
            self.assertEqual(schedule.held(passes), micro_batches)
        order = schedule.one_forward_one_backward(stages, micro_batches)
        for s, passes in enumerate(order):
            self.assertEqual(schedule.held(passes), min(stages - s, micro_batches))
        for s, passes in enumerate(schedule.interleaved(stages, micro_batches, 2)):
            most = 2 * (stages - 1 - s) + stages + 1
            self.assertLessEqual(schedule.held(passes), most)
            if micro_batches % stages == 0:
                ahead = 2 * (stages - 1 - s) + stages
                begin = next(k for k, pass_ in enumerate(passes) if pass_.backward)
                self.assertEqual(begin, min(ahead + 1, 2 * micro_batches))

    def test_forward_only_has_no_backward_passes(self):
        order = schedule.forward_only(2, 3, 2)
        self.assertEqual([p.chunk for _, p in schedule.sequence(order)].count(3), 3)
        self.assertFalse(any(p.backward for passes in order for p in passes))


class CheckTest(parameterized.TestCase):
    def test_stages_that_wait_for_each_other_are_named(self):
        forward, back = Pass(0, 0), Pass(0, 0, True)
        order = [[back, forward], [Pass(1, 0), Pass(1, 0, True)]]
        with self.assertRaisesRegex(
            schedule.ScheduleError,
            "wait for each other: stage 0 stands at backward of micro-batch 0 through "
            "chunk 0, for which stage 0 must first run forward",
        ):
            schedule.sequence(order)

    def test_a_circle_over_two_stages_is_found(self):
        a, b = schedule.gpipe(2, 2)
        a[1], a[2] = a[2], a[1]  # backward of 0 before forward of 1,
        b[0], b[1] = b[1], b[0]  # which is the first that the other runs
        with self.assertRaisesRegex(
            schedule.ScheduleError,
            "stage 0 stands at backward of micro-batch 0 .*stage 1 must first run.*; "
            "stage 1 stands at forward of micro-batch 1 .*stage 0 must",
        ):
            schedule.sequence([a, b])

    def test_a_wait_that_can_never_be_met_is_named(self):
        a, b = schedule.gpipe(2, 2)
        b.remove(Pass(1, 1))
        with self.assertRaisesRegex(
            schedule.ScheduleError,
            "waits for forward of micro-batch 1 through chunk 1, which no stage runs",
        ):
            schedule.sequence([a, b])

    def test_gradients_are_added_in_the_order_of_the_micro_batches(self):
        forward = [Pass(0, m) for m in (0, 1)]
        backward = [Pass(0, m, backward=True) for m in (0, 1)]
        schedule.sequence([forward + backward])
        with self.assertRaisesRegex(
            schedule.ScheduleError, "backward of micro-batch 1"
        ):
            schedule.sequence([forward + backward[::-1]])

    def test_a_pass_that_runs_twice_is_named(self):
        a, b = schedule.gpipe(2, 2)
        with self.assertRaisesRegex(schedule.ScheduleError, "twice.*stages 0 and 1"):
            schedule.sequence([a, [a[0], *b]])

    def test_no_passes(self):
        with self.assertRaisesRegex(schedule.ScheduleError, "no stage"):
            schedule.sequence([[], []])

    @parameterized.parameters(*((name,) for name in SCHEDULES))
    def test_an_exchange_of_passes_is_found_or_harmless(self, name):
        """Whatever two neighbours trade places, the check or the result is right."""
        chunks = 2 if SCHEDULES[name].interleaves else 1
        original = SCHEDULES[name].order(3, 4, chunks)
        refused = 0
        for stage, passes in enumerate(original):
            for k in range(len(passes) - 1):
                order = [list(passes_of_stage) for passes_of_stage in original]
                passes_of_stage = order[stage]
                passes_of_stage[k], passes_of_stage[k + 1] = (
                    passes_of_stage[k + 1],
                    passes_of_stage[k],
                )
                try:
                    sequence = schedule.sequence(order)
                except schedule.ScheduleError:
                    refused += 1
                else:
                    self.assertLen(sequence, sum(map(len, order)))
        self.assertGreater(refused, 0)


class LegsTest(parameterized.TestCase):
    def test_a_group_goes_leg_by_leg_where_micro_batches_meet(self):
        counts = {(0, False): 2, (1, True): 3}
        alone, together = Legs(counts), Legs(counts, 2)
        order = schedule.gpipe(2, 2)
        first, second = (legs.divide(order)[0][:4] for legs in (alone, together))
        self.assertEqual(
            [(p.micro_batch, p.leg) for p in first], [(0, 0), (0, 1), (1, 0), (1, 1)]
        )
        self.assertEqual(
            [(p.micro_batch, p.leg) for p in second], [(0, 0), (1, 0), (0, 1), (1, 1)]
        )
        self.assertEqual(
            [(p.micro_batch, p.leg) for p in together.divide(order)[1] if p.backward],
            [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2)],
        )

    @parameterized.parameters(*_cases())
    def test_only_what_gathers_can_meet(self, name, stages, micro_batches, chunks):
        """With batch norm in the last chunk, in every schedule."""
        legs = Legs({(stages * chunks - 1, False): 2}, micro_batches)
        order = legs.divide(SCHEDULES[name].order(stages, micro_batches, chunks))
        if SCHEDULES[name].gathers or micro_batches == 1:
            passes = [pass_ for _, pass_ in schedule.sequence(order, legs)]
            last = {pass_: k for k, pass_ in enumerate(passes)}
            end = stages * chunks - 1
            first = min(last[Pass(end, m, False, 1)] for m in range(micro_batches))
            for m in range(micro_batches):
                self.assertLess(last[Pass(end, m)], first)
        else:
            with self.assertRaisesRegex(schedule.ScheduleError, "leg 1 of the forward"):
                schedule.sequence(order, legs)

    @parameterized.parameters(*_cases())
    def test_legs_of_one_micro_batch_never_block(
        self, name, stages, micro_batches, chunks
    ):
        count = stages * chunks
        counts = {(c, b): 2 + c % 2 for c in range(count) for b in (False, True)}
        legs = Legs(counts)
        order = legs.divide(SCHEDULES[name].order(stages, micro_batches, chunks))
        done = set()
        for _, pass_ in schedule.sequence(order, legs):
            self.assertContainsSubset(schedule.needs(pass_, count, legs), done)
            done.add(pass_)


class NumbersTest(parameterized.TestCase):
    @parameterized.parameters((2, 1), (4, 1), (8, 1), (4, 2), (3, 3), (2, 20))
    def test_fewest_micro_batches_for_a_share(self, stages, chunks):
        count = schedule.micro_batches_for(0.95, stages, chunks)
        group = stages if chunks > 1 else 1
        for m in range(count, count + 3 * group, group):
            self.assertGreaterEqual(schedule.busy_share(stages, m, chunks), 0.95)
        self.assertEqual(count % group, 0)  # full groups, of which it needs many
        for m in range(1, count):
            self.assertLess(schedule.busy_share(stages, m, chunks), 0.95)

    @parameterized.product(
        stages=(1, 2, 4), micro_batches=(1, 2, 5, 8), legs=(1, 2, 3, 7)
    )
    def test_legs_that_meet_keep_stages_busy_as_the_formula_has_it(
        self, stages, micro_batches, legs
    ):
        order = schedule.gpipe(stages, micro_batches)
        counts = {(c, b): legs for c in range(stages) for b in (False, True)}
        share = schedule.busy_share_in_legs(order, Legs(counts, micro_batches))
        busy = micro_batches * legs
        waits = (stages - 1) * ((legs - 1) * micro_batches + 1)
        self.assertAlmostEqual(share, busy / (busy + waits))
        if legs == 1:
            whole = schedule.busy_share(stages, micro_batches)
            self.assertAlmostEqual(share, whole)

    @parameterized.product(stages=(2, 3), backward=(1, 2))
    def test_where_one_stage_meets_no_number_of_micro_batches_is_enough(
        self, stages, backward
    ):
        for chunk in range(stages):
            counts = {(chunk, False): 2, (chunk, True): backward}
            share = schedule.busy_share_in_legs(
                schedule.gpipe(stages, 64), Legs(counts, 64)
            )
            self.assertLess(share, 6 / 7 if backward == 1 else 2 / 3)

    def test_unequal_chunks_wait_for_the_slowest(self):
        order = schedule.one_forward_one_backward(2, 8)
        slow = schedule.simulate(order, lambda p: 3.0 if p.chunk else 1.0)
        self.assertAlmostEqual(max(span.end for span in slow), 1 + 8 * 6 + 1)
