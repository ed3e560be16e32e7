"""Faults in `towers/verification/`: what is compared with what, and how closely."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/verification/agreement.py",
        (
            "if difference.relative > bound:",
            "if difference.ulps > 1000 * bound:",
            "verification/agreement_test::test_every_mode_agrees",
        ),
        (
            "if not same_bits(saved, value):",
            "if distance(saved, value)[1] > 1e-4:",
            "verification/agreement_test::test_replicas_that_exchange",
        ),
        (
            "expected = references[(key.tower or 0) % len(references)]",
            "expected = references[0]",
            "verification/agreement_test::test_every_mode_agrees",
        ),
        (
            "first = first or difference",
            "first = difference",
            "verification/agreement_test::test_finds_a_faulty_mode",
        ),
    ),
    *of_file(
        "towers/verification/verdict.py",
        (
            "gap = np.max(gaps, initial=0.0)",
            "gap = np.mean(gaps) if len(gaps) else 0.0",
            "verification/verdict_test::test_of_the_largest",
        ),
        (
            "if not np.isfinite(gap):\n        return np.inf, np.inf",
            "if not np.isfinite(gap):\n        return 0.0, 0.0",
            "verification/verdict_test::test_of_the_largest_element",
        ),
        (
            "travels = self.num_towers * _ROUNDING.get(self.transfer, 0.0)",
            "travels = 1e3 * _ROUNDING.get(self.transfer, 0.0)",
            "verification/agreement_test::test_gradients_in_16_bits_are_held_to_their_rounding",
        ),
        (
            "return self.first is None",
            "return self.first is None or self.largest.relative < 1.0",
            "verification/verdict_test::test_a_model_that_does_not_repeat_itself_is_named",
        ),
        (
            "return max(stages, self.shards.devices if self.shards else 1)",
            "return stages",
            "verification/verdict_test::test_what_is_spread",
        ),
    ),
    *of_file(
        "towers/verification/rounding_reference.py",
        (
            "rounded = _ROUNDED * step * self._updates",
            "rounded = 1e3 * step * self._updates",
            "verification/rounding_reference_test::test_what_little_has_moved_is_held_to_that",
        ),
        (
            "epsilon = _ROUNDINGS * np.finfo(value.dtype).eps",
            "epsilon = np.finfo(value.dtype).eps",
            "verification/rounding_reference_test::test_a_start_is_off_by_sixteen_roundings",
        ),
        (
            "if not self.repeats:",
            "if False:",
            "verification/agreement_test::test_a_model_that_does_not_repeat_itself_is_no_rounding",
        ),
    ),
    *of_file(
        "towers/verification/reference.py",
        (
            "rate(epochs * count)",
            "rate(epochs)",
            "verification/agreement_test::test_independent_towers_keep_to_the_schedule_of_all",
        ),
        (
            "return feed._replace(batches=[feed.batches[self._tower]])",
            "return feed._replace(batches=[feed.batches[0]])",
            "verification/agreement_test::test_every_mode_agrees",
        ),
        (
            "return GradientExchange() if mode.together else "
            "GradientExchange(max_staleness=0)",
            "return GradientExchange()",
            "verification/agreement_test::test_every_mode_agrees",
        ),
        (
            "number *= count",
            "number += count",
            "verification/agreement_test::test_batch_norm_is_that_of_one_tower_with_the_same_pieces",
        ),
    ),
    *of_file(
        "towers/verification/workers.py",
        (
            "undone = [case for case in rest if case not in outcomes]",
            "undone = []",
            "verification/workers_test::test_what_a_helper_leaves_is_done",
        ),
        (
            "case = left.pop()",
            "case = left.popleft()",
            "verification/workers_test::test_a_helper_takes_from_the_end",
        ),
    ),
    *of_file(
        "towers/verification/cases.py",
        (
            "allowed = choices if mode.exact else _plain(choices)",
            "allowed = _plain(choices)",
            "verification/cases_test",
        ),
        (
            "waits = self.gathered and m > 1 and not SCHEDULES[name].gathers",
            "waits = False",
            "verification/cases_test",
        ),
        (
            "needed <= self.num_devices",
            "needed < self.num_devices",
            "verification/cases_test::test_what_cannot_be_cut_is_left_out",
        ),
    ),
    *of_file(
        "towers/verification/selection.py",
        (
            "if not any(batch % m for batch in batches)",
            "if not all(batch % m for batch in batches)",
            "verification/selection_test",
        ),
        (
            "return (1,) if pieces else verify.accumulate_steps",
            "return verify.accumulate_steps",
            "verification/selection_test::test_all_share_it",
        ),
    ),
]
