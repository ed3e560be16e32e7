"""Data sets by name: one batch per tower and step, resumable and deterministic.

    source = get("digits", Request(shape=(8, 8, 1)), training=True)
    feed = source.feed(placement.groups, batch_size=32, position=position.read_value())
    session.run(feed.initializer)  # once `position` has its value
    features, labels, weights, first = feed.batches[0]

The input is a function of the stream position, the number of examples consumed: a
checkpoint holds that one number, and any number of towers can go on from it.  The
stream never ends; examples from `limit` on carry weight 0, so that a short last batch
is a batch like any other.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from flags.sections import DataFlags
from towers.data import catalog, preprocessing, ratings, records, text
from towers.data.records import Records
from towers.data.source import (
    ClientShare,
    Feed,
    Groups,
    Request,
    weight_of_all,
    weighted,
)
from towers.data.staging import Piece, staged
from towers.data.stream import HostShare, Stream
from towers.data.synthetic import SyntheticSource

v1 = tf.compat.v1

# A split whose decoded images fit into this is kept in memory: CIFAR-10's does.
_MEMORY_BYTES = 2**28


class DatasetSource:
    """A split of a data set: shuffled and distorted for training, else as it is.

    Attributes:
      name: of the data set.
      num_classes: labels are in [0, num_classes); of pairs, (users, items).
      num_examples: in the split, which is an epoch.
      shape: of the features, (height, width, channels).
      path: where its files are, or "".
      vocabulary: as `Records` has it.
      records: the examples before decoding.
    """

    def __init__(
        self,
        examples: Records,
        request: Request,
        *,
        training: bool = True,
        memory: int = _MEMORY_BYTES,
    ):
        """Makes a source of records.

        Args:
          examples: of the split.
          request: how the network wants them.
          training: whether they are shuffled, and distorted if `request.augment`.
          memory: bytes of decoded images up to which a split is kept in memory.

        Raises:
          ValueError: the images do not fit the network, or there is no such
            preprocessing for its kind of data, or no distortion to leave out.
        """
        if not request.augment and request.kind != "images":
            raise ValueError(
                f"augment=False: only images are distorted, not {request.kind}; "
                "leave it out"
            )
        row = preprocessing.get(request.preprocessing, kind=request.kind)
        try:
            self.shape = row.fit(examples.shape, request.shape)
        except ValueError as error:
            raise ValueError(f"data set {examples.name}: {error}") from error
        self.name = examples.name
        self.num_classes = examples.num_classes
        self.num_examples = examples.num_examples
        self.path = examples.path
        self.vocabulary = examples.vocabulary
        self.records = examples
        self._request = request
        self._stream = Stream(
            records=examples,
            shape=self.shape,
            preprocessing=row,
            seed=request.seed,
            shuffle=training,
            augment=training and request.augment,
            in_memory=examples.num_bytes <= memory,
        )

    def feed(
        self,
        groups: Groups,
        *,
        batch_size: int,
        position: tf.Tensor,
        limit: int | None = None,
        stage: bool | None = None,
        part: ClientShare = ClientShare(),  # noqa: B008 - a tuple
    ) -> Feed:
        """Adds the towers' input pipelines to the current graph.

        Each host has one pipeline, with one batch per step that is split to all of its
        towers.  The towers' batches together are the next rows of the stream.  Of
        asynchronous towers, each takes the next batch of its host's pipeline when it
        steps, so no batch is used twice, and on one host none is left out.  Hosts do
        not take one another's rows: where one is slower, those of its rows are left out
        that it has not reached when the run ends.

        Args:
          groups: the hosts and their towers.
          batch_size: per tower.
          position: int64 scalar, index in the stream to which the initializer seeks.
          limit: examples from this index on have weight 0; None for no end.
          stage: whether batches are copied to the tower's device one step ahead, and
            read so much ahead; None to do so on GPUs.  Never for asynchronous towers.
          part: of the stream that this graph's towers read.

        Returns:
          The towers' batches, in tower order, and the operations that feed them.
        """
        batches, starts, refills = [], [], []
        takes = [1 if part.apart else len(devices) for _, devices in groups]
        sizes = [batch_size * count for count in takes]
        rows = sum(sizes)
        with tf.name_scope("input"):
            for index, (host, devices) in enumerate(groups):
                before = part.index * rows + sum(sizes[:index])
                share = HostShare(part.count * rows, before, sizes[index])
                on_gpu = any("GPU" in device for device in devices)
                with tf.device(host):
                    iterator = self._iterator(share, position, part.steps)
                    start = iterator.initializer
                    pieces = _take(iterator, len(devices), part.apart)
                    own_refills = [tf.no_op()] * len(devices)
                    # A tower that is ahead would find the batch of one behind taken.
                    if not part.apart and (stage or (stage is None and on_gpu)):
                        with tf.control_dependencies([start]):
                            primers = _take(iterator, len(devices), part.apart)
                        pieces, start, own_refills = staged(devices, primers, pieces)
                    batches += [
                        weighted(features, labels, indices, limit)
                        for features, labels, indices in pieces
                    ]
                starts.append(start)
                refills += own_refills
            with tf.device(groups[0][0]):
                weight = weight_of_all(batches[0].first, part, rows, limit)
            return Feed(batches, tf.group(starts), refills, weight, bool(part.steps))

    def decoded(self) -> "DatasetSource":
        """The same source for many graphs of this process, which it decodes for once.

        Raises:
          tf.errors.OpError: files are damaged.
        """
        source = copy.copy(self)
        source._stream = self._stream.decoded()
        return source

    def _iterator(
        self, share: HostShare, position: tf.Tensor, steps: int | None
    ) -> v1.data.Iterator:
        """An iterator over a host's batches; its initializer seeks to the position.

        After so many steps it begins there anew.
        """
        options = tf.data.Options()
        options.deterministic = True
        if self._request.threads:
            options.threading.private_threadpool_size = self._request.threads
        dataset = self._stream.batches(share, position)
        if steps:
            dataset = dataset.take(steps).repeat()
        dataset = dataset.prefetch(self._request.prefetch).with_options(options)
        return v1.data.make_initializable_iterator(dataset)


NamedSource = SyntheticSource | DatasetSource


def get(
    name: str, request: Request, *, split: str | None = None, training: bool = True
) -> NamedSource:
    """The source that `--data_name=name` means.

    Args:
      name: a row of `DATASETS`, or the TFDS name of a data set of the kind that is
        requested, or the path of a text (see `text.find`).
      request: how the network wants its examples.
      split: as TFDS writes it, parts (`train[:90%]`) too.  None for `train`, or for
        evaluation `validation`, or `test` where there is no such split.
      training: whether examples are shuffled and distorted.

    Raises:
      ValueError: there is no such data set or split, it cannot be had, or its images
        do not fit the network; or there is no such preprocessing for that kind of
        data.
    """
    # Before files are looked for; synthetic data is not prepared, but a wrong name is
    # wrong there, too.
    preprocessing.get(request.preprocessing, kind=request.kind)
    return DATASETS.get(name, _named)(name, request, split, training)


def check_default(name: str, flags: DataFlags, model: str) -> None:
    """Refuses flags of a data set that is not named where the model's default is used.

    Args:
      name: of the model's default data set.
      flags: of data, which name no data set.
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
        raise ValueError(
            f"--{flag}={value}: say which data set with --data_name; {model} trains on "
            f"{name} by default"
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
        the request says otherwise, float32 is taken as it is.
      labels: integers [examples].
      num_classes: labels are in [0, num_classes).
      request: how the network wants them; as they are when None.
      training: whether they are shuffled and distorted.

    Raises:
      ValueError: shapes or labels do not fit.
    """
    examples = records.from_arrays(images, labels, num_classes=num_classes)
    request = request or Request(shape=())  # "scale" keeps the size of the images
    return DatasetSource(examples, request, training=training)


def from_dataset(
    make: Callable[[], tf.data.Dataset],
    *,
    num_examples: int,
    num_classes: int,
    request: Request | None = None,
    training: bool = True,
) -> DatasetSource:
    """A source of the user's own dataset of (image, label) pairs.

    Args:
      make: makes the dataset in the current graph, in an order that is always the
        same; shuffling it is the source's business.
      num_examples: how many pairs it has.
      num_classes: labels are in [0, num_classes).
      request: how the network wants them; as they are when None.
      training: whether they are shuffled and distorted.

    Raises:
      ValueError: it is no such dataset.
    """
    examples = records.from_dataset(
        make, num_examples=num_examples, num_classes=num_classes
    )
    request = request or Request(shape=())  # "scale" keeps the size of the images
    return DatasetSource(examples, request, training=training)


def explain(error: Exception, *sources: NamedSource) -> str | None:
    """One sentence about a session call that failed on damaged files, or None.

    Args:
      error: from the call.
      sources: that it may have read.
    """
    named = [source for source in sources if isinstance(source, DatasetSource)]
    return records.explain(error, examples=[source.records for source in named])


def _named(
    name: str, request: Request, split: str | None, training: bool
) -> NamedSource:
    splits = (split,) if split else ("train",) if training else ("validation", "test")
    if request.kind == "pairs" and split and (split == "train") != training:
        flag = "train_split" if training else "eval_split"
        raise ValueError(
            f"--{flag}={split}: of ratings, train is trained on, and validation, whose "
            "pairs are candidates, is evaluated; leave the flag out"
        )
    examples = KINDS[request.kind](name, request, splits=splits)
    return DatasetSource(examples, request, training=training)


def _images(name: str, request: Request, *, splits: Sequence[str]) -> Records:
    return catalog.find(name, splits=splits, data_dir=request.data_dir or "")


def _synthetic(
    name: str, request: Request, split: str | None, training: bool
) -> NamedSource:
    del name, split, training
    return SyntheticSource(request)


# kind of data -> (name, request, splits=) -> the records of its data set.
KINDS: dict[str, Callable[..., Records]] = {
    "images": _images,
    "tokens": text.find,
    "pairs": ratings.find,
}

# name -> (name, request, split, training) -> source.  Other names are TFDS's or paths.
DATASETS: dict[str, Callable[[str, Request, str | None, bool], NamedSource]] = {
    "synthetic": _synthetic,
    "digits": _named,
    "shakespeare": _named,
}


def _take(iterator: v1.data.Iterator, num_towers: int, apart: bool) -> list[Piece]:
    """(features, labels, indices) for each tower.

    One batch of the iterator is split to the towers; or, if they step `apart`, each
    takes one.
    """
    if apart:
        return [iterator.get_next() for _ in range(num_towers)]
    return list(zip(*(tf.split(part, num_towers) for part in iterator.get_next())))
