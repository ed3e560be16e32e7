"""The variables of a checkpoint in a graph of its own; predictions_test sweeps them."""

import contextlib
import io

import tensorflow as tf

import models
from flags import config
from towers import planning
from towers.evaluation.saved_variables import restored
from towers.session.progress import Console


class SavedVariablesTest(tf.test.TestCase):
    def test_where_nothing_was_saved(self):
        folder = self.create_tempdir().full_path
        settings = config.make(model="mlp", device="cpu", train_dir=folder, eval=True)
        plan = planning.make(settings, models.get)
        console, asked = Console(io.StringIO()), []

        def attach(variables):
            shape = tf.TensorShape([2])
            variables.mode.create("w", shape, None, trainable=True)
            asked.append(variables)

        with self.assertRaisesRegex(ValueError, f"train_dir={folder}: there is no"):
            with restored(plan, console, attach):
                self.fail("there is nothing to restore")
        self.assertEqual(set(asked[0].counters), {"global_step", "position"})
        with contextlib.suppress(ValueError), restored(plan, console, attach):
            self.fail("nor the second time")
