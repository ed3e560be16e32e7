"""Loss scaling: grow, shrink, skip; and nothing else changes."""

import dataclasses
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import arrays, trainer
from towers.optimizers.loss_scale import LossScale, LossScaling
from towers.optimizers.optimizer import OPTIMIZERS
from towers.session import loop

v1 = tf.compat.v1

_UPDATE = trainer.Update("momentum", trainer.Piecewise((0.05,)), ema_decay=0.9)


def _steep() -> Model:
    """Gradients of some millions: float32 overflows with a factor of 1e33 or so."""
    model = trainer.normed_model()
    return dataclasses.replace(
        model, loss=lambda outputs, labels: 1e8 * model.loss(outputs, labels)
    )


_STEEP = {
    "model": _steep(),
    "update": trainer.Update("momentum", trainer.Piecewise((5e-10,)), ema_decay=0.9),
}
_LARGE = 2.0**120


def _made(initial: float, grow_every: int = 0, **options):
    options = {"towers": 2, "batch_size": 4, "update": _UPDATE, **options}
    return trainer.Trainer(
        options.pop("model", None) or trainer.normed_model(),
        loss_scaling=LossScaling(initial, grow_every) if initial else None,
        **options,
    )


def _state(values):
    """(factor, good steps, skipped steps)."""
    names = ("value", "good_steps", "skipped")
    return tuple(float(values[f"carried/loss_scale/{name}"]) for name in names)


def _model_of(values):
    counted = ("global_step", "position")
    return {
        name: value
        for name, value in values.items()
        if name not in counted and not name.startswith("carried/")
    }


class LossScaleTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("parameter_server", "replicated", "independent")
    def test_a_power_of_two_changes_nothing_in_float32(self, mode):
        plain = _made(0.0, variable_update=mode).start().steps(4)
        scaled = _made(1024.0, variable_update=mode).start().steps(4)
        self.assertLess(trainer.difference(plain, scaled), 1e-6)

    @parameterized.parameters(0, 1000)
    def test_sparse_gradients_are_scaled_and_unscaled_too(self, grow_every):
        options = {"model": trainer.embedding_model()}
        plain = _made(0.0, **options).start().steps(4)
        scaled = _made(1024.0, grow_every, **options).start().steps(4)
        ends = _model_of(plain), _model_of(scaled)
        self.assertLess(trainer.difference(*ends), 1e-6)

    def test_it_grows_after_so_many_good_steps(self):
        training = _made(4.0, 3).start()
        states = [_state(training.steps(step)) for step in range(1, 8)]
        self.assertEqual(
            states,
            [(4, 1, 0), (4, 2, 0), (8, 0, 0), (8, 1, 0), (8, 2, 0), (16, 0, 0)]
            + [(16, 1, 0)],
        )

    def _factors(self, initial: float, grow_every: int, finite: str) -> list:
        """(factor, good steps) after each step, + for finite gradients."""
        with tf.Graph().as_default(), v1.Session() as session:
            scale = LossScale(LossScaling(initial, grow_every), "/device:CPU:0")
            is_finite = v1.placeholder(tf.bool, [])
            follow = scale.follow(is_finite)
            factor, good, _ = variables = v1.global_variables()
            self.assertLen(variables, 3)
            session.run(v1.global_variables_initializer())
            factors = []
            for sign in finite:
                session.run(follow, {is_finite: sign == "+"})
                factors.append(session.run((factor, good)))
        return factors

    def test_an_overflow_begins_the_count_of_good_steps_anew(self):
        self.assertEqual(
            self._factors(8.0, 3, "++-++-+++"),
            [(8, 1), (8, 2), (4, 0), (4, 1), (4, 2), (2, 0), (2, 1), (2, 2), (4, 0)],
        )

    def test_it_stays_where_it_can_be_doubled(self):
        large = 2.0**126
        factors = self._factors(2.0**125, 1, "++++-+")
        self.assertEqual([f for f, _ in factors], [large] * 4 + [large / 2, large])

    @parameterized.parameters("parameter_server", "replicated")
    def test_a_step_that_overflows_changes_nothing_but_the_factor(self, mode):
        training = _made(_LARGE, 1000, variable_update=mode, **_STEEP).start()
        before = training.values()
        step = 0
        while _state(training.values())[2] == step and step < 60:
            step += 1
            after = training.steps(step)
            if _state(after)[2] == step:  # the step was skipped
                trainer.assert_same_bits(_model_of(before), _model_of(after))
                self.assertAllClose(_state(after)[0], _LARGE / 2**step)
        self.assertGreater(step, 1)
        self.assertLess(step, 60)
        # From the first good step on it trains as a run without a scale that begins
        # there.
        self.assertEqual(_state(training.values())[1], 1)
        name = "block/dense/kernel"
        arrays.assert_apart(training.values()[name], before[name], rtol=1e-6)
        self.assertEqual(training.values()["global_step"], step)

    def test_a_model_without_gradients_is_refused_as_ever(self):
        def constant(x, nn):
            return tf.stop_gradient(nn.dense(nn.flatten(x), nn.num_classes))

        with self.assertRaisesRegex(ValueError, "no variable gets a gradient"):
            _made(2.0, 1, model=trainer.model_of(constant))

    def test_a_step_that_applies_an_earlier_gradient_cannot_be_left_out(self):
        with self.assertRaisesRegex(ValueError, "^loss_scaling: Relaxed applies a "):
            _made(2.0, 1, variable_update="relaxed")

    @parameterized.product(
        optimizer=sorted(OPTIMIZERS),
        mode=("parameter_server", "distributed_replicated"),
    )
    def test_it_never_falls_below_one(self, optimizer, mode):
        """And no optimizer changes anything in a step that is skipped."""

        class Poisoned:
            """A source with a value that no factor helps."""

            def __init__(self):
                self._source = trainer.random_source()
                self.num_classes = self._source.num_classes
                self.num_examples = self._source.num_examples

            def feed(self, groups, **options):
                feed = self._source.feed(groups, **options)
                first, *others = feed.batches
                broken = first._replace(features=first.features * np.nan)
                return feed._replace(batches=[broken, *others])

        training = trainer.Trainer(
            trainer.dense_model(),
            Poisoned(),
            towers=2,
            update=trainer.Update(
                optimizer, trainer.Piecewise((0.05,)), weight_decay=0.1
            ),
            variable_update=mode,
            loss_scaling=LossScaling(4.0, 10),
        ).start()
        before = training.values()
        after = training.steps(5)
        self.assertEqual(_state(after), (1, 0, 5))
        trainer.assert_same_bits(_model_of(before), _model_of(after))

    def test_steps_inside_the_graph_are_the_same_bit_for_bit(self):
        first = _made(_LARGE, 2, **_STEEP).start().steps(40)
        training = _made(_LARGE, 2, **_STEEP)
        training.add_loop().start()
        loop.run(training.train, training.session, [], last_step=40, steps_per_loop=16)
        trainer.assert_same_bits(first, training.values())
        self.assertGreater(_state(first)[2], 1)

    def test_a_resumed_run_has_the_factor(self):
        whole = _made(_LARGE, 2, **_STEEP).start()
        whole.steps(40)
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        training = _made(_LARGE, 2, **_STEEP).start()
        training.steps(17)
        training.save(directory)
        resumed = _made(_LARGE, 2, **_STEEP).start(directory)
        resumed.steps(40)
        trainer.assert_same_bits(whole.everything(), resumed.everything())
        plain = _made(0.0, **_STEEP).start(
            directory
        )  # a run without a loss scale can resume from it
        self.assertEqual(plain.steps(18)["global_step"], 18)

    @parameterized.parameters(1, 2)
    def test_float16_follows_float32(self, towers):
        options = {"towers": towers, "batch_size": 8 // towers}
        model = trainer.dense_model()
        wide = _made(0.0, model=model, **options).start().steps(5)
        narrow = _made(128.0, model=model, dtype=tf.float16, **options).start()
        gradients = {g.dtype for t in narrow.train.towers for g in t.gradients}
        self.assertEqual(gradients, {tf.float16})
        self.assertLess(trainer.difference(wide, narrow.steps(5)), 3e-2)

    def test_small_gradients_survive_in_float16_only_if_scaled(self):
        """A gradient of 2^-26 is zero in float16, whose smallest number is 2^-24."""

        def small(x, nn):
            zeros = v1.zeros_initializer()
            return nn.flatten(x)[:, :5] * nn.variable("w", [5], zeros)

        def loss(outputs, labels):
            del labels
            return tf.reduce_sum(tf.cast(outputs, tf.float32), 1) * 2.0**-26

        model = trainer.model_of(small, loss=loss, metrics=lambda outputs, labels: {})
        update = trainer.Update("sgd", trainer.Piecewise((1.0,)))
        moved = []
        for scale in (1.0, 2.0**14):
            training = _made(
                scale, model=model, dtype=tf.float16, update=update
            ).start()
            before = training.values()["small/w"]
            moved.append(np.max(np.abs(training.steps(1)["small/w"] - before)))
        self.assertEqual(moved[0], 0.0)
        self.assertGreater(moved[1], 2.0**-30)
