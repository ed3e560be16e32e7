"""Implicit feedback from ratings, of TFDS or MovieLens: pairs of a user and an item.

    records = find_ratings("movielens/1m-ratings", request, splits=("train",))

As in He et al. (2017), every rated pair is a positive example, whatever the rating, and
the item that each user rated last is held out.  `validation` ranks it among 99
negatives, drawn once from the items that the user never rated.  All other pairs are
`train`, where each positive is followed by four negatives of the same user.  Their
items are drawn again in every epoch, from all items, so a few of them are positives.

The pairs are written to binary files when the data set is first used.
"""

import os
import pathlib
import warnings
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from flags.problem import wrong_setting
from towers.data import catalog, folders, mapped, order, tfds_records
from towers.data.records import Records
from towers.data.source import Request

# Names of MovieLens' files of ratings: of 1M and 10M, 100K, 20M and newer.
FILES = ("ratings.dat", "u.data", "ratings.csv")

# User, item and time of every rating, [ratings] each.
Ratings = tuple[np.ndarray, np.ndarray, np.ndarray]

_TRAIN_NEGATIVES = 4  # negatives per positive in training
_EVAL_NEGATIVES = 99  # negatives among which a held-out item is ranked
_HEADER = 2  # int32s before the rows of a file: numbers of users and of items


def find_ratings(name: str, request: Request, *, splits: Sequence[str]) -> Records:
    """The pairs of a data set.

    An example of `train` is int32 [3]: (user, item, 0) of a positive, with label 1, or
    (user, 0, number of items) of a negative whose item is drawn later, with label 0.
    An example of `validation` is the [100, 3] candidates of a user, with labels [100];
    the first is the positive.

    Args:
      name: of a TFDS data set with `user_id`, `timestamp` and one more `..._id`; or
        the path of a folder with one of `FILES`.
      request: has TFDS's data folder.
      splits: the first of these that is a row of `SPLITS` is used.

    Raises:
      ValueError: no such data set or split, or it cannot be prepared.
    """
    is_path = name[:1] in ("/", ".", "~")
    split = next((split for split in splits if split in SPLITS), None)
    if split is None:
        raise wrong_setting(
            "data_name",
            name,
            f"there is no split {' or '.join(splits)}, only {', '.join(SPLITS)}",
        )
    full_name, folder = (_of_files if is_path else _of_tfds)(name, request)
    path = folder / f"{split}.pairs"
    users, items = np.fromfile(path, np.int32, _HEADER).tolist()
    pairs = SPLITS[split](path, items)
    return pairs._replace(name=full_name, num_classes=(users, items))


def _of_tfds(name: str, request: Request) -> tuple[str, pathlib.Path]:
    """The full name of a TFDS data set, and the folder of its pairs."""
    builder, item = catalog.prepared(name, request.data_dir or "", _item_key)
    folder = tfds_records.cache(builder)
    if not all((folder / f"{split}.pairs").exists() for split in SPLITS):
        _write(name, folder, _ratings(builder, item))
    return builder.info.full_name, folder


def _of_files(name: str, request: Request) -> tuple[str, pathlib.Path]:
    """The name of a folder with one of `FILES`, and the folder of its pairs.

    Raises:
      ValueError: there is none, or it does not hold ratings.
    """
    del request
    folder = pathlib.Path(os.path.expanduser(name))
    file = next((folder / file for file in FILES if (folder / file).is_file()), None)
    if file is None:
        inside = (
            sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        )
        raise wrong_setting(
            "data_name",
            name,
            f"has none of {', '.join(FILES)}, but {', '.join(inside[:4]) or 'nothing'}",
            "name the folder of MovieLens' files",
        )
    pairs = folders.derived(folder)
    newest = [pairs / f"{split}.pairs" for split in SPLITS]
    changed = file.stat().st_mtime
    if not all(path.exists() and path.stat().st_mtime >= changed for path in newest):
        _write(name, pairs, _read(name, file))
    return folder.name, pairs


def _read(name: str, file: pathlib.Path) -> Ratings:
    """The ratings in one of `FILES`.

    Raises:
      ValueError: a line is not user, item, rating and time.
    """
    text = file.read_bytes()
    if text[:1].isalpha():  # a line of titles
        text = text.partition(b"\n")[2]
    lines = text.count(b"\n") + (not text.endswith(b"\n"))
    for between in (b"::", b",", b"\t"):
        text = text.replace(between, b" ")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            numbers = np.fromstring(text, np.float64, sep=" ").reshape(lines, 4)
        except (ValueError, Warning) as error:
            raise wrong_setting(
                "data_name",
                name,
                f"{file} has a line that is not user, item, rating and time",
                "unpack it again",
            ) from error
    users, items, _, times = numbers.astype(np.int64).T
    return users, items, times


def _item_key(name: str, info: tfds.core.DatasetInfo) -> str:
    """The key of the item among the features of an example."""
    keys = [key for key in info.features if key.endswith("_id") and key != "user_id"]
    if "user_id" not in info.features or "timestamp" not in info.features or not keys:
        raise wrong_setting(
            "data_name",
            name,
            "not a data set of ratings",
            f"an example has {', '.join(info.features)}, not user_id, timestamp and "
            "an item's id",
        )
    return keys[0]


def _ratings(builder: tfds.core.DatasetBuilder, item: str) -> Ratings:
    """Reads every rating; `item` is the key of the item's id.

    Raises:
      ValueError: they are in several splits.
    """
    if len(builder.info.splits) != 1:
        raise wrong_setting(
            "data_name",
            builder.name,
            f"its ratings are in the splits {', '.join(builder.info.splits)}, and are "
            "read from one",
            "choose a data set that has one split",
        )
    keys = ("user_id", item, "timestamp")
    features = tfds.features.FeaturesDict({k: builder.info.features[k] for k in keys})
    (split,) = builder.info.splits.values()
    batches = list(tfds_records.read_batches(split.file_instructions, features))
    users, items, times = (np.concatenate([b[key] for b in batches]) for key in keys)
    return users, items, times


def _write(name: str, folder: pathlib.Path, ratings: Ratings) -> None:
    """Writes the files of both splits: a header, then rows of int32.

    A row of `train` is (user, item), one of `validation` (user, item held out, 99
    negatives).

    Raises:
      ValueError: a user rated so many items that too few negatives are left, or no user
        rated two items.
    """
    user, item, time = ratings
    users, user = np.unique(user, return_inverse=True)
    items, item = np.unique(item, return_inverse=True)
    header = [len(users), len(items)]
    by_time = np.lexsort((item, time, user))
    user, item = user[by_time], item[by_time]
    # If a user rated an item again, only the last rating counts; otherwise the held-out
    # item could be in the training.
    pair = user.astype(np.int64) * len(items) + item
    _, from_end = np.unique(pair[::-1], return_index=True)
    last = np.sort(len(pair) - 1 - from_end)
    user, item = user[last], item[last]
    begins = np.flatnonzero(np.diff(user, prepend=-1))
    ends = np.append(begins[1:], len(user))
    if len(items) - np.max(ends - begins) < _EVAL_NEGATIVES:
        raise wrong_setting(
            "data_name",
            name,
            f"too few items to rank one among {_EVAL_NEGATIVES} that its user never "
            "rated",
        )
    rng = np.random.default_rng(0)  # the same negatives for all runs
    held_out = [
        (number, item[end - 1], *_never_rated(item[begin:end], len(items), rng))
        for number, (begin, end) in enumerate(zip(begins, ends))
    ]
    rest = np.delete(np.stack([user, item], axis=1), ends - 1, axis=0)
    if not len(rest):
        raise wrong_setting(
            "data_name",
            name,
            "every user rated one item, which is held out: nothing is left to train on",
        )
    for split, rows in (("validation", held_out), ("train", rng.permutation(rest))):
        partial = folder / f"{split}.pairs.{os.getpid()}"
        np.concatenate([header, np.ravel(rows)]).astype(np.int32).tofile(partial)
        os.replace(partial, folder / f"{split}.pairs")


def _never_rated(rated: np.ndarray, items: int, rng: np.random.Generator) -> np.ndarray:
    """Draws `_EVAL_NEGATIVES` distinct items below `items`, none of them in `rated`."""
    drawn = rng.integers(0, items, 4 * (_EVAL_NEGATIVES + len(rated)))
    _, first = np.unique(drawn, return_index=True)
    drawn = drawn[np.sort(first)]
    drawn = drawn[~np.isin(drawn, rated)]
    if len(drawn) < _EVAL_NEGATIVES:  # the user rated most of few items
        drawn = rng.permutation(np.setdiff1d(np.arange(items), rated))
    return drawn[:_EVAL_NEGATIVES]


def _rows(path: pathlib.Path, width: int) -> tf.data.Dataset:
    """The file's rows of `width` int32s, each as a string of bytes."""
    return tf.data.FixedLengthRecordDataset(
        os.fspath(path), 4 * width, header_bytes=4 * _HEADER
    )


def _rows_at(path: pathlib.Path, width: int, rows: tf.Tensor) -> tf.Tensor:
    """The rows with these numbers, int32 [rows, width]."""
    every = mapped.numbers(os.fspath(path), tf.int32)
    return mapped.pieces(every, _HEADER + width * rows, width)


def _count(path: pathlib.Path, width: int) -> int:
    """Number of rows in a file."""
    return (path.stat().st_size // 4 - _HEADER) // width


def _numbers(row: tf.Tensor, width: int) -> tf.Tensor:
    """A row's bytes as int32 [width]."""
    return tf.ensure_shape(tf.io.decode_raw(row, tf.int32), [width])


def _training(path: pathlib.Path, items: int) -> Records:
    """Positives, each followed by its negatives, whose items are drawn later."""

    @tf.autograph.experimental.do_not_convert
    def with_negatives(row: tf.Tensor) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensors(row).repeat()
        return tf.data.Dataset.zip((rows, tf.data.Dataset.range(1 + _TRAIN_NEGATIVES)))

    def example(pair: tf.Tensor, place: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        user, item = tf.unstack(pair, axis=-1)
        positive = tf.equal(place, 0)
        triple = [user, tf.where(positive, item, 0), tf.where(positive, 0, items)]
        return tf.stack(triple, axis=-1), tf.cast(positive, tf.int32)

    def take(numbers: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        each = 1 + _TRAIN_NEGATIVES
        return example(_rows_at(path, 2, numbers // each), numbers % each)

    return Records(
        name="",
        num_classes=0,
        num_examples=_count(path, 2) * (1 + _TRAIN_NEGATIVES),
        shape=(3,),
        dtype=tf.int32,
        open=lambda seed: _rows(path, 2).flat_map(with_negatives),
        decode=lambda record: example(_numbers(record[0], 2), record[1]),
        path=os.fspath(path),
        take=take,
        numbered_since=order.MAPPED,
    )


def _validation(path: pathlib.Path, items: int) -> Records:
    """Each user's held-out item, before its negatives."""
    del items
    width = 2 + _EVAL_NEGATIVES

    def example(row: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        candidates = row[..., 1:]
        none = tf.zeros_like(candidates)
        labels = none + tf.one_hot(0, 1 + _EVAL_NEGATIVES, dtype=tf.int32)
        return tf.stack([none + row[..., :1], candidates, none], axis=-1), labels

    return Records(
        name="",
        num_classes=0,
        num_examples=_count(path, width),
        shape=(1 + _EVAL_NEGATIVES, 3),
        dtype=tf.int32,
        open=lambda seed: _rows(path, width),
        decode=lambda record: example(_numbers(record, width)),
        path=os.fspath(path),
        take=lambda numbers: example(_rows_at(path, width, numbers)),
        numbered_since=order.MAPPED,
    )


# split -> (file, number of items) -> its records.
SPLITS: dict[str, Callable[[pathlib.Path, int], Records]] = {
    "train": _training,
    "validation": _validation,
}
