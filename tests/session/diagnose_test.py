"""The diagnosis names the first gradient that was not finite, and its tower."""

import dataclasses
import io
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from flags import config
from models.model import Images, Model, Recipe, Schedule
from tests import digit_runs
from towers import planning, run
from towers.callbacks.base import Callback
from towers.callbacks.rate_adjustment import RateAdjustment
from towers.callbacks.stop_on_nan import NanLossError
from towers.checkpoints import checkpoint
from towers.compute import sufficient_factors
from towers.data import inputs, records
from towers.session import diagnose, progress
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_TOWERS, _BATCH, _EXAMPLES = 4, 2, 96
_MARKED = 43  # one of the 8 examples of step 6, read by tower 1
_LOSS = r"the loss of step 7 is nan; lower init_learning_rate; "
_FOUND = "the gradient of marked/v in tower 1 is not finite at step 6, "
_FINITE = _FOUND + "and the loss there is finite; "
_TOGETHER = [name for name, mode in VARIABLE_UPDATES.items() if mode.together]


def _model() -> Model:
    """The gradient at sqrt(0) is not finite, though the loss is."""

    def sound(x, nn):
        x = nn.flatten(x)
        w = nn.variable("w", [4, 1], v1.zeros_initializer())
        return tf.concat([x[:, :1], x @ w], 1)

    def marked(x, nn):
        v = nn.variable("v", [1], v1.ones_initializer())
        return x[:, 1] + tf.sqrt(x[:, 0] * v)

    return Model(
        name="rooted",
        blocks=(("sound", sound), ("marked", marked)),
        inputs=Images((2, 2, 1), 4),
        recipe=Recipe(batch_size=_BATCH, schedule=Schedule((1e-3,)), optimizer="sgd"),
        loss=lambda outputs, labels: (
            (tf.cast(outputs, tf.float32) - tf.cast(labels, tf.float32)) ** 2
        ),
        metrics=lambda outputs, labels: {},
    )


def _source(value=0.0, also=None):
    """Examples whose marked one begins with a value, and another one with NaN."""
    rng = np.random.default_rng(2)
    images = rng.uniform(1, 2, (_EXAMPLES, 2, 2, 1)).astype(np.float32)
    if value is not None:
        images[_MARKED, 0, 0, 0] = value
    if also is not None:
        images[also] = np.nan
    labels = rng.integers(0, 4, _EXAMPLES)
    examples = records.from_dataset(  # `from_arrays` would refuse them
        lambda: tf.data.Dataset.from_tensor_slices((images, labels)),
        num_examples=len(images),
        num_classes=4,
    )
    return inputs.DatasetSource(examples, inputs.Request(shape=()), training=False)


class _TooFast(Callback):
    """Multiplies the learning rate by 1e33 after step 4."""

    def set_up(self, run):
        self._step, self._rate = run.train.step, RateAdjustment(run)

    def before_run(self, run_context):
        return v1.train.SessionRunArgs(self._step)

    def after_run(self, run_context, run_values):
        if run_values.results == 4:
            self._rate.change(run_context.session, 4, 1e33)


class DiagnoseTest(digit_runs.Runs):
    def _train(self, value=0.0, also=None, callbacks=(), **settings):
        """Runs 11 steps."""
        settings = {"num_gpus": _TOWERS, "num_warmup_batches": 0, **settings}
        config_made = config.make(
            device="cpu", data_name="synthetic", num_batches=11, **settings
        )
        plan = planning.make(config_made, lambda name: _model(), callbacks=callbacks)
        plan = dataclasses.replace(plan, source=_source(value, also))
        self.stream = io.StringIO()
        run.train(plan, progress.Console(self.stream))

    def _fails(self, sentence, error=NanLossError, **settings):
        with self.assertRaisesRegex(error, f"^{sentence}$") as caught:
            self._train(**settings)
        return caught.exception

    def _check_replayed(self, first, last):
        line = f"Taking the steps from {first} to {last} again, to find the first"
        self.assertIn(line, self.stream.getvalue())

    @parameterized.parameters(1, 3, 50)
    def test_from_the_start(self, steps_per_loop):
        sentence = _FINITE + _LOSS + "nothing was saved"
        error = self._fails(sentence, steps_per_loop=steps_per_loop)
        self.assertEqual(error.step, 7)
        self._check_replayed(1, 7)

    def test_of_gradients_that_are_taken_as_factors(self):
        with mock.patch.object(sufficient_factors, "_are_less", lambda *_: True):
            self._fails(_FINITE + _LOSS + "nothing was saved")

    @parameterized.parameters(1, 50)
    def test_from_the_last_checkpoint(self, steps_per_loop):
        sentence = _FINITE + _LOSS + f"the last checkpoint is {self.directory}/.*-5"
        self._fails(
            sentence,
            train_dir=self.directory,
            save_model_steps=5,
            steps_per_loop=steps_per_loop,
        )
        self._check_replayed(6, 7)
        self.assertEqual(self.steps(), [5])

    def test_of_variables_that_were_to_be_saved(self):
        sentence = _FINITE + "variable marked/v is not finite after step 6, .*-3"
        error = self._fails(
            sentence,
            checkpoint.NotFiniteError,
            train_dir=self.directory,
            save_model_steps=3,
        )
        self.assertEqual(error.step, 6)
        self._check_replayed(4, 6)
        self.assertEqual(self.steps(), [3])

    @parameterized.parameters(dict(), dict(steps_per_loop=50), dict(train_dir=True))
    def test_of_variables_that_no_step_follows(self, train_dir=False, **settings):
        if train_dir:
            settings["train_dir"] = self.directory
        sentence = _FINITE + (
            "variable marked/v is not finite after step 6; "
            "lower init_learning_rate; nothing was saved"
        )
        with mock.patch.object(planning.Plan, "num_steps", 6):
            self.assertEqual(self._fails(sentence, **settings).step, 6)
        self.assertEqual(self.steps(), [])

    @parameterized.parameters(
        *((mode, "float32") for mode in _TOGETHER), ("replicated", "bfloat16")
    )
    def test_in_every_mode_whose_steps_repeat(self, mode, dtype):
        self._fails(
            _FINITE + "the loss of step [78] is nan; .*",
            variable_update=mode,
            compute_dtype=dtype,
        )

    def test_steps_that_do_not_repeat(self):
        self._fails(
            "which gradient was the first to fail cannot be told, .*; the loss of .*",
            cross_replica_sync=False,
        )

    def test_a_bad_example(self):
        self._fails(
            "features of the example at index 43 of the stream is not finite in the "
            "data, so replace what is missing or leave the example out; the gradient "
            "of sound/w and marked/v in tower 1 is not finite at step 6, and the loss "
            "there is not finite, too; the loss of step 6 is nan; nothing was saved",
            value=np.nan,
        )

    def test_variables_that_became_too_large(self):
        self._fails(
            "the gradient of sound/w and marked/v in every tower is not finite at step "
            "2, and the loss there is not finite, too; the loss of step 2 is .*",
            value=None,
            init_learning_rate=1e30,
        )

    @parameterized.parameters(4, 8)
    def test_at_a_rate_that_a_callback_set(self, save_model_steps):
        """After step 4, whose checkpoint does not hold the rate."""
        self._fails(
            "the loss in every tower is not finite at step 6, its gradients are; the "
            "loss of step 6 is inf; lower init_learning_rate; .*",
            value=None,
            callbacks=[_TooFast()],
            train_dir=self.directory,
            save_model_steps=save_model_steps,
        )
        self._check_replayed(5 if save_model_steps == 4 else 1, 6)

    def test_gradients_of_skipped_steps_are_no_fault(self):
        """Step 6 is skipped; of step 9, the first example is no number."""
        self._fails(
            "features of the example at index 64 of the stream is not finite in the "
            "data, so replace .*; the gradient of sound/w and marked/v in tower 0 is "
            "not finite at step 9, and the loss there is not finite, too; the loss of "
            "step 9 .*",
            also=64,
            compute_dtype="float16",
            fp16_enable_auto_loss_scale=True,
        )

    def test_gives_up_in_time_and_on_a_signal(self):
        with (
            mock.patch.object(diagnose, "_LEAST_SECONDS", 0.0),
            mock.patch.object(diagnose, "_MOST_SECONDS", 0.0),
        ):
            self._fails(
                "the first gradient to fail was not found: all are finite from step 1 "
                f"to 1, where time was up; {_LOSS}nothing was saved"
            )

    def test_says_how_far_it_is(self):
        with mock.patch.object(diagnose, "_PROGRESS_SECONDS", 0.0):
            self._fails(_FINITE + ".*")
        said = self.stream.getvalue()
        for step in range(1, 6):
            self.assertIn(f"Step {step} of 7: all gradients are finite\n", said)

    def test_a_sound_run_looks_at_nothing_but_the_loss(self):
        path = os.path.join(self.create_tempdir(), "graph.pb")
        with mock.patch.object(diagnose, "diagnose_failure") as diagnose_failure:
            self._train(value=None, graph_file=path)
        diagnose_failure.assert_not_called()
        with open(path, "rb") as file:
            nodes = v1.GraphDef.FromString(file.read()).node
        looks = {node.name for node in nodes if node.op == "IsFinite"}
        # The check of the two variables after the last step.
        scopes = {name.rpartition("/")[0] for name in looks}
        self.assertEqual(scopes, {"checkpoint/finite"})
        self.assertLen(looks, 2)
