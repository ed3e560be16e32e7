"""N towers of batch B take the same steps as one tower of batch N x B.

The bound on float32 rounding is 1e-5 relative to a variable's largest element.
"""

import dataclasses
import functools
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models.model import Images, Model, Recipe, Schedule
from tests import trainer
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Hyperparameters, Update

BOUND = 1e-5
GLOBAL_BATCH = 24
STEPS = 10

_TUTORIAL = dict(
    shape=(32, 32, 3), out=(24, 24, 3), num_classes=10, preprocessing="cifar_tutorial"
)
# name -> (model, data set, learning rate): momentum and weight decay are on in all.
_CASES = {
    "lenet": (lambda: models.get("lenet"), dict(shape=(8, 8, 1), num_classes=10), 0.02),
    "cifar10_tutorial": (lambda: models.get("cifar10_tutorial"), _TUTORIAL, 0.01),
    "dense_with_dropout": (trainer.dense_model, dict(), 0.05),
}


def _start(case: str, towers: int, directory: str | None = None, **options):
    make, data, rate = _CASES[case]
    update = dataclasses.replace(trainer.MOMENTUM, learning_rate=Piecewise((rate,)))
    training = trainer.Trainer(
        make(),
        trainer.random_source(**data),
        towers=towers,
        batch_size=GLOBAL_BATCH // towers,
        update=update,
        **options,
    )
    return training.start(directory)


def _train(case: str, towers: int, *, last_step: int | None = STEPS, **options):
    training = _start(case, towers, **options)
    return training.to_the_end() if last_step is None else training.steps(last_step)


# Runs that several tests compare with are trained once.
_reference = functools.cache(_train)


def _differences(case: str, counts: tuple[int, ...]) -> dict[int, list[float]]:
    """Number of towers -> its difference from one tower, after each step."""
    one_tower, *others = (_start(case, towers) for towers in (1, *counts))
    differences = {towers: [] for towers in counts}
    for step in range(1, STEPS + 1):
        values = one_tower.steps(step)
        for towers, other in zip(counts, others):
            differences[towers].append(trainer.difference(values, other.steps(step)))
    return differences


class TowersEqualOneTowerTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_any_number_of_towers(self, case):
        one_tower = _reference(case, 1)
        self.assertTrue(any(name.endswith("/Momentum") for name in one_tower))
        for towers, differences in _differences(case, (2, 3, 8)).items():
            with self.subTest(towers=towers):
                if max(differences) >= BOUND:
                    self._assert_they_part_at_a_kink(case, towers, differences)

    def _assert_they_part_at_a_kink(self, case, towers, differences):
        """One tower that goes on from the checkpoint before takes the very steps.

        Which side of a kink, a tie in a max pooling say, a run is on may depend on the
        last bits of the variables, and so on the kernels for this CPU.  A wrong mean
        parts them at every step, and the goings-on, too; what adds up does not jump.
        """
        apart = next(k for k, off in enumerate(differences) if off >= BOUND)
        self.assertGreater(apart, 0)  # the first step is equal
        self.assertGreater(differences[apart], 10 * differences[apart - 1])
        folder = self.create_tempdir().full_path
        many = _start(case, towers)
        many.steps(apart)
        many.save(folder)
        one_tower = _start(case, 1, folder)
        self.assertLess(
            trainer.difference(one_tower.steps(STEPS), many.steps(STEPS)), BOUND
        )

    def test_only_a_jump_is_a_kink(self):
        case = "dense_with_dropout"
        self._assert_they_part_at_a_kink(case, 2, [1e-7, 1e-3])
        # apart from the start; a difference that adds up
        for wrong in ([1e-3, 1e-2], [5e-6, 2e-5]):
            with self.assertRaises(AssertionError):
                self._assert_they_part_at_a_kink(case, 2, wrong)

    @parameterized.product(
        # The last step has one example, so seven of eight towers have none.
        limit=(73, 70, 50),
        towers=(2, 8),
    )
    def test_short_last_batches_and_towers_without_examples(self, limit, towers):
        case = "dense_with_dropout"
        one_tower = _reference(case, 1, last_step=None, limit=limit)
        self.assertEqual(one_tower["position"], limit)
        many = _train(case, towers, last_step=None, limit=limit)
        self.assertLess(trainer.difference(one_tower, many), BOUND)

    @parameterized.parameters(
        dict(variable_update="replicated"),
        dict(variable_update="replicated", exchange=dict(all_reduce_spec="xring#2")),
        dict(
            variable_update="replicated",
            exchange=dict(all_reduce_spec="pscpu:1k:rechd"),
        ),
        dict(
            variable_update="replicated",
            exchange=dict(all_reduce_spec="tree", gradient_repacking=3),
        ),
        dict(
            variable_update="replicated",
            exchange=dict(all_reduce_spec="psgpu", agg_small_grads_max_bytes=256),
        ),
    )
    def test_every_mode_with_a_short_last_batch(self, **options):
        case = "dense_with_dropout"
        one_tower = _reference(case, 1, last_step=None, limit=121)
        many = _train(case, 4, last_step=None, limit=121, **options)
        self.assertLess(trainer.difference(one_tower, many), BOUND)


class ClipTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(clip_norm=0.1), dict(clip_value=0.01), dict(clip_norm=0.1, clip_value=0.02)
    )
    def test_clipping_comes_after_the_mean(self, **limits):
        update = dataclasses.replace(trainer.MOMENTUM, **limits)
        values = []
        for towers, mode in (
            (1, "parameter_server"),
            (4, "parameter_server"),
            (4, "replicated"),
        ):
            training = trainer.Trainer(
                towers=towers,
                batch_size=GLOBAL_BATCH // towers,
                update=update,
                variable_update=mode,
            ).start()
            values.append(training.steps(STEPS))
        self.assertLess(trainer.difference(values[0], values[1]), BOUND)
        self.assertLess(trainer.difference(values[0], values[2]), BOUND)
        unclipped = _reference("dense_with_dropout", 1)
        self.assertGreater(trainer.difference(values[0], unclipped), 0.01)


class GradientFactorTest(parameterized.TestCase):
    @parameterized.parameters("parameter_server", "replicated")
    def test_the_sum_of_towers_is_their_mean_times_their_number(self, mode):
        """With sgd, a factor of the gradient is a factor of the rate and the decay."""
        sgd = Update("sgd", Piecewise((0.02,)), weight_decay=1e-2)
        faster = dataclasses.replace(sgd, learning_rate=Piecewise((0.08,)))
        values = [
            trainer.Trainer(towers=4, batch_size=8, update=update, variable_update=mode)
            .start()
            .steps(STEPS)
            for update in (dataclasses.replace(sgd, gradient_factor=4.0), faster, sgd)
        ]
        self.assertLess(trainer.difference(values[0], values[1]), BOUND)
        self.assertGreater(trainer.difference(values[0], values[2]), 0.01)


class NumpyTest(parameterized.TestCase):
    """A linear model against the same steps in numpy, in exact arithmetic.

    All numbers are small integers over powers of two, so float32 does not round and
    the results must be equal, not close.
    """

    rate, momentum, decay = 2.0**-2, 0.5, 2.0**-1

    def _model(self):
        def linear(x, nn):
            start = tf.compat.v1.constant_initializer(np.arange(-2.0, 2.0)[:, None])
            return nn.dense(nn.flatten(x), 1, use_bias=False, initializer=start)

        return Model(
            name="linear",
            blocks=(("linear", linear),),
            inputs=Images(shape=(2, 2, 1), num_classes=3),
            recipe=Recipe(batch_size=2, schedule=Schedule(rates=(0.1,))),
            loss=lambda outputs, labels: tf.square(
                outputs[:, 0] - tf.cast(labels, tf.float32)
            ),
            metrics=lambda outputs, labels: {"output": outputs[:, 0]},
        )

    def _by_numpy(self, batches, nesterov):
        weights, slot = np.arange(-2.0, 2.0), np.zeros(4)
        for images, labels in batches:
            error = images @ weights - labels
            gradient = 2 * images.T @ error / len(labels) + self.decay * weights
            slot = self.momentum * slot + gradient
            step = gradient + self.momentum * slot if nesterov else slot
            weights = weights - self.rate * step
        return weights, slot

    @parameterized.product(
        how=((1, "parameter_server"), (4, "parameter_server"), (2, "replicated")),
        nesterov=(True, False),
    )
    def test_three_steps_are_exact(self, how, nesterov):
        towers, variable_update = how
        rng = np.random.default_rng(2)
        images = rng.integers(-1, 2, (8, 2, 2, 1)).astype(np.float32)
        labels = rng.integers(0, 3, 8)
        source = trainer.inputs.from_arrays(
            images, labels, num_classes=3, training=False
        )
        training = trainer.Trainer(
            self._model(),
            source,
            towers=towers,
            batch_size=4 // towers,
            update=Update(
                "momentum",
                Piecewise((self.rate,)),
                Hyperparameters(momentum=self.momentum, nesterov=nesterov),
                weight_decay=self.decay,
            ),
            variable_update=variable_update,
        ).start()
        values = training.steps(3)
        flat = images.reshape(8, 4).astype("f8")
        batches = [(flat[:4], labels[:4]), (flat[4:], labels[4:])]
        weights, slot = self._by_numpy([*batches, batches[0]], nesterov)
        np.testing.assert_array_equal(values["linear/dense/kernel"][:, 0], weights)
        np.testing.assert_array_equal(
            values["linear/dense/kernel/Momentum"][:, 0], slot
        )


class RepeatTest(parameterized.TestCase):
    @parameterized.parameters(*_CASES)
    def test_two_runs_with_one_seed_are_equal_bit_for_bit(self, case):
        trainer.assert_same_bits(_reference(case, 4), _train(case, 4))

    def test_another_seed_is_another_run(self):
        case = "dense_with_dropout"
        other = _train(case, 2, seed=7)
        self.assertGreater(trainer.difference(_reference(case, 2), other), 0.01)


class ResumeTest(tf.test.TestCase, parameterized.TestCase):
    """Four towers on distorted images, saved once on the way."""

    last = 12

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        four = cls._made(4).start()
        cls.saved, cls.values = {}, {}
        for step in (1, 7):
            cls.saved[step] = tempfile.mkdtemp()
            cls.addClassCleanup(shutil.rmtree, cls.saved[step])
            cls.values[step] = four.steps(step)
            four.save(cls.saved[step])
        cls.straight = four.steps(cls.last)
        cls.everything = four.everything()

    @classmethod
    def _made(cls, towers, **options):
        return trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(**_TUTORIAL),
            towers=towers,
            batch_size=GLOBAL_BATCH // towers,
            **options,
        )

    @parameterized.parameters(1, 7)
    def test_a_resumed_run_equals_the_run_never_stopped(self, stopped_at):
        resumed = self._made(4).start(self.saved[stopped_at])
        resumed.steps(self.last)
        trainer.assert_same_bits(self.everything, resumed.everything())

    @parameterized.product(towers=(1, 2, 8), mode=("parameter_server", "replicated"))
    def test_a_checkpoint_of_four_towers_goes_on_with_any_number(self, towers, mode):
        other = self._made(towers, variable_update=mode).start(self.saved[7])
        trainer.assert_same_bits(self.values[7], other.values())
        values = other.steps(self.last)
        self.assertLess(trainer.difference(self.straight, values), BOUND)
