"""The README's snippets run as they stand there."""

import contextlib
import io
import os
import pathlib
import re
import sys
from unittest import mock

import tensorflow as tf

from tests.root import ROOT
from towers import train


def _snippets() -> list[str]:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


class ReadmeTest(tf.test.TestCase):
    def test_a_model_of_your_own(self):
        source = _snippets()[0]
        self.assertLessEqual(len(source.splitlines()), 30)
        folder = self.create_tempdir().full_path
        pathlib.Path(folder, "mine.py").write_text(source, encoding="utf-8")
        flags = "--model=mine:tiny --num_gpus=4 --device=cpu".split()
        with (
            mock.patch.object(sys, "path", [folder, *sys.path]),
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": folder}),
            contextlib.redirect_stdout(io.StringIO()) as lines,
        ):
            self.assertEqual(train.main(["train", *flags]), 0)
        accuracy = re.search(r"Accuracy @ 1 = ([\d.]+)", lines.getvalue()).group(1)
        self.assertGreater(float(accuracy), 0.9)

    def test_from_python(self):
        source = _snippets()[1].replace(
            "placement.local(4)", "placement.local(4, kind='cpu')"
        )
        with contextlib.redirect_stdout(io.StringIO()) as lines:
            exec(source, {})
        self.assertRegex(lines.getvalue(), r"\[(np\.int64\()?20")


if __name__ == "__main__":
    tf.test.main()
