"""The cases that are compared."""

import itertools

import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.gradients.exchange import GradientExchange
from towers.layout.schedule import SCHEDULES
from towers.layout.shards import Shards
from towers.layout.stages import RECOMPUTE
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import cases
from towers.verification.verdict import Case


class CasesTest(absltest.TestCase):
    def test_gradients_are_packed_where_steps_are_exact(self):
        choices = [
            GradientExchange("pscpu"),
            GradientExchange("pscpu", gradient_repacking=2),
        ]
        chosen = cases.cases((2,), choices, names=["replicated", "relaxed"])
        self.assertEqual(
            [(case.variable_update, case.reduction) for case in chosen],
            [
                ("replicated", "pscpu"),
                ("replicated", "pscpu, 2 packs"),
                ("relaxed", "pscpu"),
            ],
        )

    def test_every_choice_with_more_than_one_tower(self):
        choices = [GradientExchange("pscpu"), GradientExchange("xring")]
        names = ["parameter_server", "replicated", "independent", "relaxed"]
        chosen = cases.cases((1, 2), choices, names=names)
        self.assertEqual(
            [(c.variable_update, c.num_towers, c.reduction) for c in chosen],
            [
                ("parameter_server", 1, "-"),
                ("parameter_server", 2, "-"),
                ("parameter_server", 2, "whole gradients"),
                ("replicated", 1, "pscpu"),
                ("replicated", 2, "pscpu"),
                ("replicated", 2, "xring"),
                ("independent", 1, "-"),
                ("independent", 2, "-"),
                ("relaxed", 1, "pscpu"),
                ("relaxed", 2, "pscpu"),
                ("relaxed", 2, "xring"),
            ],
        )
        several = cases.cases(
            (1, 2),
            cases.exchanges(["tree", "xring"], (2,), ()),
            rounds=(1, 3),
            names=["replicated"],
        )
        self.assertEqual(
            [(c.num_towers, c.reduction) for c in several],
            [
                (1, "tree, 2 packs"),
                (1, "tree, 2 packs, 3 rounds"),
                (2, "tree, 2 packs"),
                (2, "xring, 2 packs"),
                (2, "tree, 2 packs, 3 rounds"),
            ],
        )
        independent = cases.cases((2,), choices, names=["independent"])
        self.assertEqual(independent, [Case("independent", 2)])

    def test_one_packing_at_a_time(self):
        chosen = cases.exchanges(["tree"], (0, 1, 3), (0, 64))
        self.assertEqual(
            [Case("replicated", 2, exchange).reduction for exchange in chosen],
            ["tree", "tree, 1 pack", "tree, 3 packs", "tree, joined to 64 bytes"],
        )


class PipelinesTest(absltest.TestCase):
    def test_every_two_settings_meet(self):
        cuts = cases.Cuts(num_blocks=4)
        whole = cases.pipelined((1, 2, 4), cuts, thorough=True)
        few = cases.pipelined((1, 2, 4), cuts)
        self.assertLess(len(few), len(whole) / 8)
        self.assertLessEqual(set(few), set(whole))
        self.assertEqual(_pairs(few), _pairs(whole))
        hows = [case.pipeline for case in few]
        self.assertEqual({case.variable_update for case in few}, {*VARIABLE_UPDATES})
        self.assertEqual({how.schedule for how in hows}, {*SCHEDULES})
        self.assertEqual({how.recompute for how in hows}, {*RECOMPUTE} - {"auto"})

    def test_what_cannot_be_cut_is_left_out(self):
        chosen = cases.Cuts(2, schedules=("gpipe", "interleaved")).pipelines()
        self.assertEqual({how.stages for how in chosen}, {1, 2})
        self.assertEqual({how.schedule for how in chosen}, {"gpipe"})
        self.assertNotIn((1, 1, "none"), [h[:2] + h[5:6] for h in map(_tuple, chosen)])
        gathered = cases.Cuts(4, gathered=True).pipelines()
        several = {how.schedule for how in gathered if how.micro_batches > 1}
        self.assertEqual(several, {"gpipe"})
        cuts = cases.Cuts(4, stages=(2, 4), num_devices=4)
        used = {
            case.num_towers * case.pipeline.stages
            for case in cases.pipelined((1, 2, 4), cuts, thorough=True)
        }
        self.assertEqual(used, {2, 4})

    def test_the_words(self):
        case = cases.pipelined((2,), cases.Cuts(4, (2,), (8,), ("gpipe",), ("block",)))
        self.assertEqual(case[0].reduction, "gpipe K=2 M=8, recompute block")


class ShardedTest(absltest.TestCase):
    def test_every_two_settings_meet(self):
        shards = [Shards(2, 1), Shards(1, 2), Shards(2, 2)]
        names = ["parameter_server", "replicated"]
        cuts = cases.Cuts(num_blocks=4)
        chosen = cases.sharded((1, 2), shards, cuts, names=names, rounds=(1, 3))
        self.assertLess(len(chosen), 30)
        for first, second in itertools.combinations(range(3), 2):
            settings = [(c.variable_update, c.num_towers, c.shards) for c in chosen]
            self.assertEqual(
                {(each[first], each[second]) for each in settings},
                set(
                    itertools.product(
                        *[(names, (1, 2), shards)[i] for i in (first, second)]
                    )
                ),
            )
        for case in chosen:
            self.assertIn(case.pipeline and case.pipeline.stages, (None, 1, 2))
        hows = {
            (c.pipeline.stages, c.pipeline.recompute != "none")
            for c in chosen
            if c.pipeline
        }
        self.assertEqual(hows, set(itertools.product((1, 2), (False, True))))
        self.assertEqual({case.rounds for case in chosen}, {1, 3})

    def test_no_more_devices_than_there_are(self):
        cuts = cases.Cuts(4, stages=(), num_devices=4)
        chosen = cases.sharded((1, 2, 4), [Shards(2)], cuts, names=["replicated"])
        self.assertEqual([case.num_towers for case in chosen], [1, 2])
        self.assertEqual({case.pipeline for case in chosen}, {None})


class UnequalTest(absltest.TestCase):
    def test_in_every_exact_mode(self):
        chosen = cases.unequal(3, 8)
        exact = ["parameter_server", "replicated", "distributed_replicated"]
        self.assertEqual([case.variable_update for case in chosen], exact)
        self.assertEqual({case.batch_sizes for case in chosen}, {(4, 2, 2)})
        self.assertEqual(chosen[0].reduction, "batches of 4, 2, 2")

    def test_one_example_each_is_equal(self):
        self.assertEqual(cases.unequal(3, 3), [])
        self.assertEqual(cases.unequal(1, 8), [])


class NarrowTest(parameterized.TestCase):
    def test_every_reduction_by_turns(self):
        choices = cases.exchanges(["tree", "xring", "pscpu"])
        names = ["parameter_server", "replicated"]
        chosen = cases.narrow(4, choices, [tf.bfloat16, tf.float16], names=names)
        self.assertEqual(
            [(case.variable_update, case.reduction) for case in chosen],
            [
                ("parameter_server", "bfloat16"),
                ("parameter_server", "float16"),
                ("replicated", "tree, bfloat16"),
                ("replicated", "xring, float16"),
                ("replicated", "pscpu, bfloat16"),
            ],
        )
        self.assertEqual(chosen[0].bound(1e-5), 2 * 4 / 256)
        self.assertEqual(chosen[1].bound(1e-5), 2 * 4 / 2048)
        self.assertEqual(chosen[1].bound(1.0), 1.0)
        self.assertEqual(Case("replicated", 4).bound(1e-5), 1e-5)
        self.assertEqual(Case("replicated", 4).bound(1e-5, tf.bfloat16), 32 / 256)
        rounds = Case("replicated", 4, rounds=8)
        self.assertEqual(rounds.bound(1e-5, tf.float16), 2 * 4 * 8 / 2048)
        self.assertEqual(cases.narrow(4, choices, []), [])

    @parameterized.parameters("gpu", "cpu")
    def test_each_in_a_dtype_that_it_can_carry(self, kind):
        choices = cases.exchanges(["collective", "tree", "pscpu:1k:collective"])
        where = dict(names=["replicated"], kind=kind)
        chosen = cases.narrow(4, choices, [tf.bfloat16, tf.float16], **where)
        first = "float16" if kind == "gpu" else "bfloat16"
        self.assertEqual(chosen[0].reduction, f"collective, {first}")
        self.assertLen(chosen, 3)
        chosen = cases.narrow(4, choices, [tf.bfloat16], **where)
        self.assertLen(chosen, 1 if kind == "gpu" else 3)


class SortedOnceTest(absltest.TestCase):
    def test_by_mode_and_number_of_towers(self):
        names = "parameter_server", "replicated"
        actual = [Case(n, k, rounds=r) for r in (1, 2) for k in (2, 1) for n in names]
        actual = [
            (c.variable_update, c.num_towers, c.rounds)
            for c in cases.sorted_once(actual + actual)
        ]
        self.assertEqual(
            actual, [(n, k, r) for n in names for k in (1, 2) for r in (1, 2)]
        )


def _tuple(how):
    names = ("stages", "micro_batches", "schedule", "chunks", "cut", "recompute")
    return tuple(getattr(how, name) for name in names)


def _pairs(chosen):
    """Every two values of different settings that are in one case."""
    return {
        pair
        for case in chosen
        for pair in itertools.combinations(enumerate(cases._settings(case)), 2)
    }
