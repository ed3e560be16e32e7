"""Distances between values, and the table of results."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.gradients.exchange import GradientExchange
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import verdict
from towers.verification.verdict import Case


class DistanceTest(parameterized.TestCase):
    @parameterized.parameters(
        ([1.0, 4.0], [1.0, 4.0], 0.0, 0.0),
        ([1.0, 4.0], [1.0 + 2.0**-21, 4.0], 1.0, 2.0**-23),
        ([1.0, 2.0, 4.0], [1.0, 2.5, 5.0], 2.0**21, 0.25),
        ([0.0], [0.5], 2.0**22, 0.5),
        ([1.0], [np.nan], np.inf, np.inf),
        ([np.nan], [1.0], np.inf, np.inf),
        ([np.nan], [np.nan], np.inf, np.inf),
        ([np.inf], [np.inf], np.inf, np.inf),
        ([1.0], [1.0, 1.0], np.inf, np.inf),
        ([], [], 0.0, 0.0),
    )
    def test_of_the_largest_element(self, first, second, ulps, relative):
        arrays = np.array(first, "f4"), np.array(second, "f4")
        self.assertEqual(verdict.distance(*arrays), (ulps, relative))

    def test_of_counters_and_of_nothing(self):
        self.assertEqual(verdict.distance(np.int64(4), np.int64(5)), (1.0, 0.25))
        self.assertEqual(verdict.distance(np.float32(1), None), (np.inf, np.inf))


class SameBitsTest(parameterized.TestCase):
    @parameterized.parameters(
        (np.float32([0.0, np.nan]), np.float32([0.0, np.nan]), True),
        (np.float32([0.0]), np.float32([-0.0]), False),
        (np.float32([1.0]), np.float32(1.0), False),
        (np.float32([1.0]), np.float64([1.0]), False),
        (np.int64(3), np.int64(3), True),
        (np.int64(3), np.int64(4), False),
    )
    def test_shape_dtype_and_every_bit(self, first, second, same):
        self.assertEqual(verdict.same_bits(first, second), same)


class WordsTest(absltest.TestCase):
    def test_the_table_has_room_for_every_case(self):
        none = verdict.Difference(0, "", 0.0, 0.0)
        how = Pipeline(2, 4, "interleaved", recompute="block")
        cases = [Case(name, 2) for name in VARIABLE_UPDATES]
        cases += [
            Case("relaxed", 16, GradientExchange("hierarchical", 8, 1024), 2, how)
        ]
        table = verdict.Table(cases)
        ends = {table.heading.index("towers") + len("towers")}
        for case in cases:
            row = table.row(verdict.Outcome(case, none, None))
            ends.add(row.index(f" {case.num_towers}  ") + len(f" {case.num_towers}"))
        self.assertLen(ends, 1)

    def test_the_row_and_the_sentence_name_the_first_difference(self):
        first = verdict.Difference(2, "replica_1/logits/kernel", 8e6, 0.5)
        case = Case("replicated", 4, GradientExchange("xring#2"))
        wrong = verdict.Outcome(case, first, first)
        none = verdict.Difference(0, "", 0.0, 0.0)
        right = verdict.Outcome(Case("parameter_server", 4), none, None)
        self.assertEqual(
            verdict.Table([case]).row(wrong).split(),
            "replicated xring#2 4 8e+06 5.0e-01 step 2, replica_1/logits/kernel "
            "DIFFERS".split(),
        )
        self.assertEqual(
            verdict.summary([right, wrong], 1e-5),
            "1 of 2 agree with one tower to 1e-05; replicated (xring#2) with 4 towers "
            "differs from step 2 on, first in replica_1/logits/kernel",
        )

    def test_what_is_not_the_mean_says_so(self):
        none = verdict.Difference(0, "", 0.0, 0.0)
        case = Case("replicated", 4, GradientExchange("xring#2"))
        wrong = verdict.Outcome(case, none, None, mean_error="it is a sum")
        self.assertEqual(
            (wrong.verdict, wrong.agrees), ("DIFFERS (not the mean)", False)
        )
        self.assertEqual(
            verdict.summary([wrong, wrong], 1e-5),
            "0 of 2 agree with one tower to 1e-05; replicated (xring#2) with 4 towers "
            "differs; it is a sum",
        )

    def test_what_is_held_to_a_bound_of_its_own_says_so(self):
        none = verdict.Difference(0, "", 0.0, 0.0)
        case = Case("parameter_server", 2, transfer=tf.bfloat16)
        rounded = verdict.Outcome(case, none, None, case.bound(1e-5))
        exact = verdict.Outcome(Case("parameter_server", 4), none, None)
        self.assertEqual(rounded.verdict, "agrees (bound 2e-02)")
        self.assertEqual(
            verdict.summary([rounded, exact], 1e-5),
            "2 of 2 agree with one tower to 1e-05, 1 of them to the rounding of 16 "
            "bits",
        )
        self.assertEqual(
            verdict.summary([rounded], 1e-5),
            "1 of 1 agree with one tower to the rounding of 16 bits",
        )

    def test_what_rounding_explains_says_so(self):
        largest = verdict.Difference(3, "kernel", 900.0, 2e-4)
        case = Case("replicated", 2)
        outcome = verdict.Outcome(case, largest, None, grown=5e-4)
        self.assertEqual(outcome.verdict, "agrees (rounding grows to 5e-04)")
        self.assertEqual(
            verdict.summary([outcome], 1e-5),
            "1 of 1 agree with one tower to 1e-05, 1 as far as the model lets rounding "
            "grow",
        )

    def test_a_model_that_does_not_repeat_itself_is_named(self):
        first = verdict.Difference(1, "kernel", 9e5, 0.5)
        case = Case("replicated", 2)
        outcome = verdict.Outcome(case, first, first, repeats=False)
        self.assertRegex(
            verdict.summary([outcome], 1e-5),
            "^0 of 1 agree .*, first in kernel; one tower does not even take its own",
        )

    def test_what_is_spread(self):
        for shards, words in (
            (Shards(classifier=2), "classes over 2"),
            (Shards(embeddings=3), "rows over 3"),
            (Shards(2, 2), "2 rounds, classes and rows over 2"),
        ):
            rounds = 2 if "rounds" in words else 1
            case = Case("replicated", 4, rounds=rounds, shards=shards)
            self.assertEqual(case.reduction, words)
            self.assertEqual(case.devices, shards.devices)
