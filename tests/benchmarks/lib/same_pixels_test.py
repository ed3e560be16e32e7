"""Pixels are compared, and a difference is found; tf_cnn_benchmarks is played."""

import argparse
import contextlib
import io
from unittest import mock

import numpy as np
from absl.testing import absltest

from benchmarks.lib import same_pixels, tf_cnn
from tests import make_imagenet

_NAMES = ("training nearest colours", "evaluation official", "training cifar10")


class SamePixelsTest(absltest.TestCase):
    def setUp(self):
        """Makes a JPEG, and leaves a few cases."""
        super().setUp()
        self.jpeg = self.create_tempdir().full_path + "/a.jpg"
        with open(self.jpeg, "wb") as file:
            (image,) = make_imagenet.jpegs(1, 300, 400)
            file.write(image)
        every = same_pixels.cases()
        flags = {name: every[name] for name in _NAMES}
        self.enter_context(mock.patch.object(same_pixels, "cases", lambda: flags))

    def _compared(self, change):
        """Exit status and lines, if the pixels of the driver are ours with a change."""

        def played(name, cases, path, pixels, **options):
            del name, path, options
            results = {}
            for number, case in enumerate(cases):
                rng = np.random.default_rng(1)
                for _ in range(number + 1):
                    draws = rng.random(11, np.float32)
                index = case["index"]
                features, unit = same_pixels.ours(
                    case["flags"], case["file"], index, draws
                )
                results[str(number)] = change(case["flags"], features, unit)
            np.savez(pixels, **results)
            return ""

        options = argparse.Namespace(
            preprocessing=[self.jpeg], official_models="", timeout=9, json=None
        )
        output = io.StringIO()
        with (
            mock.patch.object(tf_cnn, "run_driver", played),
            contextlib.redirect_stdout(output),
        ):
            status = same_pixels.show(options, None)
        return status, output.getvalue()

    def test_the_same_pixels(self):
        status, said = self._compared(lambda flags, features, unit: features)
        self.assertEqual(status, 0)
        self.assertIn("0 of 3 cases are above 1; 0 were not run", said)

    def test_a_difference_is_found(self):
        def changed(flags, features, unit):
            features = features.copy()
            features[3, 3, 1] += 2 * unit * (flags["model"] == "resnet50")
            return features

        status, said = self._compared(changed)
        self.assertEqual(status, 1)
        self.assertIn("2 of 3 cases are above 1; 0 were not run", said)
        self.assertRegex(said, r"evaluation official +2\.0e\+00")

    def test_what_cannot_be_run_there(self):
        def changed(flags, features, unit):
            del unit
            return "sorry" if "input_preprocessor" in flags else features

        status, said = self._compared(changed)
        self.assertEqual(status, 0)
        self.assertRegex(said, r"evaluation official +not run")
        self.assertIn("evaluation official: sorry", said)
