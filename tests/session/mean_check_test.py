"""The check passes all modes that take the mean, and finds those that do not."""

import dataclasses
import functools
import itertools
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs
from tests.faulty_modes import Stale, Sums, scaled
from towers import graph
from towers.cluster import sessions
from towers.compute import classifier, sufficient_factors, sync_batch_norm
from towers.gradients.exchange import GradientExchange
from towers.gradients.reduction import REDUCTIONS, usable
from towers.layout import placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.loss_scale import LossScaling
from towers.pipelines import pipeline
from towers.session import mean_check
from towers.variable_update import stale_updates, synchronous
from towers.variable_update.modes import VARIABLE_UPDATES

_ALL_REDUCE = [n for n, m in VARIABLE_UPDATES.items() if "all_reduce_spec" in m.reads]


class _SumsRows(synchronous.ParameterServer):
    """Adds the towers' sparse gradients where it should take their mean."""

    def reduce(self, towers, names):
        """As if no tower had divided."""
        [means] = super().reduce(towers, names)
        rows = tf.IndexedSlices
        return [[scaled(g, 3.0) if isinstance(g, rows) else g for g in means]]


class _Drops(synchronous.ParameterServer):
    """Leaves the last tower out."""

    def reduce(self, towers, names):
        """Of the others."""
        return super().reduce(towers[:-1], names)


class _Averages(synchronous.Independent):
    """Towers' own means, of which the weighted mean would have to be taken."""

    def reduce(self, towers, names):
        """The sum of the means."""
        return synchronous.Replicated.reduce(self, towers, names)


class _Late(stale_updates.Relaxed):
    """Is late without saying so."""

    deferred = 0


class _Twice(stale_updates.Asynchronous):
    """Applies each tower's gradients twice."""

    def reduce(self, towers, names):
        """Of two towers."""
        return super().reduce([*towers, *towers], names)


_FIELDS = {field.name for field in dataclasses.fields(graph.Options)}


def _check(name="planted", planted=None, *, towers=3, **settings):
    """Checks a mode with settings of `Options` and `Exchange`."""
    stages = settings["pipeline"].stages if "pipeline" in settings else 1
    stages = max(stages, settings.get("shards", Shards()).devices)
    where = placement.local(towers * stages, kind="cpu", num_stages=stages)
    options = {n: settings.pop(n) for n in list(settings) if n in _FIELDS}
    options = graph.Options(
        batch_size=4,
        variable_update=name,
        exchange=GradientExchange(**settings),
        **options,
    )
    modes = {**VARIABLE_UPDATES, "planted": planted}
    config = placement.session_config(where)
    mean_check.check(options, where, config, sessions.Local(), modes=modes)


def _passing():
    """(mode, settings) of what takes the mean."""
    bfloat16, exact = dict(dtype=tf.bfloat16), ("parameter_server", "replicated")
    rounds = dict(bfloat16, accumulate_steps=3)
    for name in VARIABLE_UPDATES:
        for settings in (bfloat16, dict(towers=1), rounds):
            yield name, settings
    yield "replicated", dict(rounds, towers=1)
    specs = (*usable("cpu"), "pscpu:1k:xring#2")
    for name, spec in zip(itertools.cycle(_ALL_REDUCE), specs):
        yield name, dict(all_reduce_spec=spec, towers=4)
    spread = itertools.cycle((Shards(2, 2), Shards(3, 1), Shards(1, 3)))
    for name, shards in zip((*exact, "independent", "asynchronous"), spread):
        yield name, dict(bfloat16, shards=shards)
    for name in exact:
        yield name, dict(xla_compile=True)
        yield name, dict(shards=Shards(2, 2))
        yield name, dict(pipeline=Pipeline(2, 8, "gpipe"))
    cut = (
        dict(shards=Shards(2, 2), accumulate_steps=3),
        dict(shards=Shards(2, 2), pipeline=Pipeline(2, 4)),
        dict(shards=Shards(3, 3), pipeline=Pipeline(1, 2, recompute="block")),
        dict(shards=Shards(2, 2), pipeline=Pipeline(2, 4, "interleaved", 2)),
        dict(pipeline=Pipeline(2, 4, "interleaved", 2, recompute="block")),
        dict(pipeline=Pipeline(1, 3, recompute="stage")),
    )
    yield from zip(itertools.cycle(exact), cut)
    for name, grow_every in zip((*exact, "independent"), (0, 5, 5)):
        scaling = LossScaling(2.0**40, grow_every=grow_every)
        yield name, dict(dtype=tf.float16, loss_scaling=scaling)
    for batch_norm, settings in (
        ("sync", {}),
        ("sync", bfloat16),
        ("sync", dict(towers=1)),
        ("sync", dict(pipeline=Pipeline(2, 4, "gpipe"))),
        ("sync_micro_batch", dict(accumulate_steps=2)),
        ("sync_micro_batch", dict(pipeline=Pipeline(2, 4))),
    ):
        yield "replicated", dict(settings, batch_norm=batch_norm)
    yield "replicated", dict(gradient_repacking=2)
    yield "replicated", dict(agg_small_grads_max_bytes=1024)
    yield "replicated", dict(compact_gradient_transfer=tf.bfloat16)
    yield "parameter_server", dict(compact_gradient_transfer=tf.float16)
    yield "parameter_server", dict(sparse_to_dense_grads=True)
    yield "asynchronous", dict(staleness_lr=True)
    yield "asynchronous", dict(max_staleness=0)


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(*_passing())
    def test_passes(self, name, settings):
        _check(name, **settings)

    @parameterized.parameters(
        ("_gradients", "moved probe/vector_29 by -2 in step 1, not by -1"),
        ("_column", "moved probe/kernel by 0.75 in step 1, not by -0.25"),
    )
    def test_finds_a_classifier_that_is_wrong(self, name, sentence):
        """Gradients are twice as large; or each device takes labels for its own."""
        right = getattr(classifier.ShardedLogits, name)

        def wrong(spread, *args):
            values = right(spread, *args)
            if name == "_gradients":
                return [2.0 * value for value in values]
            return values[0], tf.ones_like(values[1])

        with (
            mock.patch.object(classifier.ShardedLogits, name, wrong),
            self.assertRaisesRegex(mean_check.NotTheMeanError, sentence),
        ):
            _check("replicated", shards=Shards(2))

    def test_finds_towers_that_add_up_what_batch_norm_averages(self):
        def add(tensors, sizes):
            del sizes
            return tf.add_n(tensors)

        with (
            mock.patch.dict(sync_batch_norm.JOINS, {"mean": add}),
            self.assertRaisesRegex(
                mean_check.NotTheMeanError, "probe/rows by -3 in step 1"
            ),
        ):
            _check("replicated", batch_norm="sync")

    def test_finds_a_pipeline_that_leaves_out_a_micro_batch(self):
        def first_rows(stamp, number, variable):
            first = stamp.values[0]
            names = [f"sparse{number}/{variable}/{i}" for i in (0, 1)]
            return [first[name].tensor() for name in names]

        with (
            mock.patch.object(pipeline._Stamp, "_joined", first_rows),
            self.assertRaisesRegex(
                mean_check.NotTheMeanError,
                "moved probe/rows by -0.625 .* not their mean",
            ),
        ):
            _check("replicated", pipeline=Pipeline(2, 2))

    @parameterized.parameters(
        (Sums, "moved probe/vector_29 by -3 in step 1, not by -1: that is their sum"),
        (_SumsRows, "moved probe/rows by -3 in step 1, not by -1: that is their sum"),
        (_Drops, "by -0.75 in step 1, not by -1: that is not their mean"),
        (_Averages, "probe/vector_29 by -3 in step 1, not by -1: that is their sum"),
        (Stale, "moved replica_2/probe/vector_29 by 0 in step 1, not by -1"),
        (_Late, "moved probe/vector_29 by 0 in step 1, not by -1"),
        (_Twice, "moved probe/vector_29 by -2 in step 1, not by -1"),
    )
    def test_finds(self, planted, sentence):
        with self.assertRaises(mean_check.NotTheMeanError) as caught:
            _check(planted=planted)
        self.assertIn(sentence, str(caught.exception))
        self.assertStartsWith(str(caught.exception), "variable_update=planted")
        self.assertNotIn("\n", str(caught.exception))

    def test_finds_a_dense_layer_that_lacks_a_tower(self):
        right = sufficient_factors.summed

        def wrong(shares, *where):
            return right(shares[:-1], *where)

        with (
            mock.patch.object(sufficient_factors, "summed", wrong),
            self.assertRaisesRegex(
                mean_check.NotTheMeanError,
                "moved probe/dense by -0.75 .*, not by -1: that",
            ),
        ):
            _check("parameter_server")

    @parameterized.parameters(("pscpu:1k:xring", 257), ("xring:1k:pscpu", 29))
    def test_every_range_of_a_spec_is_checked(self, spec, size):
        """An algorithm that sums is found wherever it is used."""

        def sums(shares, destinations, **options):
            actual = original.run(shares, destinations, **options)
            return [total * float(len(shares)) for total in actual]

        original = REDUCTIONS["xring"]
        with (
            mock.patch.dict(REDUCTIONS, {"xring": original._replace(run=sums)}),
            self.assertRaisesRegex(
                mean_check.NotTheMeanError,
                f"all_reduce_spec={spec}, .* moved probe/vector_{size} by -3 ",
            ),
        ):
            _check("replicated", all_reduce_spec=spec)

    def test_is_cheap(self):
        """Its time is that of building some operations for each tower."""
        counts = {}
        for towers in (1, 9):
            where = placement.local(towers, kind="cpu")
            options = graph.Options(batch_size=4, variable_update="replicated")
            built = mean_check.build(options, where)
            counts[towers] = len(built.graph.get_operations())
        self.assertLess(counts[1], 250)
        self.assertLess(counts[9] - counts[1], 8 * 150)


class RunTest(digit_runs.Runs):
    @parameterized.parameters(
        {"variable_update": "asynchronous", "compute_dtype": "bfloat16"},
        {"num_stages": 2, "num_micro_batches": 4, "num_gpus": 4},
        {"xla_compile": True},
        {"batch_norm": "sync", "variable_update": "replicated"},
    )
    def test_a_sound_run_passes(self, **settings):
        lines = self.run_flags(
            num_batches=3,
            num_warmup_batches=0,
            check_mean=True,
            **{"num_gpus": 2, **settings},
        )
        self.assertTrue(any("total images/sec" in line for line in lines))

    def test_a_run_that_asks_for_it_stops_before_its_first_step(self):
        run = functools.partial(
            self.run_flags,
            num_gpus=2,
            num_batches=1,
            num_warmup_batches=0,
            train_dir=self.directory,
        )
        with mock.patch.dict(VARIABLE_UPDATES, {"parameter_server": _Drops}):
            with self.assertRaisesRegex(
                ValueError, "^variable_update=parameter_server: "
            ):
                run(check_mean=True)
            self.assertEqual(self.steps(), [])
            run()
            self.assertEqual(self.steps(), [1])
