"""Examples per second of this project's sources of data, beside other loaders.

    python -m benchmarks.data_sources --rounds=5

Each system reads shuffled batches of 32 examples and does nothing with them, in a
process of its own.  In each round all systems run in turn:

    arrays   `from_arrays` of 1442 pictures [8, 8, 1], against the path of the digits
    python   `from_source` with 2 processes, about 1 ms of Python per example, against
             grain with 2 processes and PyTorch's DataLoader with 2 workers
    jpeg     the same, about 1 ms of decoding a JPEG with Pillow
    files    `from_files` that decodes JPEGs, against a map of tf.data
    training lenet in one thread, on a source whose two processes take 60 % of a core to
             keep up, against synthetic data

Prints examples/s, and the ratios ours / theirs with their spread over the rounds.  What
needs a package that is absent is left out: grain, torch and pillow are optional.
"""

import argparse
import contextlib
import importlib.util
import io
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np
import tensorflow as tf

import towers
from benchmarks.lib import process, ratios, slow_sources, table
from benchmarks.lib.options import above_0, parser_for, positive
from towers.data import from_arrays, from_files, from_source, inputs
from towers.data.example_source import ExampleSource
from towers.data.examples import Examples
from towers.data.source import Request

v1 = tf.compat.v1

# Ours, theirs, and the ratio that is wanted.
PAIRS = (
    ("arrays", "digits", 0.95),
    ("python", "python_grain", 0.95),
    ("python", "python_torch", 0.9),
    ("jpeg", "jpeg_grain", 0.95),
    ("jpeg", "jpeg_torch", 0.9),
    ("files", "files_tf_data", 0.95),
    ("training", "training_synthetic", 0.95),
)
SYSTEMS = tuple(dict.fromkeys(name for pair in PAIRS for name in pair[:2]))
LOADERS = ("_grain", "_torch")
NEEDED = {"grain": "grain", "torch": "torch", "jpeg": "PIL"}  # part of a name -> module
_LOADING = 0.6  # of a core, while lenet trains
_DIGITS = Request(shape=(8, 8, 1), num_classes=10, classes=True)


def alone(name: str, seconds: float) -> float:
    """Examples per second of a system that uses TensorFlow, in this process."""
    if name.startswith("training"):
        return _training(name, seconds)
    with tempfile.TemporaryDirectory() as folder, tf.Graph().as_default():
        position = tf.constant(0, tf.int64)
        if name == "files_tf_data":
            batches = _bare(_files(folder))
            iterator = v1.data.make_initializable_iterator(batches)
            initializer, features = iterator.initializer, iterator.get_next()[0]
        else:
            source = _ours(name, folder)
            place = [("/device:CPU:0", ["/device:CPU:0"])]
            feed = source.feed(place, batch_size=slow_sources.BATCH, position=position)
            initializer, features = feed.initializer, feed.batches[0].features
        with v1.Session() as session:
            session.run(initializer)
            return slow_sources.rate(session.make_callable(features.op), seconds)


def _training(name: str, seconds: float) -> float:
    """Examples per second of a training of so many seconds."""

    def fit(data: Examples | str, num_batches: int) -> float:
        silent = contextlib.redirect_stdout(io.StringIO())
        with silent:
            result = towers.fit(
                "lenet",
                data,
                batch_size=slow_sources.BATCH,
                num_batches=num_batches,
                device="cpu",
                num_intra_threads=1,
                num_inter_threads=1,
            )
        return result.examples_per_second

    speed = fit("synthetic", 100)
    num_batches = max(10, int(seconds * speed / slow_sources.BATCH))
    if name == "training_synthetic":
        return fit("synthetic", num_batches)
    source = slow_sources.Pictures(_LOADING / speed)
    return fit(from_source(source, workers=slow_sources.WORKERS), num_batches)


def _ours(name: str, folder: str) -> Any:
    """A source of this project."""
    if name == "digits":
        return inputs.get("digits", _DIGITS, training=True)
    if name == "arrays":
        labels = (np.arange(1442) % 10).astype(np.int32)
        generator = np.random.default_rng(1)
        pixels = generator.integers(0, 256, [1442, 8, 8, 1], np.uint8)
        return ExampleSource(from_arrays(pixels, labels), _DIGITS, training=True)
    if name == "files":
        examples = from_files(_files(folder), _parse)
    else:
        examples = from_source(
            slow_sources.SOURCES[name](), workers=slow_sources.WORKERS
        )
    return ExampleSource(examples, _request(examples), training=True)


def _request(examples: Examples) -> Request:
    """A request of the examples as they are."""
    features, labels = examples.specs[:2]
    return Request(shape=(), features=features, labels=labels, kind="examples")


def _files(folder: str) -> list[str]:
    """Writes 64 JPEGs; returns their paths, many times."""
    noise = np.random.default_rng(1).integers(0, 256, [64, 24, 24, 3], np.uint8)
    with tf.Graph().as_default(), v1.Session() as session:
        large = tf.cast(tf.image.resize(noise, [256, 256]), tf.uint8)
        encoded = session.run([tf.io.encode_jpeg(large[i]) for i in range(len(noise))])
    paths = [os.path.join(folder, f"{i}.jpg") for i in range(len(noise))]
    for path, text in zip(paths, encoded):
        with open(path, "wb") as file:
            file.write(text)
    return paths * 16


def _parse(path: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    pixels = tf.io.decode_jpeg(tf.io.read_file(path), 3)
    pixels = tf.ensure_shape(pixels, [256, 256, 3])[::2, ::2]
    return pixels, tf.strings.length(path)


def _bare(paths: list[str]) -> tf.data.Dataset:
    """What a user would write with tf.data."""
    rows = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths)).repeat()
    rows = rows.map(_parse, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.batch(slow_sources.BATCH, drop_remainder=True).prefetch(1)


def missing(name: str) -> str:
    """The module that a system needs and that is not installed, or ""."""
    for part, module in NEEDED.items():
        if part in name.split("_") and not importlib.util.find_spec(module):
            return module
    return ""


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """System -> examples per second in each round.

    Raises:
      SystemExit: a process failed.
    """
    systems = [name for name in SYSTEMS if not missing(name)]
    measured: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(options.rounds):
        for name in systems:
            flags = [f"--system={name}", f"--seconds={options.seconds}"]
            argv = [sys.executable, "-m", "benchmarks.data_sources", *flags]
            if name.endswith(LOADERS):  # without TensorFlow
                call = f"slow_sources.peer_rate({name!r}, {options.seconds})"
                line = f"from benchmarks.lib import slow_sources; print({call})"
                argv = [sys.executable, "-c", line]
            finished = process.run(process.Command(argv), timeout=600)
            if finished.status:
                sys.exit(f"{name}: {finished.complaint}")
            measured[name].append(float(finished.lines[-1][1]))
            print(f"{name}: {measured[name][-1]:.0f} examples/s", flush=True)
    return measured


def report(measured: dict[str, list[float]]) -> list[str]:
    """A table of each pair."""
    rows = []
    for ours, theirs, wanted in PAIRS:
        speeds = [str(ratios.spread(measured.get(name, []))) for name in (ours, theirs)]
        ratio = str(
            ratios.spread(
                ratios.paired(measured.get(ours, []), measured.get(theirs, []))
            )
        )
        if absent := missing(ours) or missing(theirs):
            ratio = f"{absent} is not installed"
        rows.append([f"{ours} / {theirs}", *speeds, ratio, str(wanted)])
    return table.table_lines(["", "ours", "theirs", "ratio", "wanted"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    parser = parser_for("data_sources", __doc__)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument(
        "--seconds",
        type=above_0,
        default=3.0,
        help="seconds for which each system is measured",
    )
    parser.add_argument(
        "--system",
        choices=[name for name in SYSTEMS if not name.endswith(LOADERS)],
        help="measure only this, in this process",
    )
    options = parser.parse_args(argv)
    if options.system:
        print(alone(options.system, options.seconds))
        return 0
    print("\n".join(["", *report(measure(options))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
