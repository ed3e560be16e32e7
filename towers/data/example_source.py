"""The stream of examples that are read by their numbers.

Example i of the stream has a number that is a function of (seed, i).  So starting at
any position takes no time, and a host reads only its own rows.
"""

import dataclasses
from typing import Any

import tensorflow as tf

from models.layers import example_uniform
from towers.data import order, preprocessing, stream
from towers.data.examples import AUGMENT_DRAWS, Examples, Parts, leaves
from towers.data.preprocessing import DRAWS, Preprocessing
from towers.data.source import Batch, ClientShare, Request, specs
from towers.data.stream import HostShare
from towers.data.stream_source import StreamSource

_RESUMING = "each host reads an epoch from its beginning up to the position"

_plain = tf.autograph.experimental.do_not_convert


class ExampleSource(StreamSource):
    """Examples by number: shuffled and augmented for training, else unchanged.

    Attributes:
      name: of the data.
      num_examples: in the split, which is an epoch.
      features, labels: nests of `tf.TensorSpec`s of one example, as the model gets it.
      path: "", as the folder of the data is not known.
      vocabulary: of the examples.
      resuming: in words, what resuming in the middle of an epoch costs; "" if nothing.
      examples: the data.
    """

    path = ""

    def __init__(self, examples: Examples, request: Request, *, training: bool = True):
        """Makes a source of examples.

        Args:
          examples: of the split.
          request: what the network needs.
          training: whether they are shuffled, and augmented if `request.augment`.

        Raises:
          ValueError: they are not what the network reads; the sentence names the
            tensor.
        """
        super().__init__(prefetch=request.prefetch, threads=request.threads)
        self._images: Preprocessing | None = None
        if request.kind == "images":
            self._images = preprocessing.get(request.preprocessing, kind="images")
            shape = self._images.fit(_image_shape(examples.specs[0]), request.shape)
            request = dataclasses.replace(request, shape=shape)
        self.name = examples.name
        self.num_examples = examples.num_examples
        self.vocabulary = examples.vocabulary
        self.resuming = "" if examples.read else _RESUMING
        self.features, self.labels = specs(request)
        self.examples = examples
        self._seed = request.seed
        self._training = training
        self._augment = training and request.augment
        _check_fit(examples.specs, (self.features, self.labels), self._images)

    def decoded(self) -> "ExampleSource":
        """As `DatasetSource.decoded`; returns this source."""
        return self

    def batches(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """As `StreamSource` has it."""
        examples, calls = self.examples, self.examples.calls
        read_numbers = examples.read
        if read_numbers is None:
            return self._in_sequence(share, position)

        @_plain
        def read(step: tf.Tensor) -> Any:
            indices = stream.indices_of_step(step, share, position)
            return self._prepared(read_numbers(self._numbers(indices)), indices)

        @_plain
        def read_one(row: tf.Tensor) -> tuple[Any, tf.Tensor]:
            step, row = row // share.count, row % share.count
            index = position + step * share.step + share.first + row
            parts = read_numbers(self._numbers(index))
            if self._augment and examples.augment:
                shape = (1, AUGMENT_DRAWS)
                draws = example_uniform(shape, seed=self._seed, first=index)
                parts = examples.augment(parts, draws[0])
            return parts, index

        rows = tf.data.Dataset.range(tf.int64.max)
        if not examples.single:
            return rows.map(read, num_parallel_calls=calls)
        rows = rows.map(read_one, num_parallel_calls=calls)
        return rows.batch(share.count, drop_remainder=True).map(_plain(self._prepared))

    def _in_sequence(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """Batches of a dataset that is read from the beginning of an epoch."""

        def epoch_of(seed: tf.Tensor) -> tf.data.Dataset:
            assert self.examples.open is not None
            dataset = self.examples.open(seed if self._training else None)
            # An epoch of another length would shift all later ones unnoticed.
            length = tf.data.experimental.assert_cardinality(self.num_examples)
            return dataset.apply(length)

        @_plain
        def read(indices: tf.Tensor, *parts: Any) -> Any:
            return self._prepared(parts, indices)

        rows = stream.epochs(self.num_examples, self._seed, position, epoch_of)
        rows = stream.rows_of_host(rows, share, position)
        rows = rows.map(_plain(lambda index, parts: (index, *parts)))
        return rows.batch(share.count, drop_remainder=True).map(read)

    def weight_of_step(
        self, batch: Batch, part: ClientShare, rows: int, limit: int | None
    ) -> tf.Tensor | None:
        """As `StreamSource` has it."""
        if self.examples.weights is None or part.count == 1 or part.apart:
            return None
        first = batch.first - part.index * rows
        indices = first + tf.range(rows * part.count, dtype=tf.int64)
        weights = self.examples.weights(self._numbers(indices))
        if limit is not None:
            weights = tf.where(indices < limit, weights, tf.zeros_like(weights))
        return tf.reduce_sum(weights)

    def _numbers(self, indices: tf.Tensor) -> tf.Tensor:
        """The numbers of the examples at these indices of the stream."""
        if self._training:
            return order.epoch_order(indices, self.num_examples, self._seed)
        return indices % self.num_examples

    def _prepared(self, parts: Parts, indices: tf.Tensor) -> Parts:
        """A batch as the model gets it: (features, labels, indices), and weights where
        there are some."""
        features, labels, *weights = parts
        if self._images:
            shape = tuple(self.features.shape)
            if self._augment:
                draws = example_uniform(
                    (indices.shape[0], DRAWS), seed=self._seed, first=indices[0]
                )
                features = self._images.training(features, shape, draws)
            else:
                features = self._images.evaluation(features, shape)
        features, labels = tf.nest.map_structure(
            lambda tensor, spec: tf.cast(tensor, spec.dtype),
            (features, labels),
            (self.features, self.labels),
        )
        return (features, labels, indices, *weights)


def _image_shape(features: Any) -> tuple[int, ...]:
    """The shape of the images that an example's features are.

    Raises:
      ValueError: features are not an image.
    """
    shape = tuple(getattr(features, "shape", ()))
    if len(shape) != 3:
        said = ", ".join(f"{name} {_words(spec)}" for name, spec in leaves((features,)))
        raise ValueError(
            f"the model reads images [height, width, channels], and features are {said}"
        )
    return shape


def _words(spec: tf.TensorSpec | None) -> str:
    return f"{spec.dtype.name} {list(spec.shape)}" if spec else "nothing"


def _check_fit(given: Parts, wanted: Parts, images: Any) -> None:
    """Compares examples with what the model reads.

    Args:
      given: specs of one example.
      wanted: specs of (features, labels).
      images: whether features are images, which are prepared.

    Raises:
      ValueError: they differ; the sentence names the tensor.
    """
    reads = dict(leaves(wanted))
    has = dict(leaves(given[:2]))
    for name in sorted(reads | has):
        if images and name == "features":
            continue
        here, there = has.get(name), reads.get(name)
        if here is None or there is None or not _fits(here, there):
            raise ValueError(
                f"{name} is {_words(here)}, the model reads {_words(there)}"
            )


def _fits(here: tf.TensorSpec, there: tf.TensorSpec) -> bool:
    """Whether a tensor can be read; integers may have another width."""
    both = here.dtype.is_integer and there.dtype.is_integer
    return here.shape == there.shape and (both or here.dtype == there.dtype)
