"""The main that predicts, as a user runs it."""

import contextlib
import importlib
import io
import os
import subprocess
import sys

import numpy as np
from absl.testing import absltest

import towers
from tests.processes.programs import ROOT
from towers import train

_SMALL = ["--model=mlp", "--device=cpu"]


def _predict(*flags):
    return subprocess.run(
        [sys.executable, "-m", "towers.predict", *_SMALL, *flags],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def _refused(*flags):
    """The errors of a command that ends with 2."""
    main = importlib.import_module("towers.predict").main
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        assert main(["predict", *_SMALL, *flags]) == 2
    lines = errors.getvalue().splitlines()
    return [line for line in lines if line.startswith("error: ")]


class PredictTest(absltest.TestCase):
    def test_the_command_and_the_call_predict_the_same(self):
        folder = self.create_tempdir().full_path
        run, out = os.path.join(folder, "run"), os.path.join(folder, "p.npz")
        with contextlib.redirect_stdout(io.StringIO()):
            status = train.main(
                ["train", *_SMALL, f"--train_dir={run}", "--num_epochs=1"]
            )
        self.assertEqual(status, 0)
        stages = ("--num_gpus=4", "--num_stages=2", "--num_micro_batches=2")
        done = _predict(f"--train_dir={run}", f"--out={out}", *stages)
        self.assertEqual(done.returncode, 0, done.stderr)
        predictions = np.load(out)["predictions"]
        self.assertIn(f"{len(predictions)} predictions are in {out}.", done.stdout)
        with contextlib.redirect_stdout(io.StringIO()):
            called = towers.predict(
                "mlp", "digits", train_dir=run, num_gpus=1, device="cpu"
            )
            means = towers.evaluate("mlp", "digits", train_dir=run, device="cpu")
        np.testing.assert_allclose(called, predictions, rtol=1e-4, atol=1e-5)
        # The share of right classes is that of the evaluation.
        self.assertEqual(predictions.shape[1], 10)
        self.assertBetween(means["top_1_accuracy"], 0.5, 1.0)

    def test_the_module_is_the_call_too(self):
        call = towers.predict
        module = importlib.import_module("towers.predict")
        self.assertIs(towers.predict, module)
        self.assertEqual(module.CHOICES.keys() & {"model"}, {"model"})
        for predict in (call, module):
            with self.assertRaisesRegex(ValueError, "^train_dir=.*: there is no check"):
                predict("mlp", "digits", train_dir=self.create_tempdir().full_path)

    def test_what_is_wrong_is_said_in_one_sentence_each(self):
        errors = _refused("--num_gpus=0")
        self.assertEqual([e.split(":")[1].strip() for e in errors], [
            "--num_gpus=0", "--train_dir", "--out"
        ])  # fmt: skip
        folder = self.create_tempdir().full_path
        [error] = _refused(f"--train_dir={folder}", f"--out={folder}/p.txt")
        self.assertIn(f"--out={folder}/p.txt: must end with one of .npz", error)
        out = [f"--train_dir={folder}", f"--out={folder}/p.npz"]
        [error] = _refused(*out, "--num_stages=2", f"--pipeline_report={folder}/r")
        self.assertIn("does not go with towers.predict, which takes no", error)
