"""Frozen variables and learning rates by variable, with every feature."""

import dataclasses
import functools
import itertools
import re
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers import graph
from towers.layout import cluster_spec, placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import OPTIMIZERS, Update
from towers.options import Options
from towers.session import traffic
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_EXACT = sorted(name for name, mode in VARIABLE_UPDATES.items() if mode.exact)
_SLOT = "/Momentum"


def _model():
    """A table, batch norm after each of two layers, and a classifier."""

    def embedding(x, nn):
        table = nn.variable("table", [8, 6])
        index = tf.cast(nn.flatten(x)[:, :6] * 3.9, tf.int32)
        rows = nn.embedding(tf.math.floormod(index, 8), table)
        return tf.reduce_sum(rows, 1) + nn.flatten(x)[:, 6:12]

    def first(x, nn):
        return nn.batch_norm(nn.dense(x, 64, use_bias=False), activation=tf.nn.tanh)

    def second(x, nn):
        return nn.batch_norm(nn.dense(x, 8, use_bias=False), activation=tf.nn.tanh)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return trainer.model_of(embedding, first, second, logits, name="frozen")


_TRAINED = "second|logits"
# One tower has the batch statistics of all, so that they take the same steps.
_SYNC = dict(batch_norm="sync")


def _after(steps=3, **options):
    """(values before, after some steps) of the saved variables."""
    training = trainer.Trainer(_model(), trainable=_TRAINED, **options).start()
    return training.values(), training.steps(steps)


@functools.cache
def _of_two_towers():
    return _after(batch_size=4, towers=2)[1]


class FrozenTest(parameterized.TestCase):
    def _check(self, before, after):
        """Only what matches has moved, and has slots."""
        for name, value in before.items():
            if name in ("global_step", "position") or name.endswith(_SLOT):
                continue
            trained = bool(re.search(_TRAINED, name))
            self.assertEqual(trained, np.any(value != after[name]), name)
            kernel = not name.endswith(("moving_mean", "moving_variance"))
            self.assertEqual(trained and kernel, name + _SLOT in before, name)

    def test_one_tower_trains_what_is_named(self):
        self._check(*_after(batch_size=8))

    def test_it_is_the_model_that_makes_them_so(self):
        """As with trainable=False, and batch norm that takes its averages."""
        model = trainer.dense_model()

        def hidden(x, nn):
            scope = v1.get_variable_scope()
            with v1.variable_scope(scope, custom_getter=_untrained):
                return model.blocks[0][1](x, nn)

        other = trainer.model_of(hidden, model.blocks[1][1], name="dense")
        frozen = trainer.Trainer(model, trainable="logits").start().steps(3)
        trainer.assert_same_bits(frozen, trainer.Trainer(other).start().steps(3))

    @parameterized.parameters(_EXACT)
    def test_towers_take_the_steps_of_one(self, mode):
        _, single = _after(batch_size=8)
        before, after = _after(towers=2, batch_size=4, variable_update=mode, **_SYNC)
        self._check(before, after)
        self.assertLess(trainer.difference(single, after), 1e-5)

    @parameterized.parameters(sorted(set(VARIABLE_UPDATES) - set(_EXACT)))
    def test_in_modes_of_other_steps(self, mode):
        before, after = _after(towers=2, batch_size=4, variable_update=mode)
        names = [n for n in before if not n.startswith("carried/")]
        self._check(
            *({name: values[name] for name in names} for values in (before, after))
        )

    @parameterized.parameters(
        dict(pipeline=Pipeline(2, 2, cut=(2, 4))),
        dict(pipeline=Pipeline(4, 1, cut=(1, 2, 3, 4))),
        dict(pipeline=Pipeline(2, 2, cut=(1, 4), recompute="block")),
        dict(accumulate_steps=2, batch_size=2),
        dict(shards=Shards(classifier=2)),
        dict(xla_compile=True),
        dict(exchange=dict(partition_bytes=256)),
    )
    def test_with_stages_rounds_and_parts(self, **options):
        options = dict(batch_size=4, towers=2) | options
        before, after = _after(**options)
        self._check(before, after)
        whole = options["batch_size"] == 4 and "pipeline" not in options
        if whole and "xla_compile" not in options:
            self.assertLess(trainer.difference(_of_two_towers(), after), 1e-5)

    def test_a_frozen_stage_has_no_backward_pass(self):
        sent = {}
        for trainable in (".", _TRAINED):
            train = trainer.Trainer(
                _model(),
                pipeline=Pipeline(2, 1, cut=(2, 4)),
                trainable=trainable,
            ).train
            flows = traffic.of(train)
            first, second = train.placement.stages[0]
            sent[trainable] = [
                flows.sent[pair].bytes if pair in flows.sent else 0
                for pair in ((first, second), (second, first))
            ]
        activations = 4 * 8 * 64
        self.assertGreaterEqual(sent["."][1] - sent[_TRAINED][1], activations)
        self.assertGreaterEqual(sent[_TRAINED][0], activations)

    @parameterized.product(
        mode=["parameter_server", "replicated", "distributed_replicated", "staged"],
        on_cluster=[True, False],
    )
    def test_nothing_of_them_is_sent(self, mode, on_cluster):
        where = placement.local(2, kind="cpu")
        if on_cluster:
            spec = cluster_spec.from_hosts(
                "chief", 0, ps=["a:1"], workers=["b:1", "b:2"], controller="c:1"
            )
            where = placement.on_cluster(spec, 1, kind="cpu")
        crossing = []
        for trainable in (".", _TRAINED):
            train = graph.build(
                _model(),
                trainer.random_source(),
                trainer.MOMENTUM,
                placement=where,
                options=Options(
                    batch_size=2, variable_update=mode, trainable=trainable
                ),
            )
            crossing.append(traffic.of(train).bytes)
        every, trained = crossing
        sizes = [6 * 64 + 3 * 64, 64 * 8 + 8 + 2 * 8 + 8 * 5 + 5]
        share = sizes[1] / sum(sizes)
        self.assertLess(trained, (share + 0.1) * every)

    def test_a_frozen_batch_norm_takes_its_averages(self):
        """A step's loss is that of an evaluation of the same batch."""
        training = trainer.Trainer(_model(), trainable="logits", batch_size=8).start()
        values = training.values()
        self.assertFalse(training.train.template.statistics)
        after = training.steps(2)
        np.testing.assert_array_equal(
            values["first/batch_norm/moving_mean"],
            after["first/batch_norm/moving_mean"],
        )

    def test_a_name_that_there_is_not(self):
        for pipeline in (None, Pipeline(2, 2)):
            with self.assertRaisesRegex(
                ValueError,
                "^trainable=xyz: matches in .*; the model has emb",
            ):
                trainer.Trainer(_model(), trainable="xyz", pipeline=pipeline)


def _untrained(getter, name, **options):
    return getter(name, **options | {"trainable": False})


class ResumeTest(parameterized.TestCase):
    def _resumed(self, first, then, **options):
        """(values in the checkpoint of one run, another that goes on from it)."""
        with tempfile.TemporaryDirectory() as directory:
            start = trainer.Trainer(_model(), trainable=first, **options).start()
            saved = start.steps(3)
            start.save(directory)
            other = trainer.Trainer(_model(), trainable=then, **options)
            return saved, other.start(directory)

    @parameterized.parameters(
        ("logits", "."),
        (".", "logits"),
        ("logits", "second"),
        ("logits", ".", dict(exchange=dict(partition_bytes=256), towers=2)),
        ("logits", ".", dict(towers=2, variable_update="staged")),
        (".", "logits", dict(towers=2, variable_update="relaxed")),
        ("logits", ".", dict(towers=2, variable_update="replicated")),
    )
    def test_goes_on_with_others(self, first, then, options=None):
        update = dataclasses.replace(trainer.MOMENTUM, ema_decay=0.5)
        saved, training = self._resumed(first, then, update=update, **options or {})
        restored = training.values()
        for name, value in restored.items():
            if name.startswith("carried/"):
                continue
            if name in saved:
                np.testing.assert_array_equal(value, saved[name], name)
            elif name.endswith("/ExponentialMovingAverage"):
                variable = name.rpartition("/")[0]
                np.testing.assert_array_equal(value, saved[variable], name)
            else:
                self.assertEndsWith(name, _SLOT)
                self.assertFalse(np.any(value))
        after = training.steps(5)
        self.assertTrue(np.any(after["logits/dense/kernel"] != 0))
        kernel = "first/dense/kernel"
        self.assertEqual(then == ".", np.any(after[kernel] != saved[kernel]))

    def test_another_optimizer_is_refused_as_before(self):
        sgd = Update("sgd", Piecewise((0.1,)))
        with tempfile.TemporaryDirectory() as directory:
            trainer.Trainer(_model(), update=sgd).start().save(directory)
            with self.assertRaisesRegex(ValueError, "not in it: .*/Momentum"):
                trainer.Trainer(_model(), trainable="logits").start(directory)


# Each optimizer takes one of them.
_WAYS = (
    {},
    dict(variable_update="replicated"),
    dict(exchange={"partition_bytes": 256}),
)


class FactorsTest(parameterized.TestCase):
    @parameterized.parameters(*zip(sorted(OPTIMIZERS), itertools.cycle(_WAYS)))
    def test_towers_take_the_steps_of_one(self, name, way):
        update = Update(
            name,
            Piecewise((0.01,)),
            weight_decay=0.01,
            learning_rate_factors={"first|table": 0.25, "kernel": 3.0, "gamma": 0.0},
        )
        _, single = _after_all(update, batch_size=8)
        before, after = _after_all(update, towers=2, batch_size=4, **way, **_SYNC)
        self.assertLess(trainer.difference(single, after), 1e-4)
        gamma = "second/batch_norm/gamma"
        np.testing.assert_array_equal(before[gamma], after[gamma])

    def test_an_expression_that_decides_about_none(self):
        factors = {"kernel": 0.1, "logits/dense/kernel": 2.0}
        update = dataclasses.replace(trainer.MOMENTUM, learning_rate_factors=factors)
        with self.assertRaisesRegex(
            ValueError, "^learning_rate_factors: 'logits/dense/kernel' is the first to"
        ):
            trainer.Trainer(_model(), update=update)


def _after_all(update, steps=2, **options):
    training = trainer.Trainer(_model(), update=update, **options).start()
    return training.values(), training.steps(steps)
