"""What whole runs leave of their evaluations: numbers, sums, pictures."""

import contextlib
import dataclasses
import glob
import io
import os
from unittest import mock

import numpy as np
import tensorflow as tf

import towers
from models import metrics, pictures
from tests import digit_runs

v1 = tf.compat.v1


def _model():
    def pixels(outputs, labels):
        del labels
        return {"noise": tf.reshape(tf.sigmoid(outputs[:, :9]), [-1, 3, 3, 1])}

    return dataclasses.replace(
        digit_runs.small_model(),
        metrics=lambda outputs, labels: {
            "accuracy": metrics.accuracy(outputs, labels),
            "matrix": metrics.confusion_matrix(outputs, labels),
        },
        derived=lambda values: {
            "macro_f1": metrics.macro(metrics.f1(metrics.counts_of(values["matrix"]))),
            "confusion": pictures.confusion(values["matrix"]),
        },
        pictures=pixels,
    )


def _images(directory):
    """(step, tag) -> (PNG, height, width) of the image summaries in a folder."""
    return {
        (event.step, value.tag): (
            value.image.encoded_image_string,
            value.image.height,
            value.image.width,
        )
        for path in glob.glob(f"{directory}/events*")
        for event in v1.train.summary_iterator(path)
        for value in event.summary.value
        if value.HasField("image")
    }


class FilesTest(digit_runs.Runs):
    def _train(self, **settings):
        return self.run_flags(
            get_model=lambda name: _model(),
            train_dir=self.directory,
            num_warmup_batches=0,
            **settings,
        )

    def test_of_each_evaluation(self):
        lines = self._train(
            num_gpus=2,
            batch_size=8,
            num_batches=4,
            eval_during_training_every_n_steps=2,
            eval_at_end=True,
        )
        folder = f"{self.directory}/eval"
        files = {name for name in os.listdir(folder) if "events" not in name}
        wanted = ("confusion-{}.png", "noise-{}.png", "sums-{}.npz")
        self.assertEqual(files, {name.format(n) for name in wanted for n in (2, 4)})
        images = _images(folder)
        for (step, tag), (png, height, width) in images.items():
            with open(f"{folder}/{tag}-{step}.png", "rb") as file:
                self.assertEqual(file.read(), png)
            with tf.Graph().as_default(), v1.Session() as session:
                decoded = session.run(tf.io.decode_png(png))
            self.assertEqual(decoded.shape, (height, width, 3))
            if tag == "confusion":
                with np.load(f"{folder}/sums-{step}.npz") as sums:
                    self.assertEqual(sums["matrix"].sum(), 355)
                    drawn = pictures.confusion(sums["matrix"])
                np.testing.assert_array_equal(decoded, drawn)
        self.assertEqual(
            {*images}, {(n, tag) for n in (2, 4) for tag in ("confusion", "noise")}
        )
        [line] = [line for line in lines if "macro_f1" in line][1:]
        scalars = {
            tag: value
            for step, tag, value in digit_runs.events(folder)
            if step == 4 and (step, tag) not in images
        }
        self.assertEqual({*scalars}, {"loss", "accuracy", "macro_f1"})
        self.assertIn(f"macro_f1 = {scalars['macro_f1']:.4f} [355", line)

        # Evaluation alone, on another number of towers, and from Python.
        self._train(eval=True, eval_dir=f"{folder}/alone", num_gpus=3)
        with np.load(f"{folder}/sums-4.npz") as sums:
            matrix = sums["matrix"]
        with np.load(f"{folder}/alone/sums-4.npz") as sums:
            np.testing.assert_array_equal(sums["matrix"], matrix)
        self.assertEqual(
            _images(f"{folder}/alone"), {k: v for k, v in images.items() if k[0] == 4}
        )
        with (
            contextlib.redirect_stdout(io.StringIO()),
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}),
        ):
            values = towers.evaluate(
                _model(), "digits", train_dir=self.directory, device="cpu"
            )
        np.testing.assert_array_equal(values["matrix"], matrix)
        self.assertAlmostEqual(values["macro_f1"], scalars["macro_f1"], places=6)

    def test_without_a_folder_there_are_none(self):
        before = os.listdir()
        lines = self.run_flags(
            get_model=lambda name: _model(),
            num_warmup_batches=0,
            num_batches=1,
            eval_at_end=True,
        )
        self.assertLen([line for line in lines if "macro_f1" in line], 1)
        self.assertEqual(os.listdir(), before)

    def test_what_cannot_be_derived_ends_the_run_with_its_checkpoint(self):
        model = dataclasses.replace(_model(), derived=lambda values: values)
        with self.assertRaisesRegex(Exception, "'matrix' is float64 .* return a numb"):
            self.run_flags(
                get_model=lambda name: model,
                train_dir=self.directory,
                num_warmup_batches=0,
                num_batches=2,
                eval_at_end=True,
            )
        self.assertEqual(self.steps(), [2])
