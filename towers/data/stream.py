"""The stream of examples: a tf.data pipeline that can start at any position.

Example i of the stream belongs to epoch i // n.  The order of an epoch depends on
(seed, epoch), and the augmentation of an example on (seed, i).  Records are shuffled
and skipped before they are decoded, and a host decodes only its own rows.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from models.uniform import example_uniform
from towers.data import order
from towers.data.damaged_examples import Guard
from towers.data.host_share import HostShare, epochs, indices_of_step, rows_of_host
from towers.data.pictures import Picture
from towers.data.preprocessing import DRAWS, Preprocessing, Size
from towers.data.reading_session import reading_session
from towers.data.records import Records, permutation

v1 = tf.compat.v1

Rows = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # features, labels, indices

# Size of the shuffle buffer for records in files: enough to mix a dozen of ImageNet's
# files, whose JPEGs then take about 2 GB.
_SHUFFLE_BUFFER = 16384

# Decoded images of a split and arrays are kept in variables up to this size.
MEMORY_BYTES = 2**28

# Batches of examples that are read by number: so many at a time, as at the end of
# one a core may have nothing left to do.
_BATCHES_AT_ONCE = 2

# Without AutoGraph, which takes 0.2 s at the start; there is no Python control flow.
_plain = tf.autograph.experimental.do_not_convert


def unsaved(value: tf.Tensor) -> tf.Variable:
    """A variable in no collection, so it is not saved or initialized with others."""
    return v1.Variable(value, trainable=False, collections=[], use_resource=True)


def kept_in_variables(
    tensors: Sequence[tf.Tensor], position: tf.Tensor
) -> tuple[list[tf.Variable], tf.Tensor]:
    """Variables of the tensors' values, and the position.

    What reads the position, as the initializer of an iterator does, assigns them first.
    """
    variables = [unsaved(tensor) for tensor in tensors]
    with tf.control_dependencies([variable.initializer for variable in variables]):
        return variables, tf.identity(position)


@dataclasses.dataclass(frozen=True)
class Stream:
    """An endless stream over the records of a split.

    Attributes:
      records: the examples of an epoch.
      shape: of the features.
      preprocessing: from images to features.
      seed: of order and augmentation.
      shuffle: whether every epoch has another order; if not, records keep theirs.
      augment: whether examples are distorted as for training.
      in_memory: whether decoded images are kept in memory; if not, records are decoded
        in every epoch.
      max_damaged: records that are read by their numbers and cannot be decoded have
        weight 0, up to so many in an epoch.
      kept: all images and labels, after `decoded`; None if each graph decodes them.
    """

    records: Records
    shape: Size
    preprocessing: Preprocessing
    seed: int
    shuffle: bool
    augment: bool
    in_memory: bool
    max_damaged: int = 0
    kept: tuple[np.ndarray, np.ndarray] | None = None

    def decoded(self) -> "Stream":
        """The same stream, decoded now if it fits into memory.

        Only graphs of this process can read it, as they call Python for the images.
        """
        if not self.in_memory or self.kept:
            return self
        with reading_session() as session:
            return dataclasses.replace(self, kept=session.run(self._rows()))

    def batches(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """A dataset of one host's batches, step by step, on the current device.

        Args:
          share: the host's rows.
          position: int64 scalar, index in the stream of the first step's first row.

        Returns:
          A dataset of (features float32 [count, *shape], labels int32 [count], indices
          in the stream int64 [count]); with `max_damaged` also of weights float32
          [count].
        """
        if self.in_memory:
            return self._kept(share, position)
        take = self.records.take
        if take:
            numbered = self._gathered(share._replace(order=None), position, take)
        elif self.records.by_number:
            numbered = self._numbered(share, position)
        else:
            return self._decoded(share, position)
        since = self.records.numbered_since
        if share.order is None or since == order.PERMUTED:
            return numbered
        old = self._decoded(share, position)
        if self.max_damaged:  # examples have weights
            old = old.map(_plain(lambda *rows: (*rows, tf.ones([share.count]))))
        return _of_version(old, numbered, share.order < since)

    def _kept(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """Batches of decoded images, which are kept in a variable."""
        (images, labels), position = kept_in_variables(self._rows(), position)
        return self._gathered(
            share, position, lambda n: (tf.gather(images, n), tf.gather(labels, n))
        )

    def _gathered(
        self,
        share: HostShare,
        position: tf.Tensor,
        take: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]],
    ) -> tf.data.Dataset:
        """Batches of examples that are taken by their numbers, all at once."""

        @_plain
        def gather(step: tf.Tensor, numbers: tf.Tensor) -> Rows:
            indices = indices_of_step(step, share, position)
            examples, labels = take(numbers)
            return self._features(examples, indices[0]), labels, indices

        steps = self._numbers(share, position).enumerate()
        return steps.map(gather, num_parallel_calls=tf.data.AUTOTUNE)

    def _numbers(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """The numbers of the records that are a host's rows, int64 [count] a step."""
        n = self.records.num_examples

        @_plain
        def of_step(step: tf.Tensor) -> tf.Tensor:
            indices = indices_of_step(step, share, position)
            if self.shuffle:
                return order.epoch_order(indices, n, self.seed)
            return indices % n

        @_plain
        def of_host(numbers: tf.Tensor) -> tf.Tensor:
            mine = numbers[share.first : share.first + share.count]
            return tf.cast(mine, tf.int64)

        steps = tf.data.Dataset.range(tf.int64.max).map(of_step)
        if not self.shuffle or share.order is None:
            return steps
        permuted = self._epochs(position, self._permuted)
        permuted = permuted.batch(share.step, drop_remainder=True).map(of_host)
        return _of_version(permuted, steps, tf.equal(share.order, order.PERMUTED))

    def _rows(self) -> tuple[tf.Tensor, tf.Tensor]:
        """All images and labels, in their own order."""
        if self.kept:
            rows = tf.numpy_function(
                lambda: self.kept, [], [a.dtype for a in self.kept], stateful=False
            )
            return tuple(map(tf.ensure_shape, rows, [a.shape for a in self.kept]))

        if self.records.take:
            return self.records.take(tf.range(self.records.num_examples, dtype="int64"))

        @_plain
        def decode(_: tf.Tensor, record: Any) -> tuple[tf.Tensor, tf.Tensor]:
            return self.records.decode(record)

        every_record = self._records_of_epoch(None).enumerate()
        decoded = every_record.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        rows = decoded.batch(self.records.num_examples, drop_remainder=True)
        return rows.get_single_element()

    def _numbered(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """Reads records by their numbers, in the order of each epoch.

        A batch is read at once.  If that fails, the guard reads its examples one by
        one, which takes longer and names the one that is damaged.
        """
        n, place = self.records.num_examples, self.records.place
        by_number = self.records.by_number
        assert by_number and place
        specs = (tf.TensorSpec(self.shape), tf.TensorSpec([], tf.int32))  # of images
        guard = Guard(specs, self.max_damaged)

        @_plain
        def at_once(number: tf.Tensor, index: tf.Tensor, *draws: tf.Tensor) -> Any:
            record = by_number(number).get_single_element()
            weight = (tf.constant(1.0),) if self.max_damaged else ()
            return (*self._one_prepared(record, index, *draws), index, *weight)

        @_plain
        def guarded(number: tf.Tensor, index: tf.Tensor, *draws: tf.Tensor) -> Any:
            @_plain
            def prepare(record: Any) -> tuple[tf.Tensor, tf.Tensor]:
                return self._one_prepared(record, index, *draws)

            example, weight = guard.read(
                by_number(number), prepare, number, place(number)
            )
            return (*example, index, *weight)

        @_plain
        def of_step(step: tf.Tensor) -> tf.data.Dataset:
            indices = indices_of_step(step, share, position)
            numbers = indices % n
            if self.shuffle:
                numbers = order.epoch_order(indices, n, self.seed)
            draws = (self._draws(share.count, indices[0]),) if self.augment else ()
            parts = (tf.cast(numbers, tf.int64), indices, *draws)
            rows = tf.data.Dataset.from_tensor_slices(parts)
            whole, parted = (
                rows.map(read, num_parallel_calls=tf.data.AUTOTUNE).batch(
                    share.count, drop_remainder=True
                )
                for read in (at_once, guarded)
            )
            return whole.ignore_errors().concatenate(parted).take(1)

        steps = tf.data.Dataset.range(tf.int64.max).interleave(
            of_step, _BATCHES_AT_ONCE, 1, num_parallel_calls=_BATCHES_AT_ONCE
        )
        return guard.counted(steps, n)

    def _draws(self, count: int, first: tf.Tensor) -> tf.Tensor:
        """The random numbers of examples whose first has this index in the stream."""
        return example_uniform((count, DRAWS), seed=self.seed, first=first)

    def _one_prepared(
        self, record: Any, index: tf.Tensor, draws: tf.Tensor | None = None
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Features and label of one record at this index of the stream.

        Args:
          record: of `records`.
          index: int64 scalar.
          draws: its random numbers; None to draw them here.
        """
        if not self.preprocessing.of_pictures:
            image, label = self.records.decode(record)
            return self._features(image[None], index)[0], label
        if self.records.encoded:
            image, boxes, label = self.records.encoded(record)
        else:
            image, label = self.records.decode(record)
            boxes = tf.zeros([0, 4])
        picture = Picture(image, boxes, index)
        if not self.augment:
            return self.preprocessing.evaluation(picture, self.shape), label
        if draws is None:
            draws = self._draws(1, index)[0]
        return self.preprocessing.training(picture, self.shape, draws), label

    def _decoded(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """Decodes records as they are read from their files."""
        indexed = self._epochs(position, self._records_of_epoch)
        indexed = rows_of_host(indexed, share, position)

        @_plain
        def decode(index: tf.Tensor, record: Any) -> Rows:
            return *self.records.decode(record), index

        @_plain
        def prepare_one(index: tf.Tensor, record: Any) -> Rows:
            return *self._one_prepared(record, index), index

        @_plain
        def prepare_batch(
            images: tf.Tensor, labels: tf.Tensor, indices: tf.Tensor
        ) -> Rows:
            return self._features(images, indices[0]), labels, indices

        # Images of several sizes can be stacked after preprocessing only.
        if None in self.records.shape or self.preprocessing.of_pictures:
            examples = indexed.map(prepare_one, num_parallel_calls=tf.data.AUTOTUNE)
            return examples.batch(share.count, drop_remainder=True)
        examples = indexed.map(decode, num_parallel_calls=tf.data.AUTOTUNE)
        return examples.batch(share.count, drop_remainder=True).map(
            prepare_batch, num_parallel_calls=tf.data.AUTOTUNE
        )

    def _epochs(
        self, position: tf.Tensor, epoch_of: Callable[[tf.Tensor], tf.data.Dataset]
    ) -> tf.data.Dataset:
        """`epochs` of the records."""
        return epochs(self.records.num_examples, self.seed, position, epoch_of)

    def _permuted(self, seed: tf.Tensor) -> tf.data.Dataset:
        """The numbers of the records in the order of an epoch of old checkpoints."""
        numbers = permutation(self.records.num_examples, seed)
        return tf.data.Dataset.from_tensor_slices(numbers)

    def _records_of_epoch(self, seed: tf.Tensor | None) -> tf.data.Dataset:
        """The records in the order of an epoch, or in their own."""
        n = self.records.num_examples
        shuffled = self.shuffle and seed is not None
        dataset = self.records.open(seed if shuffled else None)
        # An epoch of another length would shift all later ones unnoticed.
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(n))
        if not shuffled:
            return dataset
        scalar = tf.random.stateless_uniform([], seed, minval=None, dtype=tf.int64)
        return dataset.shuffle(
            min(n, _SHUFFLE_BUFFER), seed=scalar, reshuffle_each_iteration=False
        )

    def _features(self, images: tf.Tensor, first: tf.Tensor) -> tf.Tensor:
        """The features of images [count, ...], the first of which has index `first`."""
        count = images.shape[0]
        if not self.augment:
            features = self.preprocessing.evaluation(images, self.shape)
        else:
            draws = self._draws(count, first)
            features = self.preprocessing.training(images, self.shape, draws)
        return tf.ensure_shape(features, (count, *self.shape))


def _of_version(
    old: tf.data.Dataset, new: tf.data.Dataset, is_old: tf.Tensor
) -> tf.data.Dataset:
    """The new dataset; the old one in a run that continues from an old checkpoint."""
    count = tf.where(is_old, tf.constant(-1, tf.int64), 0)  # all, or none
    return old.take(count).concatenate(new)
