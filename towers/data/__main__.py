"""The main that shows a data set: its number of examples, specs and first examples.

python -m towers.data digits --picture=digits.png
python -m towers.data path/to/file.py:function --split=validation

NAME is as `--data_name` of `towers.train` has it: images with a class, texts (shown as
windows of bytes), ratings, or data of your own.
"""

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers.data import inputs, own_data
from towers.data.examples import Examples, leaves
from towers.data.records import Records
from towers.data.source import Request
from towers.errors import collected

v1 = tf.compat.v1

_WINDOW = 64  # bytes of a text that are an example
_REQUESTS = (
    Request(shape=()),
    Request(shape=(_WINDOW,), kind="tokens", preprocessing="bytes"),
    Request(shape=(2,), kind="pairs", preprocessing="pairs"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Shows what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m towers.data",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME")
    parser.add_argument("--split", default="train")
    parser.add_argument("--data_dir", default="", help="folder of TFDS's data sets")
    parser.add_argument("--count", type=int, default=5, help="examples to show")
    parser.add_argument("--picture", metavar="FILE.png", help="their images")
    options = parser.parse_args(argv)
    try:
        data = find(options.name, options.split, options.data_dir)
        shown = first(data, min(max(options.count, 1), data.num_examples))
        for line in table(f"{options.name}, split {options.split}", data, shown):
            print(line)
        if options.picture:
            png = picture(shown)
            with open(options.picture, "wb") as file:
                file.write(png)
    except ValueError as error:
        return collected.refuse_settings(error)
    except OSError as error:
        return collected.not_printed(error)
    return 0


def find(name: str, split: str, data_dir: str) -> Examples | Records:
    """The examples of a data set.

    Raises:
      ValueError: there is none, or of no kind that can be shown.
    """
    if own_data.is_function(name):
        return own_data.examples_of(name, split)
    errors = []
    for request in _REQUESTS:
        try:
            find_kind = inputs.KINDS[request.kind]
            request = dataclasses.replace(request, data_dir=data_dir)
            return find_kind(name, request, splits=(split,))
        except ValueError as error:
            errors.append(error)
    raise errors[0]


def first(data: Examples | Records, count: int) -> list[list[tuple[str, Any]]]:
    """(name, array) of each feature and label, of the first examples."""
    with tf.Graph().as_default(), v1.Session() as session:
        if isinstance(data, Records):
            decode = data.decode
            parts = data.open(None).map(lambda *r: decode(r if r[1:] else r[0]))
        elif data.open:
            parts = data.open(None).map(lambda _, parts: parts)
        else:
            assert data.read is not None
            numbers = tf.data.Dataset.range(count)
            if not data.single:
                numbers = numbers.batch(1)
            parts = numbers.map(data.read)
            if not data.single:
                parts = parts.unbatch()
        following = v1.data.make_one_shot_iterator(parts).get_next()
        return [leaves(session.run(following)) for _ in range(count)]


def table(
    title: str, data: Examples | Records, shown: Sequence[Sequence[tuple[str, Any]]]
) -> list[str]:
    """The lines about a data set and its first examples."""
    classes = f", {data.num_classes} classes" if data.num_classes else ""
    lines = [f"{title}: {data.num_examples} examples{classes}"]
    for name, value in shown[0]:
        lines.append(f"  {name}: {value.dtype} {list(np.shape(value))}")
    for number, example in enumerate(shown):
        lines.append(f"example {number}")
        for name, value in example:
            with np.printoptions(threshold=8, edgeitems=3, precision=4):
                text = " ".join(
                    str(np.ravel(value) if np.ndim(value) else value).split()
                )
            lines.append(f"  {name}: {text}")
    return lines


def picture(shown: Sequence[Sequence[tuple[str, Any]]]) -> bytes:
    """A PNG of the first feature that is an image, of the examples side by side.

    Raises:
      ValueError: there is none.
    """
    for name, value in shown[0]:
        if np.ndim(value) == 3 and value.shape[2] in (1, 3):
            images = [dict(example)[name].astype(np.float64) for example in shown]
            low, high = min(map(np.min, images)), max(map(np.max, images))
            height = max(image.shape[0] for image in images)
            padded = [
                np.pad(x, [(0, height - len(x)), (0, 1), (0, 0)], constant_values=high)
                for x in images
            ]
            row = (np.concatenate(padded, 1) - low) / max(high - low, 1e-9)
            return tf.io.encode_png((255 * row).round().astype(np.uint8)).numpy()
    raise wrong_setting("picture", "", "no feature is an image", "leave it out")


if __name__ == "__main__":
    exit_status = main()
    collected.flush()
    sys.exit(exit_status)
