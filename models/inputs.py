"""What a network reads: images, the tokens of a text, or pairs of a user and an item.

The class says which kind of data set fits, what synthetic data looks like, how a batch
becomes what the first block reads, and in which unit a speed is told.
"""

import dataclasses
from typing import ClassVar

import tensorflow as tf

from models.layers import Layers
from models.validation import COUNT, check


@dataclasses.dataclass(frozen=True)
class Images:
    """Images, [batch, height, width, channels], with a class each, int32 [batch].

    Attributes:
      shape: (height, width, channels) of one example as the first block gets it.
        With `preprocessing="scale"` a data set's own size takes its place.
      num_classes: classes of the synthetic stand-in; real data brings its own number.
      preprocessing: a row of `towers.data.preprocessing.PREPROCESSING` for images.
      data_name: the data set when the user names none: `digits`, or `synthetic`.
      num_examples: examples in an epoch of the synthetic stand-in.
      kind: of data, a row of `towers.data.inputs.KINDS`.
      unit: what a speed counts, in the plural.
    """

    shape: tuple[int, int, int]
    num_classes: int
    preprocessing: str = "scale"
    data_name: str = "synthetic"
    num_examples: int = 1_281_167

    kind: ClassVar[str] = "images"
    unit: ClassVar[str] = "images"

    def __post_init__(self):
        check(self, **dict.fromkeys(("shape", "num_classes", "num_examples"), COUNT))

    @property
    def units_per_example(self) -> int:
        """How many of them an example is."""
        return 1

    def prepare(self, features: tf.Tensor, nn: Layers) -> tf.Tensor:
        """A batch as the first block reads it: in the compute dtype and data format."""
        x = tf.cast(features, nn.dtype)
        return tf.transpose(x, [0, 3, 1, 2]) if nn.data_format == "NCHW" else x


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Windows of a text, each token with the one that follows it.

    An example is `length` tokens and, as its label, the `length` tokens that begin one
    later: int32 [batch, length] both.

    Attributes:
      length: tokens in a window.
      num_classes: tokens that there are in the synthetic stand-in; real data brings
        its own number.
      preprocessing: what the tokens of a text are, a row of `towers.data.text.TOKENS`:
        `bytes`, or `words`, of which the `num_classes` most frequent are told apart.
      data_name: the data set when the user names none.
      num_examples: windows in an epoch of the synthetic stand-in.
      kind, unit: as `Images` has them.
    """

    length: int
    num_classes: int = 256
    preprocessing: str = "bytes"
    data_name: str = "synthetic"
    num_examples: int = 1_000_000

    kind: ClassVar[str] = "tokens"
    unit: ClassVar[str] = "tokens"

    def __post_init__(self):
        check(self, **dict.fromkeys(("length", "num_classes", "num_examples"), COUNT))

    @property
    def shape(self) -> tuple[int]:
        """The shape of one example: (length,)."""
        return (self.length,)

    @property
    def units_per_example(self) -> int:
        """How many tokens an example is."""
        return self.length

    def prepare(self, features: tf.Tensor, nn: Layers) -> tf.Tensor:
        """A batch as the first block reads it: as it is."""
        del nn
        return features


@dataclasses.dataclass(frozen=True)
class Pairs:
    """Pairs of a user and an item, and whether the user liked the item.

    An example is one pair, int32 [batch, 2], its label int32 [batch]; in evaluation it
    is several pairs of one user, int32 [batch, candidates, 2] and [batch, candidates],
    of which the first is the one that was liked.

    Attributes:
      num_classes: (users, items) of the synthetic stand-in; real data brings its own.
      data_name: the data set when the user names none.
      num_examples: pairs in an epoch of the synthetic stand-in.
      kind, unit, preprocessing: as `Images` has them.
    """

    num_classes: tuple[int, int]
    data_name: str = "synthetic"
    num_examples: int = 1_000_000

    kind: ClassVar[str] = "pairs"
    unit: ClassVar[str] = "examples"
    preprocessing: ClassVar[str] = "pairs"
    shape: ClassVar[tuple[int]] = (2,)
    units_per_example: ClassVar[int] = 1

    def __post_init__(self):
        check(self, **dict.fromkeys(("num_classes", "num_examples"), COUNT))

    def prepare(self, features: tf.Tensor, nn: Layers) -> tf.Tensor:
        """A batch as the first block reads it: as it is."""
        del nn
        return features
