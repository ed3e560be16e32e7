"""Runs on a user's arrays and sources: several towers equal one; refusals."""

import contextlib
import io

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers import train
from towers.checkpoints import checkpoint

_OWN = "tests.own_data"


class OwnDataTest(absltest.TestCase):
    def _train(self, data, *flags):
        """The exit status, and what is printed."""
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = train.main(
                ["train", f"--model={_OWN}:net", f"--data_name={_OWN}:{data}"]
                + ["--device=cpu", "--num_warmup_batches=0", *flags]
            )
        self.assertNotIn("Traceback", out.getvalue())
        return status, out.getvalue()

    def _variables(self, *runs):
        """The variables of a training in so many runs, by name."""
        folder = self.create_tempdir().full_path
        for data, *flags in runs:
            status, text = self._train(data, f"--train_dir={folder}", *flags)
            self.assertEqual(status, 0, text)
            self.assertRegex(text, r"error = .*\[21 examples\]")
        reader = tf.train.load_checkpoint(checkpoint.latest(folder))
        return {
            name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()
        }

    def test_towers_and_sources_train_alike(self):
        whole = self._variables(("arrays", "--batch_size=8"))
        self.assertEqual(whole["position"], 96)
        again = self._variables(
            ("source", "--batch_size=8", "--num_epochs=1"),
            ("arrays", "--batch_size=8", "--num_epochs=2"),
        )
        towers = self._variables(("source", "--num_gpus=4", "--batch_size=2"))
        for name, value in whole.items():
            np.testing.assert_array_equal(again[name], value, name)
            np.testing.assert_allclose(towers[name], value, 1e-5, err_msg=name)

    def test_an_example_that_cannot_be_had_ends_the_run(self):
        status, text = self._train("damaged", "--num_epochs=1", "--noeval_at_end")
        self.assertEqual(status, 1)
        self.assertRegex(text, r"from_source: source\[33\] failed: KeyError: 'nothing")

    def test_data_that_the_model_does_not_read_is_refused(self):
        status, text = self._train("other")
        self.assertEqual(status, 2)
        words = r"features\['i'\] is float64 \[2\], the model reads float32 \[2\]"
        self.assertRegex(text, words)
