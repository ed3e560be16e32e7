"""The best checkpoint is kept, and can be used as any other."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, trainer
from tests.callbacks import metric_runs
from towers.callbacks import KeepBest
from towers.callbacks.user_callbacks import CallbackError
from towers.checkpoints import checkpoint


class KeepBestTest(metric_runs.MetricRuns):
    def _best(self, folder="best"):
        return checkpoint.all_paths(os.path.join(self.directory, folder))

    @parameterized.parameters(
        ("max", [1.0, 3.0, 2.0, 3.0, 0.0], 8),
        ("min", [1.0, 3.0, 2.0, 1.0, 1.5], 4),
        ("max", [float("nan"), 0.0, 1.0], 12),
    )
    def test_the_first_of_the_best(self, best, values, step):
        steps = 4 * len(values)
        settings = dict(num_batches=steps, save_model_steps=4, max_ckpts_to_keep=0)
        self.train(KeepBest("own", best=best), values=values, **settings)
        [path] = self._best()
        self.assertEndsWith(path, f"model.ckpt-{step}")
        reader = tf.train.load_checkpoint(path)
        values = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
        wanted = self.values(step)
        wanted = {n: v for n, v in wanted.items() if "KeepBest" not in n}
        trainer.assert_same_bits(values, wanted)

    def test_it_is_evaluated_and_trained_on(self):
        lines = self.train(KeepBest("top_1_accuracy", best="max"), num_batches=40)
        accuracies = [accuracy for accuracy, _ in digit_runs.accuracies(lines)]
        [path] = self._best()
        step = int(path.rpartition("-")[2])
        self.assertEqual(step, 4 * (1 + int(np.argmax(accuracies))))
        folder = os.path.dirname(path)
        evaluated = self.run_flags(eval=True, train_dir=folder, eval_batch_size=100)
        self.assertEqual(digit_runs.accuracies(evaluated)[0][0], max(accuracies))
        self.train(train_dir=folder, num_batches=step + 2)
        self.assertEqual(checkpoint.latest(folder), f"{folder}/model.ckpt-{step + 2}")

    def test_a_resumed_run_keeps_the_same(self):
        values = [2.0, 3.0, 1.0, 2.5, 4.0, 3.9]
        settings = dict(values=values, num_batches=16, save_model_steps=4)
        with self.assertRaises(CallbackError):
            failure = metric_runs.Fails(8, "after_evaluation")
            self.train(failure, KeepBest("own", best="max"), **settings)
        self.train(KeepBest("own", best="max"), **settings)
        self.assertEqual([os.path.basename(p) for p in self._best()], ["model.ckpt-8"])
        self.train(KeepBest("own", best="max"), **{**settings, "num_batches": 24})
        self.assertEqual([os.path.basename(p) for p in self._best()], ["model.ckpt-20"])

    def test_a_folder_of_its_own(self):
        folder = os.path.join(self.create_tempdir(), "there")
        self.train(KeepBest("own", best="max", folder=folder), train_dir=None)
        self.assertEndsWith(checkpoint.latest(folder), "model.ckpt-4")

    def test_no_folder(self):
        with self.assertRaisesRegex(CallbackError, "^KeepBest needs train_dir, or "):
            self.train(KeepBest("own", best="max"), train_dir=None)
