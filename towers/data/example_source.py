"""The stream of examples that are read by their numbers.

Example i of the stream has a number that is a function of (seed, i).  So starting at
any position takes no time, and a host reads only its own rows.
"""

import copy
import dataclasses
from typing import Any

import numpy as np
import tensorflow as tf

from models.layers import Rows, example_uniform
from towers.data import order, preprocessing, row_order, stream
from towers.data.examples import (
    AUGMENT_DRAWS,
    Examples,
    Parts,
    leaves,
    map_parts,
    named,
    required,
)
from towers.data.host_share import (
    HostShare,
    epochs,
    indices_of_step,
    rows_of_host,
)
from towers.data.preprocessing import DRAWS, Preprocessing
from towers.data.reading_session import reading_session
from towers.data.source import Batch, ClientShare, Request, specs
from towers.data.stream import MEMORY_BYTES
from towers.data.stream_source import StreamSource

_CLASS = "a class, in [0, {})"

_RESUMING = "each host reads an epoch from its beginning up to the position"

v1 = tf.compat.v1

_plain = tf.autograph.experimental.do_not_convert


class ExampleSource(StreamSource):
    """Examples by number: shuffled and augmented for training, else unchanged.

    Attributes:
      name: of the data.
      num_examples: in the split, which is an epoch.
      features, labels: nests of `tf.TensorSpec`s of one example, as the model gets it.
      path: "", as the folder of the data is not known.
      vocabulary: of the examples.
      num_classes: number of classes; None if the model's inputs have it.
      resuming: in words, what resuming in the middle of an epoch costs; "" if nothing.
      examples: the data.
      rows: of a stateful model, or None.
    """

    path = ""
    rows: Rows | None = None

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
        threads = examples.threads if request.threads is None else request.threads
        super().__init__(prefetch=request.prefetch, threads=threads)
        self._images: Preprocessing | None = None
        if request.kind == "images":
            self._images = preprocessing.get(
                request.preprocessing,
                kind="images",
                options=dict(request.image_options),
            )
            if self._images.of_pictures:
                raise ValueError(
                    f"preprocessing {request.preprocessing} is for images in files, "
                    "and these are arrays; name another"
                )
            shape = self._images.fit(_image_shape(examples.specs[0]), request.shape)
            request = dataclasses.replace(request, shape=shape)
        self.name = examples.name
        self.num_examples = examples.num_examples
        self.vocabulary = examples.vocabulary
        self.num_classes = examples.num_classes
        self.resuming = "" if examples.read else _RESUMING
        self.features, self.labels = specs(request)
        self.examples = examples
        self._seed = request.seed
        self._training = training
        self._augment = training and request.augment
        self._repeated = training and request.repeated
        self._limit = (
            (self.num_classes or request.num_classes) if request.classes else 0
        )
        _check_fit(examples.specs, (self.features, self.labels), self._images)
        self._right_labels = self._check_labels()

    def _check_labels(self) -> set[str]:
        """Refuses labels that are known before they are read and are no classes.

        Returns:
          the names of those that need no check when they are read.

        Raises:
          ValueError: one is out of range.
        """
        arrays = dict(named("labels", self.examples.labels))
        # A memory-mapped file may be larger than memory; it is checked as it is read.
        arrays = {n: a for n, a in arrays.items() if not isinstance(a, np.memmap)}
        for name, array in arrays.items():
            if not self._limit or array.dtype.kind not in "iu":
                continue
            wrong = (array < 0) | (array >= self._limit)
            if wrong.any():
                place = np.unravel_index(np.argmax(wrong), wrong.shape)
                raise ValueError(
                    f"{self.name}: {name} of example {place[0]} is {array[place]}; it "
                    f"must be {_CLASS.format(self._limit)}"
                )
        whole = self.num_examples
        return {name for name, array in arrays.items() if len(array) == whole}

    def decoded(self) -> "ExampleSource":
        """As `DatasetSource.decoded`; returns this source."""
        return self

    def in_rows(self, count: int) -> "ExampleSource":
        """The same examples in `count` rows, each a contiguous part of the data.

        Of training, the rest that does not fill the rows is left out.  In evaluation
        the last rows are filled up with examples of weight 0.

        Raises:
          ValueError: they are not read by their numbers.
        """
        if self.examples.read is None:
            raise ValueError(
                f"the model passes a state from step to step, and {self.name} are read "
                "in sequence; use towers.data.from_arrays or from_source, whose "
                "examples are read by their numbers"
            )
        source = copy.copy(self)
        number = self.examples.num_examples
        steps = number // count if self._training else -(-number // count)
        source.rows, source.num_examples = Rows(count, steps), count * steps
        return source

    def batches(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """As `StreamSource` has it."""
        examples, calls = self.examples, self.examples.calls
        read_numbers = examples.read
        if read_numbers is None:
            return self._in_sequence(share, position)
        if examples.arrays and sum(a.nbytes for a in examples.arrays) <= MEMORY_BYTES:
            read_numbers, position = self._gathering(position)
            calls = tf.data.AUTOTUNE

        @_plain
        def read(step: tf.Tensor) -> Any:
            indices = indices_of_step(step, share, position)
            numbers = self._numbers(indices)
            return self._prepared(read_numbers(numbers), numbers, indices)

        @_plain
        def numbered(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            indices = indices_of_step(step, share, position)
            return indices, self._numbers(indices)

        @_plain
        def read_one(
            index: tf.Tensor, number: tf.Tensor
        ) -> tuple[Parts, tf.Tensor, tf.Tensor]:
            parts = read_numbers(number)
            if self._augment and examples.augment:
                shape = (1, AUGMENT_DRAWS)
                draws = example_uniform(shape, seed=self._seed, first=index)
                parts = examples.augment(parts, draws[0])
            return parts, number, index

        steps = tf.data.Dataset.range(tf.int64.max)
        if not examples.single:
            return self._weighed(steps.map(read, num_parallel_calls=calls))
        rows = steps.map(numbered).unbatch().map(read_one, num_parallel_calls=calls)
        rows = rows.batch(share.count, drop_remainder=True)
        return self._weighed(rows.map(_plain(self._prepared)))

    def _gathering(self, position: tf.Tensor) -> tuple[Any, tf.Tensor]:
        """(numbers) -> parts of the examples, from variables; and the position.

        A call of Python for each batch would take longer than the gathering.
        """
        arrays = self.examples.arrays
        dtypes = [spec.dtype for spec in tf.nest.flatten(self.examples.specs)]
        values = tf.numpy_function(lambda: list(arrays), [], dtypes, stateful=False)
        values = [tf.ensure_shape(v, a.shape) for v, a in zip(values, arrays)]
        variables, position = stream.kept_in_variables(values, position)

        def gathered(numbers: tf.Tensor) -> Parts:
            rows = [tf.gather(variable, numbers) for variable in variables]
            return tf.nest.pack_sequence_as(self.examples.specs, rows)

        return gathered, position

    def _in_sequence(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """Batches of a dataset that is read from the beginning of an epoch."""

        @_plain
        def read(indices: tf.Tensor, numbered: tuple[tf.Tensor, Parts]) -> Any:
            return self._prepared(numbered[1], numbered[0], indices)

        rows = rows_of_host(self._opened(position), share, position)
        rows = rows.batch(share.count, drop_remainder=True)
        return self._weighed(rows.map(read))

    def _opened(self, position: tf.Tensor) -> tf.data.Dataset:
        """(number, parts) of all examples from the position on."""

        def epoch_of(seed: tf.Tensor) -> tf.data.Dataset:
            assert self.examples.open is not None
            if self._repeated:
                first = self.examples.open(None).take(1)
                return first.cache().repeat(self.num_examples)
            dataset = self.examples.open(seed if self._training else None)
            # An epoch of another length would shift all later ones unnoticed.
            length = tf.data.experimental.assert_cardinality(self.num_examples)
            return dataset.apply(length)

        return epochs(self.num_examples, self._seed, position, epoch_of)

    def number_of(self, index: int) -> int:
        """The number of the example at this index of the stream."""
        with reading_session() as session:
            position = tf.constant(index, tf.int64)
            number = self._numbers(position)
            if self.examples.read is None:
                rows = self._opened(position)
                number, _ = v1.data.make_one_shot_iterator(rows).get_next()
            return int(session.run(number))

    def _weighed(self, batches: tf.data.Dataset) -> tf.data.Dataset:
        """The batches, of which reading fails where all weights of an epoch are 0."""
        # Those of arrays were checked; an evaluation says it at its end.
        if self.rows and not self._training:
            return batches.map(_plain(self._without_fill))
        known = len(self.examples.specs) < 3 or self.examples.weights is not None
        if known or not self._training:
            return batches

        @_plain
        def add(state: tuple[tf.Tensor, tf.Tensor], batch: Any) -> Any:
            count, total = state
            count += batch[-1].shape[0]
            total += tf.reduce_sum(batch[-1])
            fine = (count < self.num_examples) | (total > 0)
            words = f"{self.name}: the weights of an epoch are all 0"
            return (count, required(total, fine, words)), batch

        return batches.scan((tf.constant(0, tf.int64), tf.constant(0.0)), add)

    def _without_fill(
        self, features: Any, labels: Any, indices: tf.Tensor, *weights: tf.Tensor
    ) -> Parts:
        """The batch, with weight 0 of the examples that only fill the last rows."""
        assert self.rows
        there = row_order.numbers(indices, self.rows) < self.examples.num_examples
        weight = weights[0] if weights else tf.ones(indices.shape)
        return features, labels, indices, tf.where(there, weight, tf.zeros_like(weight))

    def weight_of_step(
        self, batch: Batch, part: ClientShare, rows: int, limit: int | None
    ) -> tf.Tensor | None:
        """As `StreamSource` has it."""
        if self.examples.weights is None or part.count == 1 or part.apart:
            return None
        first = batch.first - part.before(rows)
        indices = first + tf.range(part.of_step(rows), dtype=tf.int64)
        weights = self.examples.weights(self._numbers(indices))
        if limit is not None:
            weights = tf.where(indices < limit, weights, tf.zeros_like(weights))
        return tf.reduce_sum(weights)

    def _numbers(self, indices: tf.Tensor) -> tf.Tensor:
        """The numbers of the examples at these indices of the stream."""
        if self._repeated:
            return tf.zeros_like(indices)
        if self.rows:
            last = self.examples.num_examples - 1
            return tf.minimum(row_order.numbers(indices, self.rows), last)
        if self._training:
            return order.epoch_order(indices, self.num_examples, self._seed)
        return indices % self.num_examples

    def _prepared(self, parts: Parts, numbers: tf.Tensor, indices: tf.Tensor) -> Parts:
        """A batch as the model gets it: (features, labels, indices), and weights where
        there are some."""
        features, labels, *weights = self._checked(parts, numbers)
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

    def _checked(self, parts: Parts, numbers: tf.Tensor) -> Parts:
        """A batch, of which reading fails where a class or a weight is out of range."""
        right = self._right_labels
        if self.examples.weights is not None:  # checked by `from_arrays`
            right = right | {"weights"}

        def check(name: str, values: tf.Tensor) -> tf.Tensor:
            if name in right:
                return values
            if name == "weights":
                fine = (values >= 0) & tf.math.is_finite(values)
                must = "0 or more, and finite"
            elif name.startswith("labels") and self._limit and values.dtype.is_integer:
                wide = tf.cast(values, tf.int64)
                fine = (wide >= 0) & (wide < self._limit)
                must = _CLASS.format(self._limit)
            else:
                return values
            first = tf.argmin(tf.cast(tf.reshape(fine, [-1]), tf.int32))
            row = first // (tf.size(fine, tf.int64) // tf.size(numbers, tf.int64))
            words = f"{self.name}: {name} of example {{}} is {{}}; it must be {must}"
            shown = numbers[row], tf.reshape(values, [-1])[first]
            return required(values, tf.reduce_all(fine), words, *shown)

        return map_parts(check, parts)


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
    return f"{spec.dtype.name} {list(spec.shape)}" if spec else "missing"


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
    for name in has | reads:
        if images and name == "features":
            continue
        here, there = has.get(name), reads.get(name)
        if here is None or there is None or not _fits(here, there):
            words = _words(there) if there else "nothing of that name"
            raise ValueError(f"{name} is {_words(here)}, the model reads {words}")


def _fits(here: tf.TensorSpec, there: tf.TensorSpec) -> bool:
    """Whether a tensor can be read; integers may have another width."""
    both = here.dtype.is_integer and there.dtype.is_integer
    return here.shape == there.shape and (both or here.dtype == there.dtype)
