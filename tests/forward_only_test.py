"""The forward pass alone: the losses of evaluation, and no variable changes."""

import json
import math
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader, digit_runs, trainer
from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES

_TOGETHER = [name for name, mode in VARIABLE_UPDATES.items() if mode.together]


def _losses(count, model=None, **options):
    """The losses of some steps, of 16 examples each, and all variables after them."""
    running = trainer.Trainer(model, forward_only=True, **options).start()
    before = running.values()
    steps = [running.train.step, running.train.loss]
    losses = [running.session.run(steps)[1] for _ in range(count)]
    after = running.values()
    changed = {n for n, v in before.items() if not np.array_equal(v, after[n])}
    assert changed == {"global_step", "position"}, changed
    assert (after["global_step"], after["position"]) == (count, 16 * count)
    return losses, before


class StepTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((1, "parameter_server"), *((2, m) for m in _TOGETHER))
    def test_losses_are_those_of_numpy_without_dropout(self, towers, mode):
        losses, values = _losses(
            5, towers=towers, batch_size=16 // towers, variable_update=mode
        )
        layout = {1: "1x12", 2: "2x2"}[towers]
        rows = batch_reader.read(trainer.random_source(), 20, layout=layout)
        for step, loss in enumerate(losses):
            images, labels = (part[16 * step : 16 * step + 16] for part in rows[:2])
            x = images.reshape(16, -1) @ values["hidden/dense/kernel"]
            x = np.maximum(x + values["hidden/dense/bias"], 0)
            x = x @ values["logits/dense/kernel"] + values["logits/dense/bias"]
            terms = np.log(np.exp(x).sum(1)) - x[np.arange(16), labels]
            self.assertAllClose(loss, terms.mean(), rtol=1e-5)

    @parameterized.parameters(
        dict(towers=4, batch_size=4),
        dict(towers=4, batch_size=4, variable_update="replicated"),
        dict(towers=2, batch_size=8, xla_compile=True),
        dict(towers=2, batch_size=8, pipeline=Pipeline(micro_batches=4)),
        dict(towers=2, batch_size=8, batch_norm="sync"),
    )
    def test_batch_norm_takes_its_moving_averages(self, **options):
        """So the loss does not depend on which examples are in a batch."""
        model = trainer.normed_model()
        whole, _ = _losses(3, model, batch_size=16)
        parts, _ = _losses(3, model, **options)
        self.assertAllClose(parts, whole, rtol=1e-5)


class RunTest(digit_runs.ForwardRuns):
    def test_lines(self):
        log = self.create_tempdir().full_path
        lines = self.forward(benchmark_log_dir=log)
        self.assertIn("Mode:        forward only", lines)
        title = "Step\tImg/sec\ttotal_loss\ttop_1_accuracy\ttop_5_accuracy"
        self.assertIn(title, lines)
        self.assertEqual([row[0] for row in digit_runs.shown(lines)], ["1", "10", "20"])
        for word in ("Update: ", "Reduction: ", "Weight decay: ", "Accuracy @"):
            self.assertNotIn(word, "\n".join(lines))
        with open(os.path.join(log, "metric.log")) as file:
            names = {json.loads(line)["name"] for line in file}
        self.assertContainsSubset({"average_examples_per_sec", "loss"}, names)

    @parameterized.parameters(
        (dict(num_batches=None), 100), (dict(num_batches=None, num_epochs=1.0), 91 - 10)
    )
    def test_length(self, flags, timed):
        """As long as tf_cnn_benchmarks if nothing is said; nothing is evaluated."""
        lines = self.forward(**flags)
        self.assertEqual(digit_runs.shown(lines)[-1][0], str(timed // 10 * 10))
        self.assertNotIn("Running evaluation", "\n".join(lines))

    def test_callbacks_of_training_are_not_called(self):
        def fail():
            raise AssertionError

        lines = self.forward(callbacks=fail)
        self.assertLen(digit_runs.shown(lines), 3)

    def test_a_loss_that_is_not_finite_does_not_end_it(self):
        def block(x, nn):
            return nn.dense(nn.flatten(x), nn.num_classes) * math.nan

        model = trainer.model_of(block, shape=(8, 8, 1), num_classes=10)
        lines = self.forward(get_model=lambda name: model)
        self.assertEqual(digit_runs.shown(lines)[-1][1], "nan")
