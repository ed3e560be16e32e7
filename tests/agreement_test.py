"""The comparison with one tower, and the faults that it must find."""

import tensorflow as tf
from absl.testing import absltest, parameterized

from tests import trainer
from towers import agreement, synchronous, verdict
from towers.exchange import Exchange
from towers.optimizer import Update
from towers.variable_update import VARIABLE_UPDATES
from towers.verdict import Case

KERNEL = "hidden/dense/kernel"


class _Sums(synchronous.ParameterServer):
    """Adds the towers' gradients where it should take their mean."""

    def reduce(self, towers, names):
        """As if no tower had divided."""
        [means] = super().reduce(towers, names)
        return [[float(len(towers)) * gradient for gradient in means]]


class _Stale(synchronous.Replicated):
    """Leaves the last tower's replica as it is."""

    def update(self, gradients, names, update, rate):
        """All but the last."""
        return super().update(gradients, names, update, rate)[:-1]


class _OtherStart(synchronous.Replicated):
    """Draws the second tower's initial values from another seed, and keeps them."""

    def __init__(self, placement, *, seed, exchange):
        super().__init__(placement, seed=seed, exchange=exchange)
        self._copies[1]._seed = seed + 1

    def sync(self):
        """Nothing."""
        return tf.no_op()


class _Mixes(synchronous.Independent):
    """Says that it exchanges nothing, and gives all the first tower's gradients."""

    def reduce(self, towers, names):
        """The first tower's to each."""
        return super().reduce([towers[0]] * len(towers), names)


class _Forgets(synchronous.ParameterServer):
    """Does not save the optimizer's slots."""

    def saved(self, variables):
        """The others."""
        found = super().saved(variables)
        return {n: v for n, v in found.items() if "Momentum" not in n}


class _OtherDropout:
    """A source whose second tower draws dropout from another seed."""

    def __init__(self, source):
        self.num_classes = source.num_classes
        self.num_examples = source.num_examples
        self._source = source

    def feed(self, groups, **options):
        """The first example's index, which dropout draws from, is another."""
        feed = self._source.feed(groups, **options)
        first, *others = feed.batches
        others = [batch._replace(first=batch.first + 1000) for batch in others]
        return feed._replace(batches=[first, *others])


def _subject(**changes) -> agreement.Subject:
    parts = dict(
        model=trainer.dense_model(),
        source=trainer.random_source(),
        update=trainer.MOMENTUM,
        global_batch=8,
        num_steps=3,
    )
    return agreement.Subject(**{**parts, **changes})


def _compare(mode: type | None = None, name="", towers=2, **changes):
    """The outcome of one case, of a faulty mode if one is given."""
    modes = dict(VARIABLE_UPDATES)
    if mode:
        name, modes["planted"] = "planted", mode
    (outcome,) = agreement.compare(
        _subject(**changes), [Case(name, towers)], modes=modes
    )
    return outcome


class CompareTest(parameterized.TestCase):
    def test_every_mode_agrees(self):
        choices = agreement.exchanges(("xring#2",), (0,), (0, 1024))
        wanted = agreement.cases((2,), choices)
        names = ("replicated", "independent", "asynchronous")
        wanted += agreement.cases((2,), choices[:1], rounds=(2,), names=names)
        outcomes = list(agreement.compare(_subject(), wanted))
        self.assertEqual([outcome.case for outcome in outcomes], wanted)
        self.assertEqual(
            {o.case.variable_update for o in outcomes}, {*VARIABLE_UPDATES}
        )
        for outcome in outcomes:
            self.assertEqual(outcome.verdict, "agrees", verdict.row(outcome))
            self.assertLess(outcome.largest.ulps, 40)

    @parameterized.parameters(
        (_Sums, 1, KERNEL),
        (_Stale, 1, "replica_1/" + KERNEL),
        (_OtherStart, 0, "replica_1/" + KERNEL),
        (_Mixes, 1, "replica_1/" + KERNEL),
        (_Forgets, 0, KERNEL + "/Momentum"),
    )
    def test_finds_a_faulty_mode(self, mode, step, variable):
        outcome = _compare(mode)
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertTrue(outcome.failed)
        self.assertEqual((outcome.first.step, outcome.first.variable), (step, variable))
        self.assertGreater(outcome.largest.relative, 1e-4)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_finds_a_tower_with_another_dropout_seed(self, name):
        source = _OtherDropout(trainer.random_source())
        outcome = _compare(name=name, source=source)
        # Alone, the second tower draws from that seed too: it keeps its property.
        self.assertEqual(outcome.agrees, name == "independent")
        if name == "relaxed":  # it applies the first gradients in the second step
            self.assertStartsWith(outcome.first.variable, "carried/gradient/")
        elif not outcome.agrees:
            self.assertEqual(outcome.first.step, 1)
            self.assertEqual(outcome.first.variable, KERNEL)

    def test_a_looser_bound_admits_more(self):
        self.assertTrue(_compare(_Sums, bound=1e9).agrees)

    def test_independent_towers_keep_to_the_schedule_of_all(self):
        schedule = trainer.Piecewise((0.05, 0.5), (16 / 70,))  # from the third step on
        update = Update("momentum", schedule)
        self.assertTrue(_compare(name="independent", towers=4, update=update).agrees)

    def test_batch_norm_may_differ_with_more_than_one_tower(self):
        changes = dict(name="replicated", model=trainer.normed_model())
        many, one = _compare(**changes), _compare(**changes, towers=1)
        self.assertEqual(many.verdict, verdict.PER_TOWER)
        self.assertIsNotNone(many.first)
        self.assertFalse(many.failed)
        self.assertEqual(one.verdict, "agrees")
        alone = _compare(**{**changes, "name": "independent"})
        self.assertEqual(alone.verdict, "agrees")
        self.assertEqual(
            verdict.summary([one, many], 1e-5),
            "1 of 1 agree with one tower to 1e-05; 1 may differ "
            "by design: batch norm per tower",
        )

    def test_batch_norm_over_all_towers_is_that_of_one(self):
        options = agreement.graph.Options(batch_size=1, batch_norm="sync")
        for name in ("parameter_server", "replicated"):
            outcome = _compare(name=name, model=trainer.normed_model(), options=options)
            self.assertEqual(outcome.verdict, "agrees")

    def test_a_fault_before_the_first_step_is_not_batch_norm(self):
        outcome = _compare(_OtherStart, model=trainer.normed_model())
        self.assertTrue(outcome.failed)


class CasesTest(parameterized.TestCase):
    def test_every_choice_with_more_than_one_tower(self):
        choices = [Exchange("pscpu"), Exchange("xring")]
        names = ["parameter_server", "replicated", "independent", "relaxed"]
        found = agreement.cases((1, 2), choices, names=names)
        self.assertEqual(
            [(c.variable_update, c.num_towers, c.reduction) for c in found],
            [
                ("parameter_server", 1, "-"),
                ("parameter_server", 2, "-"),
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
        several = agreement.cases(
            (1, 2),
            agreement.exchanges(["tree", "xring"], (2,), ()),
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
                (2, "xring, 2 packs, 3 rounds"),
            ],
        )
        one = agreement.cases((2,), choices, names=["independent"])
        self.assertEqual(one, [Case("independent", 2)])

    def test_one_packing_at_a_time(self):
        found = agreement.exchanges(["tree"], (0, 1, 3), (0, 64))
        self.assertEqual(
            [Case("replicated", 2, exchange).reduction for exchange in found],
            ["tree", "tree, 1 pack", "tree, 3 packs", "tree, joined to 64 bytes"],
        )


if __name__ == "__main__":
    absltest.main()
