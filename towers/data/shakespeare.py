"""A megabyte of Shakespeare as a TFDS data set that ships with the project.

Importing this module registers the builder with TFDS under the name `shakespeare`, so
that it takes the same path as any other data set:

    tfds.load("shakespeare", split="train")
"""

import bz2
import pathlib
from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

_DESCRIPTION = """
40,000 lines of plays by Shakespeare, 1,115,394 bytes of ASCII: the text that is known
as tiny Shakespeare, byte for byte.  Its first nine tenths are `train` and the rest is
`validation`, as nanoGPT has it, so that losses compare.
"""

_CITATION = """
@misc{karpathy2015charrnn,
  title  = {char-rnn: data/tinyshakespeare/input.txt},
  author = {Karpathy, Andrej},
  year   = {2015},
  url    = {https://github.com/karpathy/char-rnn},
}
"""


class Shakespeare(tfds.core.GeneratorBasedBuilder):
    """Plays by Shakespeare: one text for training and one for validation."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description=_DESCRIPTION,
            features=tfds.features.FeaturesDict({"text": tfds.features.Text()}),
            homepage="https://github.com/karpathy/char-rnn",
            citation=_CITATION,
            license="public domain",
        )

    def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
        text = read_text()
        cut = len(text) * 9 // 10
        return {
            "train": self._generate_examples(text[:cut]),
            "validation": self._generate_examples(text[cut:]),
        }

    def _generate_examples(self, text: bytes) -> Iterator[tuple[int, dict[str, Any]]]:
        yield 0, {"text": text}


def read_text() -> bytes:
    """The text in the file, 1,115,394 bytes."""
    path = pathlib.Path(__file__).with_name("shakespeare.txt.bz2")
    return bz2.decompress(path.read_bytes())
