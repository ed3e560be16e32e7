"""Replicas that differ are found, in whatever bit; equal ones pass."""

import contextlib
import io
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, faulty_modes, trainer
from towers import train
from towers.callbacks.base import TrainingError
from towers.session import loop, replicas
from towers.variable_update.modes import VARIABLE_UPDATES

_KERNEL = "hidden/dense/kernel"


def _trainer(mode="replicated", **options):
    training = trainer.Trainer(**{"towers": 3, "variable_update": mode, **options})
    with training.train.graph.as_default():
        compared = replicas.same(training.train.mode)
    return training.start(), compared


def _change(training, variable: tf.Variable, change) -> None:
    """Changes a variable's value from outside, as a memory fault does."""
    value = change(training.session.run({0: variable})[0])
    start = variable.initializer
    training.session.run(start, {start.inputs[1]: value})


class CheckReplicasTest(parameterized.TestCase):
    def _check(self, training, compared, *, last_step, steps):
        check = replicas.CheckReplicas(training.train, compared, steps=steps)
        loop.run(training.train, training.session, [check], last_step=last_step)

    @parameterized.parameters("replicated", "relaxed")
    def test_replicas_that_exchange_stay_equal(self, mode):
        training, compared = _trainer(mode)
        names = {name for _, name in compared}
        self.assertIn(_KERNEL + "/Momentum", names)
        self.assertLen(compared, 2 * len(names))
        self._check(training, compared, last_step=6, steps=1)

    @parameterized.parameters(
        (_KERNEL, 1), (_KERNEL + "/Momentum", 2), ("logits/dense/bias", 2)
    )
    def test_one_bit_is_found_and_named(self, name, tower):
        training, compared = _trainer()
        training.steps(3)
        replica = training.train.mode.replicas[name][tower]

        def flip(value):
            bits = value.view(np.uint32).copy()
            bits.flat[-1] ^= 1
            return bits.view(np.float32)

        _change(training, replica, flip)
        sentence = (
            f"^after step 4, the replica of {name} in tower {tower} differs from that "
            "in tower 0.*: a fault of .* variable_update=replicated$"
        )
        with self.assertRaisesRegex(replicas.ReplicaError, sentence):
            self._check(training, compared, last_step=6, steps=2)

    def test_nan_equals_itself(self):
        training, compared = _trainer()
        for replica in training.train.mode.replicas[_KERNEL]:
            _change(training, replica, lambda value: np.full_like(value, np.nan))
        self._check(training, compared, last_step=2, steps=1)

    def test_replicas_that_do_not_exchange_differ(self):
        training, compared = _trainer("independent")
        with self.assertRaisesRegex(replicas.ReplicaError, "; so do 1?[0-9] more"):
            self._check(training, compared, last_step=2, steps=1)

    def test_acts_when_due_only(self):
        with mock.patch.dict(VARIABLE_UPDATES, {"replicated": faulty_modes.Stale}):
            training, compared = _trainer()
        with self.assertRaisesRegex(replicas.ReplicaError, "after step 5, "):
            self._check(training, compared, last_step=9, steps=5)


class RunTest(digit_runs.Runs):
    def _train(self, **settings):
        return self.run_flags(
            num_gpus=3,
            num_batches=9,
            num_warmup_batches=0,
            variable_update="replicated",
            **settings,
        )

    @parameterized.parameters(1, 3, 50)
    def test_a_stale_replica_ends_the_run_and_the_checkpoint_stays(self, inside):
        with mock.patch.dict(VARIABLE_UPDATES, {"replicated": faulty_modes.Stale}):
            with self.assertRaisesRegex(
                TrainingError,
                "^after step 4, the replica of block/.* in tower 2 differs .*; the "
                f"last checkpoint is {self.directory}/model.ckpt-3$",
            ):
                self._train(
                    check_replicas_every=4,
                    save_model_steps=1,
                    train_dir=self.directory,
                    steps_per_loop=inside,
                )
        self.assertEqual(self.steps(), [1, 2, 3])

    def test_a_sound_run_comes_to_its_end_and_compares_only_when_asked(self):
        with mock.patch.object(replicas, "same", wraps=replicas.same) as same:
            self._train(check_replicas_every=4)
            self.assertEqual(same.call_count, 1)
            self._train()
            self.assertEqual(same.call_count, 1)

    def test_the_command_ends_with_status_1(self):
        error = replicas.ReplicaError("after step 4, they differ")
        said = io.StringIO()
        with (
            mock.patch.object(train.run, "train", side_effect=error),
            contextlib.redirect_stderr(said),
        ):
            self.assertEqual(train.main(["train", "--device=cpu"]), 1)
        lines = said.getvalue().splitlines()
        self.assertEqual(lines[-1], "error: after step 4, they differ")
