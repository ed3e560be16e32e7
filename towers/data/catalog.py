"""Finds a TFDS data set by its name, and prepares it.

    records = find("cifar10", splits=("train",), data_dir="/data")

TFDS tries for minutes before it reports that there is no network.  So everything that
can be checked before a download is checked first, with an error that says what to do.
"""

import contextlib
import difflib
import io
import logging
import math
import os
import pathlib
import re
import socket
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import tensorflow as tf
import tensorflow_datasets as tfds

from flags.problem import SettingError, wrong_setting
from towers.data import digits, folders, shakespeare
from towers.data.damage import missing
from towers.data.records import Records, damaged
from towers.data.tfds_records import from_tfds

# The data sets that ship with the project.
_SHIPPED = (digits.Digits, shakespeare.Shakespeare)

# A host that does not accept a connection in this time counts as unreachable.
_PATIENCE_SECONDS = 2.0
_HOSTS_ASKED = 4  # hosts of a data set's files that are tried, at most

# Words of TFDS's errors about a broken `dataset_info.json` or `features.json`.
_UNREADABLE = re.compile(r"JSON|codec can't decode|dataset info|DatasetInfo|Errno")

# Default splits -> the end of the error if a data set has none of them.
INSTEAD = {
    ("train",): "; name one with `train_split`",
    ("validation", "test"): "; name one, or parts of one, as in "
    "`train_split=train[:90%]` `eval_split=train[90%:]`",
}

_FILES_NAMED = 4  # missing files that an error names, at most


def find(name: str, *, splits: Sequence[str], data_dir: str = "") -> Records:
    """The records of an image classification data set.

    Args:
      name: as for `tfds.load`: `mnist`, `cifar10:3.0.2`, `imagenette/160px`.
      splits: the first of these that the data set has is used; it may be a part of a
        split (`train[:90%]`).
      data_dir: TFDS's data folder; "" for TFDS's default.

    Raises:
      ValueError: no such data set or split, not one of images and classes, without
        examples, or it cannot be prepared here.
    """
    builder, keys = prepared(name, data_dir, _image_and_label)
    split = find_split(name, builder.info, splits)
    records = from_tfds(builder, split, keys=keys)
    if records.num_examples < 1:  # as in train[5:2], for which TFDS counts negatively
        raise _wrong(name, f"there is no example in split {' or '.join(splits)}")
    # Otherwise a fault of the evaluation split would show only after training.
    assert records.locate  # its records are in files
    fault = _missing(split.file_instructions)
    if math.isfinite(records.num_bytes):  # if not, `records.check_some` reads them
        fault = fault or records.locate(1)
    if fault:
        raise _wrong(name, damaged(fault, [records.path]))
    return records


def prepared(
    name: str, data_dir: str, check: Callable[[str, tfds.core.DatasetInfo], Any]
) -> tuple[tfds.core.DatasetBuilder, Any]:
    """A data set, which is downloaded and prepared if necessary.

    Args:
      name: as for `tfds.load`.
      data_dir: TFDS's data folder; "" for TFDS's default.
      check: (name, summary) -> a value for the caller; it is called before anything is
        downloaded, and raises ValueError if the data set is not of the right kind.

    Returns:
      Its builder, and the value of `check`.

    Raises:
      ValueError: no such data set, or it cannot be prepared here.
    """
    builder = _builder(name, data_dir)
    checked = check(name, builder.info)
    if not _is_prepared(builder):
        builder = _prepare(name, builder, chosen=bool(data_dir))
    if not builder.info.splits:
        raise _wrong(name, _damaged(builder.data_path))
    if builder.info.file_format != tfds.core.FileFormat.TFRECORD:
        kind = builder.info.file_format.value
        remedy = f"prepare it again with `tfds build {name} --file_format=tfrecord`"
        raise _wrong(name, f"{builder.data_path} holds {kind} files", remedy)
    return builder, checked


def _builder(name: str, data_dir: str) -> tfds.core.DatasetBuilder:
    """The TFDS builder of that name; reads nothing but the data set's summary."""
    if os.path.isabs(name):
        remedy = "name a TFDS data set, or one of them, as `model=transformer_lm`"
        raise _wrong(name, "is a path, which only language models read", remedy)
    base = re.split("[:/]", name)[0]
    root = os.path.expanduser(data_dir) or None
    if root:
        folders.listed("data_dir", root)
    try:
        return tfds.builder(name, data_dir=root)
    except tfds.core.DatasetNotFoundError as error:
        raise _wrong(name, _not_found(name, root)) from error
    except Exception as error:  # TFDS raises many kinds of errors for a wrong name
        what = _in_short(error)
        if versioned := re.fullmatch(r"(.+)/(\d+\.\d+\.\d+)", name):
            what = f"a version is written {':'.join(versioned.groups())}"
        elif what.startswith("Parsing"):
            what = "a name is written mnist, cifar10:3.0.2 or imagenette/160px"
        elif _UNREADABLE.search(what):
            what = _damaged(f"{base} in {root or 'the default `data_dir`'}", what)
        raise _wrong(name, what) from error


def _wrong(name: str, message: str, remedy: str = "") -> SettingError:
    return wrong_setting("data_name", name, message, remedy)


def _not_found(name: str, root: str | None) -> str:
    """The end of the error about a data set that TFDS does not find: what there is.

    Without the code that prepared a data set, TFDS finds only the configs and versions
    that are on disk.
    """
    base = re.split("[:/]", name)[0]
    if base != name:
        with contextlib.suppress(tfds.core.DatasetNotFoundError):
            data = tfds.builder(base, data_dir=root)
            return f"there is only {', '.join(_prepared_names(data))} in {_root(data)}"
    if root and (folder := pathlib.Path(root, base)).is_dir():
        return _not_whole(folder)
    names = ["synthetic", *tfds.list_builders(with_community_datasets=False)]
    names += tf.io.gfile.listdir(root) if root else []  # the user's own
    near = difflib.get_close_matches(base, names)
    hint = f"did you mean {', '.join(near)}?" if near else "nor has TFDS one"
    for folder in (path := pathlib.Path(root)).parents if root else ():
        if path.relative_to(folder).parts[0] == base:
            hint = f"`data_dir` is the folder that {base} is in: write {folder}"
    return f"no such data set; {hint}"


def _not_whole(folder: pathlib.Path) -> str:
    """Why a folder is not a data set for TFDS, and what to do."""
    for summary in sorted([*folder.glob("*/*.json"), *folder.glob("*/*/*.json")]):
        for file in ("dataset_info.json", "features.json"):
            if not (summary.parent / file).exists():
                return (
                    f"{summary.parent} has no {file}; put it back, or prepare the data "
                    "set again"
                )
    return (
        f"{folder} holds no prepared data set, which has a dataset_info.json, a "
        f"features.json and TFRecord files in {folder.name}/1.0.0; prepare one with "
        "TFDS"
    )


def _prepared_names(builder: tfds.core.DatasetBuilder) -> list[str]:
    """The configs and versions of a data set in the folder of this one."""
    name = builder.info.name
    folder = _root(builder) / name
    summaries = [
        *folder.glob("*/dataset_info.json"),
        *folder.glob("*/*/dataset_info.json"),
    ]
    names = []
    for path in sorted(summaries):
        *config, version = path.parent.relative_to(folder).parts
        names.append(f"{'/'.join([name, *config])}:{version}")
    return names


def _image_and_label(name: str, info: tfds.core.DatasetInfo) -> tuple[str, str]:
    """The keys of the image and of its class among the features of an example."""
    keys = info.supervised_keys or ("image", "label")
    kinds = (tfds.features.Image, tfds.features.ClassLabel)
    fits = (
        len(keys) == 2
        and all(isinstance(key, str) and key in info.features for key in keys)
        and all(isinstance(info.features[key], kind) for key, kind in zip(keys, kinds))
    )
    if not fits or not info.features[keys[1]].num_classes:
        parts = f"an example has {', '.join(info.features)}, not an image and its class"
        raise _wrong(name, "not an image classification data set", parts)
    return keys


def find_split(name: str, info: tfds.core.DatasetInfo, splits: Sequence[str]) -> Any:
    """The first of `splits` that the data set has."""
    for split in splits:
        with contextlib.suppress(KeyError, ValueError, NotImplementedError):
            return info.splits[split]
    parts = [part for split in splits for part in re.split(r"\s*\+\s*", split)]
    problems = filter(None, (_part_problem(info, part) for part in parts))
    missing = (
        f"there is no split {' or '.join(splits)}, only {', '.join(info.splits)}"
        f"{INSTEAD.get(tuple(splits), '')}"
    )
    raise _wrong(name, next(problems, missing))


def _missing(files: Sequence[Any]) -> str:
    """Which of a split's files are not there; "" if all are."""
    names = [os.path.basename(path) for path in missing(files)]
    rest = " and others" if names[_FILES_NAMED:] else ""
    return f"without {', '.join(names[:_FILES_NAMED])}{rest}" if names else ""


def _part_problem(info: tfds.core.DatasetInfo, part: str) -> str:
    """What is wrong with a part of a split that the data set has; "" if nothing is.

    Args:
      info: of the data set.
      part: as TFDS writes it, `train[:90%]`.
    """
    split = part.partition("[")[0]
    if split not in info.splits:
        return ""
    try:
        tfds.core.ReadInstruction.from_spec(part)
    except ValueError:
        return (
            f"{part} is not how a part of a split is written, which is "
            f"{split}[:90%] or {split}[1000:2000]"
        )
    try:
        info.splits[part]
    except ValueError:
        count = info.splits[split].num_examples
        return f"its split {split} has {count} examples, too few for {part}"
    return ""


def _prepare(
    name: str, builder: tfds.core.DatasetBuilder, *, chosen: bool
) -> tfds.core.DatasetBuilder:
    """Downloads and prepares a data set.

    Args:
      name: for messages.
      builder: of the data set.
      chosen: whether the user chose the folder.  If not, and TFDS's default cannot be
        written, the digits are written to a temporary folder.

    Returns:
      The builder of the prepared data set.

    Raises:
      ValueError: it cannot be prepared here.
    """
    _check_within_reach(name, builder)
    root = _root(builder)
    ships_with_us = isinstance(builder, _SHIPPED)
    if not _writable(root):
        if chosen or not ships_with_us:
            words = f"not prepared in {builder.data_path}, which cannot be written"
            raise _wrong(name, words, "name another `data_dir`")
        unwritable, root = root, folders.temporary_root()
        builder = tfds.builder(name, data_dir=root)
        if _is_prepared(builder):
            return builder
        logging.getLogger(__name__).warning(
            "%s cannot be written: %s goes to %s", unwritable, name, root
        )
    try:
        # In a graph TFDS encodes images in a session without GPUs; run eagerly it
        # would start TensorFlow's eager runtime, which takes all memory of all GPUs.
        with tf.Graph().as_default(), contextlib.ExitStack() as stack:
            if ships_with_us:  # too quick for progress bars
                stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
                stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            builder.download_and_prepare()
    except Exception as error:  # the builder's code may raise anything
        if not builder.is_prepared():  # another process may have prepared it
            raise _wrong(
                name, f"cannot be prepared in {builder.data_path}: {_in_short(error)}"
            ) from error
    return tfds.builder(name, data_dir=root)


def _is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
    """TFDS's `is_prepared`, without its warning about a missing folder."""
    return builder.data_path.exists() and builder.is_prepared()


def _check_within_reach(name: str, builder: tfds.core.DatasetBuilder) -> None:
    """Raises ValueError if a file of the data set is not here and cannot be fetched."""
    root = _root(builder)
    manual = root / "downloads" / "manual"
    instructions = getattr(builder, "MANUAL_DOWNLOAD_INSTRUCTIONS", None)
    if instructions and not (manual.exists() and any(manual.iterdir())):
        raise _wrong(
            name,
            f"not prepared in {builder.data_path}, and its files are not in {manual}: "
            f"{' '.join(instructions.split())}",
        )
    missing = {
        url: info.filename or url.rsplit("/", 1)[-1]
        for url, info in (builder.url_infos or {}).items()
        if not info.filename or not (manual / info.filename).exists()
    }
    if instructions or not (host := _unreachable_host(missing)):
        return
    files = sorted(missing.values())
    rest = f" and {len(files) - _FILES_NAMED} more" if files[_FILES_NAMED:] else ""
    raise _wrong(
        name,
        f"not prepared in {builder.data_path}, and {host} cannot be reached",
        f"put {', '.join(files[:_FILES_NAMED])}{rest} into {manual}, or run `tfds "
        f"build {name}` where there is a network and copy the result here",
    )


def _unreachable_host(urls: Iterable[str]) -> str | None:
    """The first host, of the first few, that does not accept a connection.

    Behind a proxy the host is the proxy.

    Args:
      urls: of the files to be downloaded.
    """
    proxies = urllib.request.getproxies()
    parsed = [urllib.parse.urlsplit(url) for url in urls]
    ways = {
        urllib.parse.urlsplit(proxies.get(url.scheme, url.geturl())) for url in parsed
    }
    ports = {"http": 80, "https": 443, "ftp": 21}
    for way in sorted(ways)[:_HOSTS_ASKED]:
        address = (way.hostname, way.port or ports.get(way.scheme, 443))
        try:
            socket.create_connection(address, timeout=_PATIENCE_SECONDS).close()
        except OSError:
            return way.hostname
    return None


def _root(builder: tfds.core.DatasetBuilder) -> pathlib.Path:
    """The data directory: `<root>/<name>[/<config>]/<version>` holds the files."""
    return builder.data_path.parents[builder.info.full_name.count("/")]


def _writable(root: pathlib.Path) -> bool:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return "://" in os.fspath(root) or os.access(root, os.W_OK)


def _damaged(what: object, reason: str = "no dataset_info.json") -> str:
    return f"{what} is damaged ({reason}): remove it and prepare the data set again"


def _in_short(error: Exception) -> str:
    """The first sentence of an error of TFDS, without the call that it begins with."""
    text = re.sub(
        r"^(?:\w+: )?Failed to construct dataset .*?}\": ", "", str(error).strip()
    )
    return re.split(r"\n|(?<=\.) (?=[A-Z])", text)[0] or type(error).__name__
