"""The command line of `towers.predict`."""

import os

from absl.testing import parameterized

from flags import config, help_text, parse

_CHOICES = {"model": ("lenet", "mlp")}


def _parsed(*arguments):
    return parse.parse(["predict", *arguments], _CHOICES, config.PredictConfig)


class PredictFlagsTest(parameterized.TestCase):
    def test_what_is_said(self):
        settings = _parsed("--train_dir=~/run", "--out=~/p.npz", "--num_gpus=2")
        self.assertEqual(settings.predict.out, os.path.expanduser("~/p.npz"))
        self.assertEqual(settings.predict.train_dir, os.path.expanduser("~/run"))
        self.assertEqual(settings.devices.num_gpus, 2)

    @parameterized.parameters(
        ((), ["--train_dir: is needed; write --train_dir=...", "--out: is needed; "]),
        (
            ("--train_dir=d", "--out=p.csv", "--num_epochs=2"),
            ["--num_epochs: is a flag of python -m towers.train"],
        ),
        (("--train_dir=d", "--out=p.csv", "--ema_decay=1"), ["--ema_decay=1"]),
    )
    def test_what_is_wrong(self, arguments, beginnings):
        with self.assertRaises(parse.UsageError) as caught:
            _parsed(*arguments)
        for error, beginning in zip(caught.exception.errors, beginnings, strict=True):
            self.assertStartsWith(error, beginning)

    def test_help(self):
        text = help_text.text("", _CHOICES, config.PredictConfig)
        self.assertIn("--out", text)
        self.assertIn("python -m towers.predict --model=lenet", text)
