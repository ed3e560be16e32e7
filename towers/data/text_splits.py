"""Finds the splits of a text: in a file, in a folder, or in a TFDS data set.

    texts = find("/data/ptb")
    part = texts.split("validation")  # a file's path, first byte and last byte

Texts are read as plain files.  A TFDS data set is written to one when it is first used,
with a text on each line.
"""

import os
import pathlib
import re
import shutil
import urllib.parse
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tensorflow_datasets as tfds

from flags.problem import wrong_setting
from towers.data import catalog, folders, tfds_records


class FileRange(NamedTuple):
    """A range of a file, from byte `start` to before byte `stop`."""

    path: str
    start: int
    stop: int

    def read(self) -> bytes:
        """The bytes of the range."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            return file.read(self.stop - self.start)


# Split -> its file range, or None if there is no such split.
Splits = Callable[[str], FileRange | None]


# The One Billion Word Benchmark: split -> the folder and the names of its shards.  The
# first of those held out is the test set (Jozefowicz et al. 2016).
_LM1B = {
    "train": ("training-monolingual.tokenized.shuffled", r"news\.en-(\d+)-of-(\d+)"),
    "validation": (
        "heldout-monolingual.tokenized.shuffled",
        r"news\.en\.heldout-(?!0+-)(\d+)-of-(\d+)",
    ),
    "test": (
        "heldout-monolingual.tokenized.shuffled",
        r"news\.en\.heldout-0+-of-\d+",
    ),
}


class Texts(NamedTuple):
    """The splits of a text.

    Attributes:
      name: of the text, in full.
      known: names of splits or, in a folder, of files, for messages.
      split: finds one.
    """

    name: str
    known: list[str]
    split: Splits


def find(name: str, data_dir: str = "") -> Texts:
    """The splits of a text.

    Args:
      name: the path of a plain text file, whose last tenth is `validation` and the rest
        `train`; or of a folder with a file for each split (see `_folder`); or the name
        of a TFDS data set with a text in each example.  A path begins with `/`, `.` or
        `~`, ends with `.txt`, or names an existing file.
      data_dir: TFDS's data folder; "" for TFDS's default.

    Raises:
      OSError: it cannot be read.
      ValueError: there is no such text.
    """
    path = pathlib.Path(os.path.expanduser(name))
    if path.is_dir() and (path / _LM1B["train"][0]).is_dir():
        return Texts(name, list(_LM1B), _lm1b(path))
    if path.is_dir() and name[0] in "/.~":
        inside = "no plain files" if any(path.iterdir()) else "an empty folder"
        splits = sorted(file.name for file in _files(path)) or [inside]
        return Texts(name, splits, _folder(path, name))
    if path.is_file() or name[0] in "/.~" or name.endswith(".txt"):
        return Texts(name, ["train", "validation"], _file(path, name))
    return _tfds(name, data_dir)


def _file(path: pathlib.Path, name: str) -> Splits:
    """A file with two splits."""
    size = path.stat().st_size
    if not path.is_file():
        raise wrong_setting("data_name", name, "is neither a plain file nor a folder")
    cut = size * 9 // 10
    parts = {
        "train": FileRange(os.fspath(path), 0, cut),
        "validation": FileRange(os.fspath(path), cut, size),
    }
    return parts.get


def _folder(path: pathlib.Path, name: str) -> Splits:
    """A folder with a file for each split.

    The file of a split has the split's name as a word in its name, without a letter or
    digit next to it: that of `test` is `test.txt` or `ptb.test.txt`, not `contest.txt`.
    Case does not matter, and `valid` means `validation`.
    """

    def split(wanted: str) -> FileRange | None:
        files = [file for file in _files(path) if _has_word(file.name, wanted)]
        # Beside PTB's words are its letters, ptb.char.train.txt.
        words = [
            file
            for file in files
            if re.fullmatch(r"ptb\.(train|valid|test)\.txt", file.name)
        ]
        files = words or files
        if len(files) > 1:
            names = " or ".join(sorted(file.name for file in files))
            raise wrong_setting(
                "data_name",
                name,
                f"which is the split {wanted}, {names}? Leave one in the folder, or "
                "give the others other names",
            )
        for other in ("train", "validation", "test"):
            if (
                files
                and not _has_word(wanted, other)
                and _has_word(files[0].name, other)
            ):
                raise wrong_setting(
                    "data_name",
                    name,
                    f"which split is {files[0].name}, {wanted} or {other}? Give it a "
                    "name with one of them",
                )
        return _whole(files[0]) if files else None

    return split


def _lm1b(path: pathlib.Path) -> Splits:
    """The One Billion Word Benchmark as unpacked; a split is copied into one file."""

    def split(wanted: str) -> FileRange | None:
        if wanted not in _LM1B:
            return None
        inside, pattern = _LM1B[wanted]
        if not (path / inside).is_dir():
            return None
        names = sorted(os.listdir(path / inside))
        matches = [match for n in names if (match := re.fullmatch(pattern, n))]
        if not matches:
            return None
        if wanted != "test":
            _check_shards(path, matches)
        shards = [path / inside / match.string for match in matches]
        whole = folders.derived(path) / f"{wanted}.txt"
        size = sum(shard.stat().st_size for shard in shards)
        if not whole.exists() or whole.stat().st_size != size:
            partial = whole.with_name(f"{whole.name}.{os.getpid()}")
            with open(partial, "wb") as file:
                for shard in shards:
                    with open(shard, "rb") as part:
                        shutil.copyfileobj(part, file)
            os.replace(partial, whole)
        return _whole(whole)

    return split


def _check_shards(path: pathlib.Path, matches: Sequence[re.Match[str]]) -> None:
    """Checks that no shard is missing.

    Of the training, shard 0 is what is held out; of that, it is the test set.

    Args:
      path: of the benchmark.
      matches: of the names of shards; the groups are its number and how many there are.

    Raises:
      ValueError: one is.
    """
    first, total = matches[0], int(matches[0][2])
    lacking = sorted(set(range(1, total)) - {int(match[1]) for match in matches})
    if lacking:
        begin, width = first.string[: first.start(1)], len(first[2])
        raise wrong_setting(
            "data_name",
            path,
            f"{begin}{lacking[0]:0{width}d}-of-{first[2]} is missing: "
            f"{len(lacking)} of {total - 1} files",
            "copy them there",
        )


def _has_word(file_name: str, split: str) -> bool:
    is_validation = split in ("valid", "validation")
    words = "valid|validation" if is_validation else re.escape(split)
    edge = r"[^\W_]"  # a letter or a digit
    pattern = rf"(?<!{edge})({words})(?!{edge})"
    return re.search(pattern, file_name, re.IGNORECASE) is not None


def _files(folder: pathlib.Path) -> list[pathlib.Path]:
    """The files that may be splits; hidden files, as of an editor, are not."""
    return [
        path
        for path in folder.iterdir()
        if path.is_file() and not path.name.startswith(".")
    ]


def _whole(path: pathlib.Path) -> FileRange:
    return FileRange(os.fspath(path), 0, path.stat().st_size)


def _tfds(name: str, data_dir: str) -> Texts:
    """A TFDS data set; each split is written to a plain file.

    A slice is of its texts, or of the windows if there is a single text.
    """
    builder, key = catalog.prepared(name, data_dir, _text_key)
    splits = builder.info.splits

    def split(wanted: str) -> FileRange | None:
        base, sliced, _ = wanted.partition("[")
        if sliced and base in splits and splits[base].num_examples == 1:
            return None
        try:
            files = splits[wanted].file_instructions
        except (KeyError, ValueError, NotImplementedError) as error:
            if base not in (*splits, "all"):
                return None
            what = str(error).rsplit("\n", 1)[-1]
            raise wrong_setting("data_name", name, f"split {wanted}: {what}") from error
        if not files:
            raise wrong_setting(
                "data_name", name, f"there is no text in split {wanted}"
            )
        path = (
            tfds_records.cache(builder) / f"{urllib.parse.quote(wanted, safe='')}.txt"
        )
        if not path.exists():
            feature = {key: builder.info.features[key]}
            _write(path, files, tfds.features.FeaturesDict(feature))
        return _whole(path)

    return Texts(builder.info.full_name, list(splits), split)


def _text_key(name: str, info: tfds.core.DatasetInfo) -> str:
    """The key of the text among the features of an example.

    It is `text`, or else the first supervised key.
    """
    for key in ("text", *(info.supervised_keys or ())[:1]):
        if key in info.features and isinstance(info.features[key], tfds.features.Text):
            return key
    raise wrong_setting(
        "data_name",
        name,
        "not a text data set",
        f"an example has {', '.join(info.features)}",
    )


def _write(
    path: pathlib.Path, files: Any, features: tfds.features.FeaturesDict
) -> None:
    """Writes the texts of TFDS files into one plain file, one per line."""
    partial = path.with_name(f"{path.name}.{os.getpid()}")
    with open(partial, "wb") as file:
        between = b""
        for batch in tfds_records.read_batches(files, features):
            (texts,) = batch.values()
            file.write(between + b"\n".join(texts))
            between = b"\n"
    os.replace(partial, path)
