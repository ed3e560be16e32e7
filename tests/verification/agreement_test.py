"""The comparison with one tower, and the faults that it must find."""

import dataclasses
import functools
from collections.abc import Callable
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import faulty_modes, trainer
from towers import graph
from towers.compute import classifier
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.pipelines import pipeline
from towers.variable_update import synchronous
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import agreement, cases, reference
from towers.verification.verdict import Case

KERNEL = "hidden/dense/kernel"


class _Sums(synchronous.ParameterServer):
    """Adds the towers' gradients where it should take their mean."""

    def reduce(self, towers, names):
        """As if no tower had divided."""
        [means] = super().reduce(towers, names)
        return [[float(len(towers)) * tf.convert_to_tensor(mean) for mean in means]]


class _Drifts(synchronous.Replicated):
    """Rounds the last tower's gradients by themselves, which no bound can tell."""

    def reduce(self, towers, names):
        """By two ulps in all but the first."""
        first, *others = super().reduce(towers, names)
        factor = 1 + 2.4e-7
        return [first, *([factor * tf.convert_to_tensor(g) for g in o] for o in others)]


class _OtherShadow(synchronous.DistributedReplicated):
    """Goes on updating the shadow copy when the replicas have their values."""

    def update(self, gradients, names, update, rate):
        """Each variable grows by a tenth."""
        changes = super().update(gradients, names, update, rate)
        with tf.control_dependencies(changes):
            return [v.assign(1.1 * v, read_value=False) for v in self._shadow(names)]

    def _shadow(self, names):
        return [self.variables[name] for name in names]


class _OtherStart(synchronous.Replicated):
    """Starts the second tower from its own initial values, which are 0."""

    def sync(self, after=()):
        """Initialises what should be a copy."""
        return [variable.initializer for variable in self.synced]


class _Mixes(synchronous.Independent):
    """Says that it exchanges nothing, and gives all the first tower's gradients."""

    def reduce(self, towers, names):
        """The first tower's to each."""
        return super().reduce([towers[0]] * len(towers), names)


class _Forgets(synchronous.ParameterServer):
    """Does not save the optimizer's slots."""

    def saved(self, variables):
        """The others."""
        values = super().saved(variables)
        return {n: v for n, v in values.items() if "Momentum" not in n}


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


@functools.cache
def _references(get_model: Callable[[], Model]) -> reference.References:
    """What a model is held against, trained once for all tests."""
    return reference.References(trainer.subject(model=get_model()))


def _compare(
    mode: type | None = None,
    case: Case = Case("", 2),  # noqa: B008
    get_model: Callable[[], Model] = trainer.dense_model,
    **changes,
):
    """The outcome of one case, of a faulty mode if one is given."""
    modes = dict(VARIABLE_UPDATES)
    if mode:
        case = dataclasses.replace(case, variable_update=mode.__name__)
        modes[mode.__name__] = mode
    if changes:
        subject = trainer.subject(model=get_model(), **changes)
        references = reference.References(subject)
    else:
        references = _references(get_model)
    with mock.patch.object(agreement, "References", lambda subject: references):
        (outcome,) = agreement.compare(references.subject, [case], modes=modes)
    return outcome


class _FirstSums(pipeline._Stamp):
    """Forgets the gradients of all micro-batches but the last."""

    def call(self, stage, pass_):
        """As if each micro-batch were the first to be summed."""
        sums = self._sums[pass_.chunk]
        if pass_.backward:
            shapes = {k: self.template.shapes[k.split("/", 1)[1]] for k in sums}
            self._sums[pass_.chunk] = {k: tf.zeros(s) for k, s in shapes.items()}
        super().call(stage, pass_)


class _SameDraws(pipeline._Stamp):
    """Draws the dropout of all micro-batches as that of the first."""

    def __init__(self, site, *args):
        """The first example's index, which dropout draws from, moves not."""
        original = pipeline._split

        def split(*args):
            parts = original(*args)
            return [values | {"first": parts[0]["first"]} for values in parts]

        with mock.patch.object(pipeline, "_split", split):
            super().__init__(site, *args)


class _LastStatistics(pipeline._Stamp):
    """Takes the last micro-batch's statistics for those of all."""

    def _statistic(self, rule, value):
        """Of one."""
        return self.values[-1][value].tensor()


def _normed_model() -> Model:
    def normal(x, nn):
        return nn.batch_norm(x)

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(normal, logits, name="normed")


class CompareTest(parameterized.TestCase):
    def test_every_mode_agrees(self):
        choices = cases.exchanges(("xring#2",), (0,), (0, 1024))
        wanted = cases.cases((2,), choices)
        names = ("replicated", "independent", "asynchronous")
        wanted += cases.cases((2,), choices[:1], rounds=(2,), names=names)
        outcomes = list(agreement.compare(trainer.subject(), wanted))
        self.assertEqual([outcome.case for outcome in outcomes], wanted)
        self.assertEqual(
            {o.case.variable_update for o in outcomes}, {*VARIABLE_UPDATES}
        )
        for outcome in outcomes:
            self.assertEqual(outcome.verdict, "agrees", outcome)
            self.assertLess(outcome.largest.ulps, 40)

    @parameterized.parameters(
        (_Sums, 1, KERNEL),
        (faulty_modes.Stale, 1, "replica_1/" + KERNEL),
        (_OtherStart, 0, "replica_1/" + KERNEL),
        (_Mixes, 1, "replica_1/" + KERNEL),
        (_Forgets, 0, KERNEL + "/Momentum"),
        (_OtherShadow, 1, KERNEL),
    )
    def test_finds_a_faulty_mode(self, mode, step, variable):
        outcome = _compare(mode)
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertFalse(outcome.agrees)
        self.assertEqual((outcome.first.step, outcome.first.variable), (step, variable))
        self.assertGreater(outcome.largest.relative, 1e-4)

    @parameterized.parameters(1e-5, 1e9)
    def test_replicas_that_exchange_are_bit_equal(self, bound):
        outcome = _compare(_Drifts, bound=bound)
        self.assertLess(outcome.largest.relative, 1e-6)
        words = "DIFFERS (replicas that are not bit-equal)"
        self.assertEqual((outcome.agrees, outcome.verdict), (False, words))
        self.assertEqual(outcome.first.step, 1)
        self.assertStartsWith(outcome.first.variable, "replica_1/")
        self.assertTrue(outcome.repeats)

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_finds_a_tower_with_another_dropout_seed(self, name):
        source = _OtherDropout(trainer.random_source())
        outcome = _compare(case=Case(name, 2), source=source)
        mode = VARIABLE_UPDATES[name]
        # The second tower alone draws from the same seed, so the property holds.
        self.assertEqual(outcome.agrees, mode.together and not mode.joined)
        if mode.deferred:  # it applies the first gradients in the second step
            self.assertStartsWith(outcome.first.variable, "carried/gradient/")
        elif not outcome.agrees:
            self.assertEqual(outcome.first.step, 1)
            self.assertEqual(outcome.first.variable, KERNEL)

    def test_finds_a_sum_of_gradients_too_small_to_matter_beside_the_variables(self):
        update = Update("sgd", Piecewise((5e-6,)))

        def logits(x, nn):
            ones = tf.ones_initializer()  # no variable begins at 0
            kernel = nn.variable("kernel", [16, 5], ones)
            return nn.flatten(x) @ kernel

        def get_model():
            return trainer.model_of(logits)

        self.assertTrue(
            _compare(
                case=Case("parameter_server", 2), get_model=get_model, update=update
            ).agrees
        )
        self.assertFalse(_compare(_Sums, get_model=get_model, update=update).agrees)

    @parameterized.parameters("micro_batch", "sync")
    def test_a_bias_before_batch_norm_hides_no_fault(self, batch_norm):
        """Its gradient is nothing but rounding, which may double or vanish."""

        def block(x, nn):
            x = nn.batch_norm(nn.conv(x, 4, 3))
            return nn.dense(nn.flatten(x), nn.num_classes)

        changes = dict(
            get_model=lambda: trainer.model_of(block),
            update=Update("momentum", Piecewise((1e-6,))),
            options=graph.Options(batch_size=1, batch_norm=batch_norm),
        )
        self.assertTrue(_compare(case=Case("parameter_server", 2), **changes).agrees)
        outcome = _compare(_Sums, **changes)
        self.assertFalse(outcome.agrees)
        self.assertNotIn("bias", outcome.first.variable)

    def test_rounding_that_grows_is_no_fault(self):
        case, bound = Case("parameter_server", 4), 1e-9  # below any rounding
        outcome = _compare(case=case, bound=bound)
        self.assertGreater(outcome.largest.relative, bound)
        self.assertTrue(outcome.agrees)
        self.assertBetween(outcome.grown, outcome.largest.relative, 1e-4)
        outcome = _compare(_Sums, bound=bound)
        self.assertEqual((outcome.agrees, outcome.first.step), (False, 1))

    def test_a_model_that_does_not_repeat_itself_is_no_rounding(self):
        def late(x, nn):
            seconds = tf.cast(tf.math.floormod(tf.timestamp(), 1.0), tf.float32)
            return nn.dense(nn.flatten(x) * (1.0 + seconds), nn.num_classes)

        outcome = _compare(
            case=Case("parameter_server", 2), get_model=lambda: trainer.model_of(late)
        )
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertFalse(outcome.repeats)
        self.assertTrue(_compare(_Sums).repeats)

    def test_what_is_not_finite_is_no_rounding(self):
        update = Update("sgd", Piecewise((1e30,)))  # neither is the reference
        outcome = _compare(_Sums, update=update)
        self.assertFalse(outcome.agrees)

    @parameterized.parameters(
        (tf.bfloat16, 2 * 16 / 2**8), (tf.float16, 2 * 16 / 2**11)
    )
    def test_a_block_that_computes_in_16_bits_rounds_as_they_do(self, dtype, bound):
        def narrow(x, nn):
            kernel = nn.variable("kernel", [16, 5], dtype=dtype)
            return tf.cast(tf.cast(nn.flatten(x), dtype) @ kernel, tf.float32)

        def get_model():
            return trainer.model_of(narrow)

        outcome = _compare(case=Case("parameter_server", 4), get_model=get_model)
        self.assertGreater(outcome.largest.relative, 1e-5)
        self.assertEqual((outcome.agrees, outcome.bound), (True, bound))
        self.assertFalse(_compare(_Sums, get_model=get_model).agrees)

    def test_a_looser_bound_admits_more(self):
        outcome = _compare(_Sums, bound=1e9)
        self.assertIsNone(outcome.first)
        # A sum differs from the mean by more than any bound.
        verdict = "DIFFERS (not the mean)"
        self.assertEqual((outcome.agrees, outcome.verdict), (False, verdict))
        self.assertEndsWith(outcome.mean_error, "that is their sum, not their mean")

    def test_independent_towers_keep_to_the_schedule_of_all(self):
        schedule = trainer.Piecewise((0.05, 0.5), (16 / 70,))  # from the third step on
        update = Update("momentum", schedule)
        self.assertTrue(_compare(case=Case("independent", 4), update=update).agrees)

    @parameterized.parameters(
        Case("parameter_server", 1, rounds=2),
        Case("parameter_server", 2, rounds=2),
        Case("replicated", 4),
        Case("replicated", 3, batch_sizes=(4, 1, 3)),
        Case("independent", 2, rounds=2),
        Case("independent", 1, rounds=2),
        Case("staged", 2),
        Case("asynchronous", 2, rounds=2),
        Case("parameter_server", 1, pipeline=Pipeline(1, 4, balance="params")),
        Case("replicated", 2, pipeline=Pipeline(2, 1, recompute="block")),
        Case("relaxed", 2, pipeline=Pipeline(2, 2, "gpipe", recompute="stage")),
    )
    def test_batch_norm_is_that_of_one_tower_with_the_same_pieces(self, case):
        outcome = _compare(case=case, get_model=_normed_model)
        self.assertEqual(outcome.verdict, "agrees", outcome)
        self.assertIsNone(outcome.bound)

    def test_batch_norm_of_other_pieces_differs(self):
        case = Case("parameter_server", 2)
        subject = trainer.subject(model=_normed_model())
        with mock.patch.object(reference, "_pieces_of") as pieces:
            pieces.return_value = reference.Pieces()
            (outcome,) = agreement.compare(subject, [case])
        self.assertFalse(outcome.agrees)

    def test_batch_norm_over_all_towers_is_that_of_one(self):
        self._agrees(
            "sync",
            Case("parameter_server", 2),
            Case("parameter_server", 3, batch_sizes=(4, 1, 3)),
            Case("replicated", 2, pipeline=Pipeline(2, 4, "gpipe", balance="params")),
        )

    def test_batch_norm_over_all_micro_batches_is_that_of_one_tower(self):
        how = Pipeline(2, 4, "gpipe", recompute="block", balance="params")
        self._agrees("tower", Case("relaxed", 1, pipeline=how))
        self._agrees("tower", Case("independent", 2, pipeline=how))

    def test_batch_norm_piece_by_piece_of_all_towers(self):
        how = Pipeline(2, 2, balance="params")
        self._agrees(
            "sync_micro_batch",
            Case("replicated", 2, rounds=2),
            Case("parameter_server", 2, pipeline=how),
        )

    def _agrees(self, batch_norm, *cases):
        options = agreement.graph.Options(batch_size=1, batch_norm=batch_norm)
        for case in cases:
            outcome = _compare(case=case, get_model=_normed_model, options=options)
            self.assertEqual(outcome.verdict, "agrees", outcome)

    @parameterized.parameters(
        (_FirstSums, False), (_SameDraws, False), (_LastStatistics, True)
    )
    def test_finds_a_faulty_pipeline(self, stamp, normal):
        case = Case("replicated", 2, pipeline=Pipeline(2, 2, recompute="block"))
        get_model = _normed_model if normal else trainer.dense_model
        right = _compare(case=case, get_model=get_model)
        self.assertEqual(right.verdict, "agrees", right)
        with mock.patch.object(pipeline, "_Stamp", stamp):
            outcome = _compare(case=case, get_model=get_model)
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertEqual(outcome.first.step, 1)

    @parameterized.parameters(
        ("_gradients", lambda values: [1.01 * value for value in values]),
        ("_column", lambda values: (values[0], tf.ones_like(values[1]))),
    )
    def test_finds_faulty_shards(self, name, faulty):
        case = Case("parameter_server", 2, shards=Shards(2))
        right = _compare(case=case)
        self.assertEqual(right.verdict, "agrees", right)
        method = getattr(classifier.ShardedLogits, name)
        with mock.patch.object(
            classifier.ShardedLogits, name, lambda *args: faulty(method(*args))
        ):
            outcome = _compare(case=case)
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertEqual(outcome.first.step, 1)

    def test_replicas_in_parts_are_compared_too(self):
        case = Case("replicated", 2, shards=Shards(3))
        self.assertEqual(_compare(case=case).verdict, "agrees")
        outcome = _compare(faulty_modes.Stale, case=case)
        self.assertEqual(outcome.verdict, "DIFFERS")
        self.assertStartsWith(outcome.first.variable, "replica_1/")

    @parameterized.parameters(tf.bfloat16, tf.float16)
    def test_gradients_in_16_bits_are_held_to_their_rounding(self, transfer):
        case = Case("parameter_server", 4, transfer=transfer)
        outcome = _compare(case=case)
        self.assertStartsWith(outcome.verdict, "agrees (bound ")
        self.assertEqual(outcome.bound, case.bound(1e-5))
        self.assertGreater(outcome.largest.relative, 1e-5)  # gradients are rounded
        outcome = _compare(_Sums, case=case)
        self.assertStartsWith(outcome.verdict, "DIFFERS")

    @parameterized.parameters(
        ("parameter_server", 1e-5), ("relaxed", 1e-5), ("independent", 0.0)
    )
    def test_towers_that_compute_in_16_bits_are_held_to_their_rounding(self, name, off):
        case = Case(name, 4)
        options = graph.Options(batch_size=1, dtype=tf.bfloat16)
        outcome = _compare(case=case, options=options)
        self.assertEqual(outcome.verdict, "agrees (bound 1e-01)")
        self.assertGreaterEqual(outcome.largest.relative, off)
        if name == "parameter_server":
            outcome = _compare(_Sums, case=case, options=options)
            self.assertStartsWith(outcome.verdict, "DIFFERS")
