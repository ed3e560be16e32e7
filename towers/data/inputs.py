"""Data sets by name: one batch per tower and step, resumable and deterministic.

    source = get("digits", Request(shape=(8, 8, 1)), training=True)
    feed = source.feed(placement.groups, batch_size=32, position=position.read_value())
    session.run(feed.initializer)  # once `position` has its value
    features, labels, weights, first = feed.batches[0]

The input is a function of the stream position, the number of examples consumed.  A
checkpoint contains this number, and any number of towers can continue from it.  The
stream never ends; examples from `limit` on have weight 0, so that the last batch has as
many examples as the others.
"""

import copy
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from flags.sections import DataFlags
from models.language import NO_TOKEN
from models.layers import Rows
from towers.data import (
    catalog,
    image_layouts,
    named_features,
    own_data,
    preprocessing,
    ratings,
    records,
    text,
)
from towers.data.example_source import ExampleSource
from towers.data.examples import explain_example
from towers.data.host_share import HostShare
from towers.data.records import Records
from towers.data.source import Request, Source, set_classes, specs
from towers.data.stream import MEMORY_BYTES, Stream
from towers.data.stream_source import StreamSource
from towers.data.synthetic import SyntheticSource


class DatasetSource(StreamSource):
    """A split of a data set: shuffled and distorted for training, else unchanged.

    Attributes:
      name: of the data set.
      num_classes: labels are in [0, num_classes); of pairs, (users, items).
      num_examples: in the split, which is an epoch.
      features, labels: nests of `tf.TensorSpec`s of one example.
      path: folder of its files, or "".
      vocabulary: as in `Records`.
      records: the examples before decoding.
      rows: of a stateful model, or None.
    """

    rows: Rows | None = None

    def __init__(
        self,
        examples: Records,
        request: Request,
        *,
        training: bool = True,
        memory: int = MEMORY_BYTES,
    ):
        """Makes a source of records.

        Args:
          examples: of the split.
          request: what the network needs.
          training: whether they are shuffled, and distorted if `request.augment`.
          memory: bytes of decoded images up to which a split is kept in memory.

        Raises:
          ValueError: the images do not fit the network, there is no such preprocessing
            for its kind of data, or augmentation is turned off and there is none.
        """
        if not request.augment and request.kind != "images":
            raise ValueError(
                f"augment=False: only images are distorted, not {request.kind}; "
                "leave it out"
            )
        super().__init__(
            prefetch=request.prefetch,
            threads=request.threads,
            max_damaged=request.max_damaged,
        )
        self._training, self._repeated = training, training and request.repeated
        if self._repeated:
            examples = examples.repeated()
        options = dict(request.image_options)
        row = preprocessing.get(
            request.preprocessing, kind=request.kind, options=options
        )
        small = examples.num_bytes <= memory and not row.of_pictures
        if request.max_damaged and (small or not examples.by_number):
            raise wrong_setting(
                "max_damaged_examples",
                request.max_damaged,
                f"the examples of {examples.name} are not read one by one",
                "leave it out; only images in TFRecords or folders are",
            )
        try:
            shape = row.fit(examples.shape, request.shape)
        except ValueError as error:
            raise ValueError(f"data set {examples.name}: {error}") from error
        if examples.by_number and not small:
            records.check_some(examples, request.max_damaged)
        self.name = examples.name
        self._kind = request.kind
        self.num_classes = examples.num_classes
        self.num_examples = examples.num_examples
        self.path = examples.path
        self.vocabulary = examples.vocabulary
        self.records = examples
        self.features, self.labels = specs(dataclasses.replace(request, shape=shape))
        self._stream = Stream(
            records=examples,
            shape=shape,
            preprocessing=row,
            seed=request.seed,
            shuffle=training and not self._repeated,
            augment=training and request.augment,
            in_memory=small,
            max_damaged=request.max_damaged,
        )

    def batches(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """As `StreamSource` has it."""
        batches = self._stream.batches(share, position)
        if not self.rows or self._training:
            return batches

        @tf.autograph.experimental.do_not_convert
        def weigh(features: Any, labels: tf.Tensor, indices: tf.Tensor) -> Any:
            there = tf.cast(tf.not_equal(labels, NO_TOKEN), tf.float32)
            return features, labels, indices, tf.reduce_mean(there, 1)

        return batches.map(weigh)

    def in_rows(self, count: int) -> "DatasetSource":
        """The same text in `count` rows (`row_order.windows`); all for evaluation.

        Raises:
          ValueError: it is no text.
        """
        if self.rows and self.rows.count == count:
            return self
        if self.records.in_rows is None:
            raise ValueError(
                f"the model passes a state from step to step, and {self.name} are "
                f"{self._kind}, which do not continue one another; name a text"
            )
        source = copy.copy(self)
        examples = self.records.in_rows(count, not self._training)
        if self._repeated:
            examples = examples.repeated()
        source.records, source.num_examples = examples, examples.num_examples
        source._stream = dataclasses.replace(
            self._stream, records=examples, shuffle=False, kept=None
        )
        source.rows = Rows(count, examples.num_examples // count)
        return source

    def decoded(self) -> "DatasetSource":
        """The same source, decoded once for many graphs of this process.

        Raises:
          tf.errors.OpError: files are damaged.
        """
        source = copy.copy(self)
        source._stream = self._stream.decoded()
        return source


NamedSource = SyntheticSource | DatasetSource | ExampleSource


def get(
    name: str, request: Request, *, split: str | None = None, training: bool = True
) -> NamedSource:
    """The source that `--data_name=name` means.

    Args:
      name: a row of `DATASETS`, a function of the user (see `own_data.get`), the TFDS
        name of a data set of the kind that is requested, or the path of a text (see
        `text.find`).
      request: what the network needs.
      split: as in TFDS, also parts (`train[:90%]`).  None for `train`, or for
        evaluation `validation`, or `test` if there is no such split.
      training: whether examples are shuffled and distorted.

    Raises:
      ValueError: there is no such data set or split, it cannot be prepared, its images
        do not fit the network, there is no such preprocessing for its kind of data, or
        it has more classes than outputs are asked for.
    """
    # Before files are searched.  Synthetic data is not preprocessed, but the name of
    # the preprocessing must be right there, too.
    if request.kind != "examples":  # which are not preprocessed
        options = dict(request.image_options)
        preprocessing.get(request.preprocessing, kind=request.kind, options=options)
    users_own = own_data.is_function(name)
    find = own_data.get if users_own else DATASETS.get(name, _named)
    source = find(name, request, split, training)
    if request.num_outputs:
        set_classes(source, request)
    return source


def check_default(name: str, flags: DataFlags, model: str) -> None:
    """Refuses flags about a data set that have no effect on the model's default one.

    Args:
      name: of the model's default data set.
      flags: of data, without a name of a data set.
      model: its name.

    Raises:
      ValueError: a flag has no effect on the default data set.
    """
    about = {}
    if name in DATASETS and flags.data_dir:
        about["data_dir"] = flags.data_dir
    if name == "synthetic" and flags.train_split != type(flags).train_split:
        about["train_split"] = flags.train_split
    for flag, value in about.items():
        raise wrong_setting(
            flag,
            value,
            "say which data set with `data_name`",
            f"{model} trains on {name} by default",
        )


def check_other_tasks(source: NamedSource) -> None:
    """Refuses data that other tasks of an in-graph cluster cannot read.

    Args:
      source: of training.

    Raises:
      ValueError: Python code of this process reads it.
    """
    if isinstance(source, ExampleSource) and source.examples.in_python:
        raise wrong_setting(
            "data_name",
            source.name,
            "Python reads it, which only the process that builds the graph can run",
            "write `replication=between_graph`, where each worker builds its own, or "
            "make the data by towers.data.from_files, of TensorFlow's operations only",
        )


def from_arrays(
    images: np.ndarray,
    labels: np.ndarray,
    *,
    num_classes: int,
    request: Request | None = None,
    training: bool = True,
) -> DatasetSource:
    """A source of the user's own images.

    Args:
      images: [examples, height, width, channels]; uint8 is scaled to [-1, 1] unless
        the request says otherwise, float32 is not changed.
      labels: integers [examples].
      num_classes: labels are in [0, num_classes).
      request: what the network needs; None for images of any size.
      training: whether they are shuffled and distorted.

    Raises:
      ValueError: shapes or labels do not fit.
    """
    examples = records.from_arrays(images, labels, num_classes=num_classes)
    request = request or Request(shape=())  # "scale" keeps the size of the images
    return DatasetSource(examples, request, training=training)


def example_at(source: Source, index: int) -> str:
    """The example at this index of the stream, in words."""
    if isinstance(source, ExampleSource):
        return f"example {source.number_of(index)}"
    return f"the example at index {index} of the stream"


def explain(error: BaseException, *sources: Source) -> str | None:
    """One sentence about a session call that failed on data, or None.

    It is about damaged files, or about an example of the user's data.

    Args:
      error: from the call.
      sources: the sources that it may have read.
    """
    examples = [
        source.examples for source in sources if isinstance(source, ExampleSource)
    ]
    if sentence := explain_example(error, *examples):
        return sentence
    named = [source for source in sources if isinstance(source, DatasetSource)]
    return records.explain(error, examples=[source.records for source in named])


def _named(
    name: str, request: Request, split: str | None, training: bool
) -> NamedSource:
    splits = (split,) if split else ("train",) if training else ("validation", "test")
    if "://" in name and request.kind != "images":
        words = "only images are read from there"
        raise wrong_setting(
            "data_name", name, words, "copy it to a disk, and name that"
        )
    if request.kind == "pairs" and split and (split == "train") != training:
        flag = "train_split" if training else "eval_split"
        raise wrong_setting(
            flag,
            split,
            "of ratings, train is trained on, and validation, whose pairs are "
            "candidates, is evaluated",
            "leave the flag out",
        )
    if request.kind == "examples":
        examples = named_features.find(name, request, splits=splits)
        source = ExampleSource(examples, request, training=training)
        source.name = name
        return source
    split_records = KINDS[request.kind](name, request, splits=splits)
    return DatasetSource(split_records, request, training=training)


def _images(name: str, request: Request, *, splits: Sequence[str]) -> Records:
    folder = request.data_dir or ""
    images = image_layouts.find(name, splits=splits, data_dir=folder)
    images = images or catalog.find(name, splits=splits, data_dir=folder)
    return image_layouts.with_background(images) if request.background_class else images


def _synthetic(
    name: str, request: Request, split: str | None, training: bool
) -> NamedSource:
    del name, split, training
    return SyntheticSource(request)


# kind of data -> function: (name, request, splits=) -> the records of a data set.
KINDS: dict[str, Callable[..., Records]] = {
    "images": _images,
    "tokens": text.find,
    "pairs": ratings.find_ratings,
}

# name -> function: (name, request, split, training) -> source.  Other names are those
# of TFDS or paths.
DATASETS: dict[str, Callable[[str, Request, str | None, bool], NamedSource]] = {
    "synthetic": _synthetic,
    "digits": _named,
    "shakespeare": _named,
}
