"""The README's snippets run as they stand there."""

import pathlib
import re
import subprocess
import sys

import tensorflow as tf

_ROOT = pathlib.Path(__file__).resolve().parent.parent


def _snippets() -> list[str]:
    text = (_ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


class ReadmeTest(tf.test.TestCase):
    def _run(self, *command: str, folder: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=folder,
            env={"PYTHONPATH": f"{folder}:{_ROOT}", "TFDS_DATA_DIR": folder},
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        return done.stdout

    def test_a_model_of_your_own(self):
        source = _snippets()[0]
        self.assertLessEqual(len(source.splitlines()), 30)
        folder = self.create_tempdir().full_path
        pathlib.Path(folder, "mine.py").write_text(source, encoding="utf-8")
        flags = "--model=mine:tiny --num_gpus=4 --device=cpu".split()
        lines = self._run("-m", "towers.train", *flags, folder=folder)
        accuracy = re.search(r"Accuracy @ 1 = ([\d.]+)", lines).group(1)
        self.assertGreater(float(accuracy), 0.9)

    def test_from_python(self):
        folder = self.create_tempdir().full_path
        source = _snippets()[1].replace(
            "placement.local(4)", "placement.local(4, kind='cpu')"
        )
        lines = self._run("-c", source, folder=folder)
        self.assertRegex(lines, r"\[(np\.int64\()?20")


if __name__ == "__main__":
    tf.test.main()
