"""The inputs of a network: tensors by their specs, images, tokens of a text, or pairs.

    Inputs(
        features={"image": tf.TensorSpec([8, 8, 1]), "table": tf.TensorSpec([5])},
        labels=tf.TensorSpec([]),
    )

The class determines which data fits, what synthetic data looks like, how a batch is
prepared for the first block, and the unit of speeds.  An example is its features and
labels: nests (dicts, tuples) of tensors of any dtype and static shape.  The three other
classes are for kinds of data with their own default data sets.
"""

import dataclasses
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import tensorflow as tf

from models.layers import Layers
from models.validation import COUNT, check

# Labels are less than this; of pairs (users, items).
Classes = int | tuple[int, int]

_IMAGE = "image"


class Example:
    """The base of the classes.

    Attributes:
      features: nest of `tf.TensorSpec`s of one example, without the batch dimension.
      labels: nest of `tf.TensorSpec`s; () if there are none.
    """

    features: Any
    labels: Any

    @property
    def has_images(self) -> bool:
        """Whether features are images, so that the data format makes a difference."""
        return any(self._is_image(path, spec) for path, spec in _leaves(self.features))

    def prepare(self, features: Any, nn: Layers) -> Any:
        """Prepares a batch for the first block.

        Args:
          features: nest of tensors [batch, ...].
          nn: layers of the tower.

        Returns:
          the nest, its floats in the compute dtype, its images in the data format.

        Raises:
          ValueError: the features are not those that the model reads.
        """
        self.check_fit("features", features)
        prepared = []
        for (path, x), (_, spec) in zip(_leaves(features), _leaves(self.features)):
            x = tf.cast(x, nn.dtype) if x.dtype.is_floating else x
            if nn.data_format == "NCHW" and self._is_image(path, spec):
                x = tf.transpose(x, [0, 3, 1, 2])
            prepared.append(x)
        return tf.nest.pack_sequence_as(features, prepared)

    def check_fit(self, kind: str, batch: Any) -> None:
        """Compares a batch with the specs, if these are fixed.

        Args:
          kind: `features` or `labels`.
          batch: nest of tensors or specs [batch, ...].

        Raises:
          ValueError: they differ; the sentence names the tensor.
        """

    def _is_image(self, path: "_Path", spec: tf.TensorSpec) -> bool:
        """Whether a feature is an image, [height, width, channels]."""
        return _name(path, spec) == _IMAGE and spec.shape.rank == 3


@dataclasses.dataclass(frozen=True)
class Inputs(Example):
    """Features and labels of any specs.

    Attributes:
      features: nest of `tf.TensorSpec`s of one example, without the batch dimension.
      labels: nest of `tf.TensorSpec`s; () if there are none.
      images: names of the features that are images, [height, width, channels], and are
        transposed for the data format NCHW.  The name of a feature is that of its spec,
        or else its key.  None means features named `image` with three dimensions.
      num_classes: `nn.num_classes`, if the data does not have its own number; integers
        of synthetic data are in [0, num_classes).
      data_name: the default data set.
      num_examples: examples in an epoch of synthetic data.
      unit: of speeds, in the plural.
      units_per_example: number of units in an example.
      kind: as in `Images`.
    """

    features: Any
    labels: Any = ()
    images: Sequence[str] | None = None
    num_classes: int = 2
    data_name: str = "synthetic"
    num_examples: int = 1_000_000
    unit: str = "examples"
    units_per_example: int = 1

    kind: ClassVar[str] = "examples"
    preprocessing: ClassVar[str] = ""
    shape: ClassVar[tuple[()]] = ()

    def __post_init__(self) -> None:
        counts = ("num_classes", "num_examples", "units_per_example")
        check(self, **dict.fromkeys(counts, COUNT))
        for kind in ("features", "labels"):
            for path, spec in _leaves(getattr(self, kind)):
                _check_spec(f"Inputs.{kind}{_words(path)}", spec)
        ranks = {_name(*leaf): leaf[1].shape.rank for leaf in _leaves(self.features)}
        if not ranks:
            raise ValueError("Inputs.features has no tensor; name what the model reads")
        for name in self.images or ():
            if ranks.get(name) != 3:
                raise ValueError(
                    f"Inputs.images names {name!r}, which is no feature of shape "
                    "[height, width, channels]"
                )

    def check_fit(self, kind: str, batch: Any) -> None:
        """As in `Example`."""
        wanted = {
            path: _spelled(s, s.shape) for path, s in _leaves(getattr(self, kind))
        }
        given = {path: _spelled(t, t.shape[1:]) for path, t in _leaves(batch)}
        for path in wanted | given:
            has = given.get(path, "missing")
            reads = wanted.get(path, "nothing of that name")
            if has != reads:
                raise ValueError(
                    f"{kind}{_words(path)} is {has}, the model reads {reads}"
                )

    def _is_image(self, path: "_Path", spec: tf.TensorSpec) -> bool:
        if self.images is None:
            return super()._is_image(path, spec)
        return _name(path, spec) in self.images


# Keys and indices from the outermost nest to a tensor.
_Path = tuple[Any, ...]


def _leaves(nest: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    """(path, tensor or spec), in the order of `tf.nest.flatten`."""
    if isinstance(nest, Mapping):
        for key in sorted(nest):
            yield from _leaves(nest[key], (*path, key))
    elif isinstance(nest, tuple):
        for index, part in enumerate(nest):
            yield from _leaves(part, (*path, index))
    else:
        yield path, nest


def _words(path: _Path) -> str:
    return "".join(f"[{key!r}]" for key in path)


def _name(path: _Path, spec: tf.TensorSpec) -> str:
    """The name of a feature: that of its spec, or its innermost key."""
    return spec.name or (str(path[-1]) if path else "")


def _spelled(tensor: Any, shape: tf.TensorShape) -> str:
    return f"{tensor.dtype.name} {list(shape)}"


def _check_spec(what: str, spec: object) -> None:
    """Refuses anything but a `tf.TensorSpec` with a number dtype and a static shape.

    Raises:
      ValueError: the sentence begins with `what`.
    """
    if not isinstance(spec, tf.TensorSpec):
        raise ValueError(
            f"{what} is {reprlib.repr(spec)}, and must be a tf.TensorSpec, or a dict "
            "or tuple of them"
        )
    if not spec.shape.is_fully_defined():
        raise ValueError(
            f"{what} has the shape {spec.shape}, all of which must be known; pad what "
            "is shorter, and leave out the batch dimension"
        )
    if not (spec.dtype.is_numpy_compatible and spec.dtype != tf.string):
        raise ValueError(
            f"{what} is {spec.dtype.name}, and towers read numbers; look words up "
            "where the data are made"
        )


@dataclasses.dataclass(frozen=True)
class Images(Example):
    """Images, [batch, height, width, channels], with a class each, int32 [batch].

    Attributes:
      shape: (height, width, channels) of one example as the first block gets it.
        With `preprocessing="scale"` the data set's own size is used instead.
      num_classes: classes of synthetic data; real data has its own number.
      preprocessing: a row of `towers.data.preprocessing.PREPROCESSING` for images.
      data_name: the default data set, `digits` or `synthetic`.
      num_examples: examples in an epoch of synthetic data.
      kind: of data, a row of `towers.data.inputs.KINDS`.
      unit: of speeds, in the plural.
    """

    shape: tuple[int, int, int]
    num_classes: int
    preprocessing: str = "scale"
    data_name: str = "synthetic"
    num_examples: int = 1_281_167

    kind: ClassVar[str] = "images"
    unit: ClassVar[str] = "images"
    units_per_example: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check(self, **dict.fromkeys(("shape", "num_classes", "num_examples"), COUNT))

    @property
    def features(self) -> tf.TensorSpec:
        """The spec of one image."""
        return tf.TensorSpec(self.shape, tf.float32, _IMAGE)

    @property
    def labels(self) -> tf.TensorSpec:
        """The spec of its class."""
        return tf.TensorSpec([], tf.int32)

    def prepare(self, features: tf.Tensor, nn: Layers) -> tf.Tensor:
        """As in `Example`; images of any dtype become floats."""
        return super().prepare(tf.cast(features, nn.dtype), nn)


@dataclasses.dataclass(frozen=True)
class Tokens(Example):
    """Windows of a text, each token with the one that follows it.

    An example is `length` tokens and, as its label, the `length` tokens that begin one
    later: both int32 [batch, length].

    Attributes:
      length: tokens in a window.
      num_classes: number of tokens in synthetic data; real data has its own number.
      preprocessing: the kind of tokens, a row of `towers.data.text.TOKENS`: `bytes`, or
        `words`, of which the `num_classes` most frequent are distinguished.
      data_name: the default data set.
      num_examples: windows in an epoch of synthetic data.
      kind, unit: as in `Images`.
    """

    length: int
    num_classes: int = 256
    preprocessing: str = "bytes"
    data_name: str = "synthetic"
    num_examples: int = 1_000_000

    kind: ClassVar[str] = "tokens"
    unit: ClassVar[str] = "tokens"

    def __post_init__(self) -> None:
        check(self, **dict.fromkeys(("length", "num_classes", "num_examples"), COUNT))

    @property
    def shape(self) -> tuple[int]:
        """The shape of one example: (length,)."""
        return (self.length,)

    @property
    def features(self) -> tf.TensorSpec:
        """The spec of a window."""
        return tf.TensorSpec([self.length], tf.int32)

    @property
    def labels(self) -> tf.TensorSpec:
        """The spec of the tokens that follow."""
        return self.features

    @property
    def units_per_example(self) -> int:
        """How many tokens an example is."""
        return self.length


@dataclasses.dataclass(frozen=True)
class Pairs(Example):
    """Pairs of a user and an item, and whether the user liked the item.

    An example is one pair, int32 [batch, 2], its label int32 [batch]; in evaluation it
    is several pairs of one user, int32 [batch, candidates, 2] and [batch, candidates],
    of which the first is the one that was liked.

    Attributes:
      num_classes: (users, items) of synthetic data; real data has its own numbers.
      data_name: the default data set.
      num_examples: pairs in an epoch of synthetic data.
      kind, unit, preprocessing: as in `Images`.
    """

    num_classes: tuple[int, int]
    data_name: str = "synthetic"
    num_examples: int = 1_000_000

    kind: ClassVar[str] = "pairs"
    unit: ClassVar[str] = "examples"
    preprocessing: ClassVar[str] = "pairs"
    shape: ClassVar[tuple[int]] = (2,)
    units_per_example: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check(self, **dict.fromkeys(("num_classes", "num_examples"), COUNT))

    @property
    def features(self) -> tf.TensorSpec:
        """The spec of one pair."""
        return tf.TensorSpec([2], tf.int32)

    @property
    def labels(self) -> tf.TensorSpec:
        """The spec of whether the item was liked."""
        return tf.TensorSpec([], tf.int32)
