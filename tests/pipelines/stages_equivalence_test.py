"""N towers of K stages and M micro-batches take the steps of one whole tower."""

import dataclasses
import functools

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.loss_scale import LossScaling

BOUND = 1e-5
GLOBAL_BATCH = 16
STEPS = 6
_UPDATE = dataclasses.replace(
    # The rate changes at each step, so that a rate of another step shows.
    trainer.MOMENTUM,
    learning_rate=Piecewise((0.05,), (), warmup_epochs=2.0),
)


def _model(normal: bool = False) -> Model:
    """Four blocks with dropout, and batch norm if asked for."""

    def features(x, nn):
        x = nn.conv(x, 4, 3, activation=tf.nn.tanh)
        return nn.batch_norm(x) if normal else x

    def hidden(x, nn):
        return nn.dropout(nn.dense(nn.flatten(x), 12, activation=tf.nn.tanh), 0.5)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return trainer.model_of(features, hidden, ("more", hidden), logits, name="chain")


def _made(towers=1, how=None, *, normal=False, **options):
    return trainer.Trainer(
        _model(normal),
        towers=towers,
        batch_size=options.pop("batch_size", GLOBAL_BATCH // towers),
        update=_UPDATE,
        pipeline=how,
        **options,
    )


_NORM, _RECOMPUTE = dict(normal=True), ("none", "stage", "block")


@functools.cache
def _whole(normal=False):
    """What one whole tower comes to."""
    return _made(normal=normal).start().steps(STEPS)


class EqualTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, Pipeline(1, 4, cut=(4,), recompute="block")),
        (1, Pipeline(4, 8, "gpipe", cut=(1, 2, 3, 4))),
        (2, Pipeline(2, 4, "gpipe", cut=(1, 4), recompute="stage")),
        (2, Pipeline(2, 4, "1f1b", cut=(2, 4))),
        (2, Pipeline(2, 2, "interleaved", 2, cut=(1, 2, 3, 4), recompute="block")),
        (4, Pipeline(2, 4, "1f1b", cut=(3, 4))),
        # Batch norm of each micro-batch or of the whole batch, with moving averages.
        *((1, Pipeline(2, 1, cut=(1, 4), recompute=how), _NORM) for how in _RECOMPUTE),
        (1, Pipeline(2, 4, "gpipe", cut=(1, 4)), _NORM, "tower"),
        (1, Pipeline(1, 4, "gpipe", cut=(4,), recompute="stage"), _NORM, "tower"),
        # Stage 0 computes both micro-batches before a gradient comes back.
        (1, Pipeline(2, 2, cut=(2, 4)), _NORM, "tower"),
        (2, Pipeline(2, 1, cut=(1, 4)), _NORM, "sync"),
        (2, Pipeline(2, 4, "gpipe", cut=(2, 4), recompute="block"), _NORM, "sync"),
        (2, Pipeline(2, 1, "interleaved", 2, cut=(1, 2, 3, 4)), _NORM, "sync"),
    )
    def test_equals_one_tower(self, towers, how, both=None, batch_norm="micro_batch"):
        whole = _whole(**(both or {}))
        actual = _made(towers, how, batch_norm=batch_norm, **(both or {}))
        self.assertLess(trainer.difference(whole, actual.start().steps(STEPS)), BOUND)

    @parameterized.parameters(
        dict(variable_update="replicated"),
        dict(variable_update="replicated", exchange=dict(all_reduce_spec="xring")),
        dict(
            variable_update="replicated",
            exchange=dict(all_reduce_spec="tree", gradient_repacking=2),
        ),
    )
    def test_replicas_are_on_the_stages(self, **options):
        whole = _whole()
        how = Pipeline(2, 2, cut=(2, 4))
        training = _made(2, how, **options)
        places = {
            copy.device
            for copies in training.train.mode.replicas.values()
            for copy in copies
        }
        self.assertEqual(places, set(training.placement.devices))
        self.assertLess(trainer.difference(whole, training.start().steps(STEPS)), BOUND)

    @parameterized.parameters(33, 40)
    def test_a_short_last_batch_with_empty_micro_batches(self, limit):
        whole = _made(limit=limit).start().to_the_end()
        how = Pipeline(2, 4, cut=(2, 4))
        values = _made(2, how, limit=limit).start().to_the_end()
        self.assertEqual(values["position"], limit)
        self.assertLess(trainer.difference(whole, values), BOUND)

    def test_batch_norm_of_micro_batches_does_not_depend_on_the_cut(self):
        one_stage = Pipeline(1, 4, cut=(4,))
        two = Pipeline(2, 4, "gpipe", cut=(1, 4), recompute="block")
        first = _made(1, one_stage, normal=True).start().steps(STEPS)
        values = _made(1, two, normal=True).start().steps(STEPS)
        self.assertLess(trainer.difference(first, values), BOUND)

    @parameterized.parameters("replicated", "distributed_replicated", "relaxed")
    def test_batch_norm_of_all_towers_in_other_modes(self, mode):
        of = dict(normal=True, variable_update=mode)
        one_tower = _made(1, **of).start().steps(STEPS)
        how = Pipeline(2, 4, "gpipe", cut=(2, 4))
        actual = _made(2, how, batch_norm="sync", **of)
        shapes = [gradient.shape for gradient in actual.train.towers[0].gradients]
        self.assertEqual(shapes, list(actual.train.template.shapes.values()))
        self.assertLess(
            trainer.difference(one_tower, actual.start().steps(STEPS)), BOUND
        )

    def test_batch_norm_by_itself_is_not(self):
        values = _made(1, Pipeline(1, 4, cut=(4,)), normal=True).start().steps(STEPS)
        self.assertGreater(trainer.difference(_whole(normal=True), values), 1e-3)

    @parameterized.parameters("gpipe", "1f1b")
    def test_batch_norm_of_each_micro_batch_of_all_towers(self, schedule):
        """As towers that take as many rounds."""
        norm = dict(normal=True, batch_norm="sync_micro_batch")
        rounds = _made(2, batch_size=2, accumulate_steps=4, **norm)
        cut = _made(2, Pipeline(2, 4, schedule, cut=(1, 4)), **norm)
        uncut, actual = (training.start().steps(STEPS) for training in (rounds, cut))
        self.assertLess(trainer.difference(uncut, actual), BOUND)

    def test_micro_batches_that_are_not_brought_together_cannot_meet(self):
        with self.assertRaisesRegex(
            ValueError,
            "batch norm waits for all 4 micro-batches.* 1f1b .*stages wait for each "
            "other: stage 0 stands at leg 1 of the forward .*; write schedule gpipe",
        ):
            _made(1, Pipeline(2, 4, cut=(1, 4)), normal=True, batch_norm="tower")

    @parameterized.parameters("tower", "sync")
    def test_rounds_cannot_meet(self, batch_norm):
        with self.assertRaisesRegex(ValueError, f"^batch_norm={batch_norm}: of the 2"):
            _made(2, normal=True, accumulate_steps=2, batch_norm=batch_norm)

    @parameterized.parameters("none", "block")
    def test_a_scaled_loss(self, recompute):
        whole = _whole()
        how = Pipeline(2, 4, cut=(2, 4), recompute=recompute)
        scaling = LossScaling(initial=1024.0, grow_every=3)
        training = _made(2, how, loss_scaling=scaling).start()
        values = training.steps(STEPS)
        self.assertEqual(training.session.run(training.train.loss_scale.value), 4096.0)
        kept = {name: value for name, value in values.items() if name in whole}
        self.assertLess(trainer.difference(whole, kept), BOUND)

    def test_float16_that_overflows_leaves_the_step_out(self):
        options = dict(
            dtype=tf.float16, loss_scaling=LossScaling(initial=2.0**20, grow_every=100)
        )
        whole, cut = _made(**options), _made(1, Pipeline(2, 1, cut=(2, 4)), **options)
        uncut, actual = (training.start().steps(STEPS) for training in (whole, cut))
        skipped = cut.session.run(cut.train.loss_scale.skipped)
        self.assertBetween(skipped, 1, STEPS - 1)
        self.assertLess(trainer.difference(uncut, actual), BOUND)

    def test_schedules_are_equal_bit_for_bit(self):
        gpipe, alternating = (
            _made(2, Pipeline(2, 4, name, cut=(2, 4))).start().steps(STEPS)
            for name in ("gpipe", "1f1b")
        )
        trainer.assert_same_bits(gpipe, alternating)


class ResumeTest(tf.test.TestCase, parameterized.TestCase):
    def test_checkpoints_do_not_know_the_cut(self):
        directory = self.create_tempdir()
        begun = _made(2, Pipeline(2, 4, cut=(2, 4))).start()
        begun.steps(2)
        begun.save(directory)
        wanted = begun.steps(STEPS)
        for towers, how in (
            (1, None),
            (1, Pipeline(3, 2, "gpipe", cut=(1, 3, 4))),
            (4, Pipeline(1, 2, cut=(4,), recompute="stage")),
        ):
            other = _made(towers, how).start(directory)
            self.assertLess(trainer.difference(wanted, other.steps(STEPS)), BOUND)

    def test_a_resumed_run_equals_the_run_never_stopped(self):
        directory = self.create_tempdir()
        how = Pipeline(2, 2, "interleaved", 2, cut=(1, 2, 3, 4))
        first = _made(2, how).start()
        first.steps(3)
        first.save(directory)
        first.steps(STEPS)
        resumed = _made(2, how).start(directory)
        resumed.steps(STEPS)
        trainer.assert_same_bits(first.everything(), resumed.everything())
