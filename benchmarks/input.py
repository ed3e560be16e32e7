"""JPEGs per second of the input alone, beside other pipelines and bare decoding.

    python -m benchmarks.input --tf_cnn_benchmarks=PATH --json=/tmp/input.json

Fake JPEGs of ImageNet's size (500 x 375 pixels) are prepared for resnet50, for training
(a random crop, mirrored, resized to 224 x 224) and for evaluation (resized, the centre
cut out).  In each round all systems run in turn, each in a process of its own, on one
core and on all:

    towers             `towers.train --input_only`, on ImageNet's TFRecords
    tf_cnn_benchmarks  its own pipeline, on the same files
    bare               a loop of tf.data that only decodes and crops the same JPEGs
    bare_resized       the same loop, which also resizes the crops and makes batches
    torch              PyTorch's DataLoader, the same JPEGs as files, Pillow decodes

Prints images/s, and the ratios ours / theirs with their spread over the rounds.  What
is not installed is left out.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.lib import machine, process, ratios, table
from benchmarks.lib.options import (
    add_places,
    parser_for,
    places_of,
    positive,
    program,
    writable,
)
from benchmarks.lib.process import Command
from benchmarks.peers.systems import ENVIRONMENT, Places

KINDS = ("training", "evaluation")
WANTED = {"tf_cnn_benchmarks": 1.2, "bare": 0.85, "bare_resized": None, "torch": None}
SYSTEMS = ("towers", *WANTED)
_THEIRS = process.ROOT / "benchmarks" / "peers" / "tf_cnn_input.py"


class Measurement(NamedTuple):
    """What is measured: a kind of preprocessing on so many cores."""

    kind: str
    cores: int

    def __str__(self) -> str:
        return f"{self.kind}, {self.cores} core{'s' if self.cores > 1 else ''}"


def commands(
    options: argparse.Namespace, places: Places, kind: str
) -> dict[str, Command]:
    """System -> the command that prints its images per second.

    Args:
      options: the command line.
      places: where the systems are.
      kind: of preprocessing.
    """
    records, jpegs = (
        os.path.join(options.data, part) for part in ("tfrecords", "folders/train")
    )
    lengths = (options.batch_size, options.num_warmup_batches, options.num_batches)
    rest = [kind, *map(str, lengths)]
    ours = {
        "model": "resnet50",
        "data_name": "imagenet",
        "data_dir": records,
        "input_preprocessor": "tf_cnn_benchmarks",
        "augment": str(kind == "training").lower(),
        "device": "cpu",
        "batch_size": options.batch_size,
        "num_warmup_batches": options.num_warmup_batches,
        "num_batches": options.num_batches,
    }
    flags = [f"--{name}={value}" for name, value in ours.items()]
    scripts = places.tf_cnn_benchmarks
    there = {**ENVIRONMENT, "PYTHONPATH": scripts, "TF_USE_LEGACY_KERAS": "1"}
    python, peers = places.python, "benchmarks.peers"
    every = {
        "towers": Command(
            [python, "-m", "towers.train", "--input_only", *flags], ENVIRONMENT
        ),
        "tf_cnn_benchmarks": Command(
            [places.tf_cnn_python, str(_THEIRS), records, *rest], there, scripts
        ),
        "bare": Command([python, "-m", f"{peers}.bare_input", records, *rest]),
        "bare_resized": Command(
            [python, "-m", f"{peers}.bare_input", "--resize", records, *rest]
        ),
        "torch": Command(
            [places.torch_python, "-m", f"{peers}.torch_input", jpegs, *rest]
        ),
    }
    return {name: every[name] for name in options.systems}


class Rounds:
    """Measurements under way.

    Args:
      options: the command line.
      places: where the systems are.

    Attributes:
      speeds: (measurement, system) -> images/s of each round, None where it failed.
      complaints: system -> why its last failed run failed.
    """

    def __init__(self, options: argparse.Namespace, places: Places):
        self._options = options
        self._places = places
        every = os.sched_getaffinity(0)
        self._cores = {len(cores): cores for cores in ({min(every)}, every)}
        self.speeds: dict[tuple[Measurement, str], list[float | None]] = {}
        self.complaints: dict[str, str] = {}

    def run(self) -> None:
        """All rounds; each process inherits the cores of this one."""
        for number in range(1, self._options.rounds + 1):
            for kind in self._options.kinds:
                for count, cores in self._cores.items():
                    os.sched_setaffinity(0, cores)
                    self._turn(number, Measurement(kind, count))
            self._save()

    def _turn(self, number: int, what: Measurement) -> None:
        for name, command in commands(self._options, self._places, what.kind).items():
            finished = process.run(command, timeout=self._options.timeout)
            speed = finished.images_per_second
            self.speeds.setdefault((what, name), []).append(speed)
            words = f"{speed:.0f} images/s" if speed else "failed"
            if not speed:
                self.complaints[name] = finished.complaint
            others = finished.others or 0.0
            print(f"[{number}] {what}, {name}: {words} ({others:.1f} CPUs of others)")
            sys.stdout.flush()

    def report(self) -> list[str]:
        """A row for each measurement and system; ours first."""
        rows = []
        for (what, name), speeds in self.speeds.items():
            ours = self.speeds[what, "towers"]
            known = [speed for speed in speeds if speed]
            per_core = [speed / what.cores for speed in known]
            ratio = ratios.spread(ratios.paired(ours, speeds))
            cells = [ratios.spread(known), ratios.spread(per_core), ratio]
            wanted = str(WANTED.get(name) or "")
            rows.append([f"{what}: {name}", *(str(c or "-") for c in cells), wanted])
        title = ["", "images/s", "per core", "ours / it", "wanted"]
        failed = [f"{name} failed: {text}" for name, text in self.complaints.items()]
        return [*table.table_lines(title, rows), *failed]

    def _save(self) -> None:
        if not self._options.json:
            return
        places = self._places
        machine.write_json(
            self._options.json,
            {
                "arguments": vars(self._options),
                "versions": {
                    "towers": machine.versions(places.python),
                    "tf_cnn_benchmarks": machine.versions(places.tf_cnn_python),
                    "torch": machine.versions(
                        places.torch_python, ("torch", "torchvision", "pillow")
                    ),
                },
                "images_per_second": {
                    f"{what}: {name}": speeds
                    for (what, name), speeds in self.speeds.items()
                },
            },
        )


def _make_data(options: argparse.Namespace, python: str) -> None:
    """Writes the images."""
    size = ["--height=375", "--width=500", f"--images={options.images}"]
    quality = f"--quality={options.quality}"
    argv = [python, "-m", "tests.make_imagenet", options.data, *size, quality]
    finished = process.run(Command(argv, ENVIRONMENT), timeout=options.timeout)
    if finished.status:
        sys.exit(f"tests.make_imagenet failed: {finished.complaint}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("input", __doc__)
    for name, values in (("systems", SYSTEMS), ("kinds", KINDS)):
        parser.add_argument(
            f"--{name}", nargs="+", choices=values, default=values, metavar="NAME"
        )
    for name, default, words in (
        ("rounds", 3, "in each of which every system runs once"),
        ("batch_size", 64, "images in a batch"),
        ("num_warmup_batches", 10, "batches before those that are timed"),
        ("num_batches", 60, "timed batches"),
        ("images", 512, "distinct JPEGs"),
        ("quality", 98, "of the JPEGs; 98 gives 92 kB each, ImageNet has about 110"),
        ("timeout", 600, "seconds for one process"),
    ):
        parser.add_argument(f"--{name}", type=positive, default=default, help=words)
    parser.add_argument(
        "--data", default="", help="folder of tests.make_imagenet's images, to keep"
    )
    add_places(parser)
    parser.add_argument(
        "--torch_python", type=program, help="a Python that has PyTorch"
    )
    parser.add_argument(
        "--json", type=writable, help="file to write the numbers to", metavar="PATH"
    )
    options = parser.parse_args(argv)
    theirs = "tf_cnn_benchmarks"
    if theirs in options.systems and not options.tf_cnn_benchmarks:
        options.systems = [name for name in options.systems if name != theirs]
        print(f"{theirs} is left out: no --tf_cnn_benchmarks=PATH", file=sys.stderr)
    if "towers" not in options.systems:
        options.systems = ["towers", *options.systems]
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints; returns the exit status."""
    options = parse(argv)
    places = places_of(options, options.torch_python)
    with tempfile.TemporaryDirectory(prefix="benchmark_input") as folder:
        options.data = options.data or folder
        if not os.path.exists(os.path.join(options.data, "tfrecords")):
            _make_data(options, places.python)
        rounds = Rounds(options, places)
        rounds.run()
    print("\n".join(["", *rounds.report()]))
    return 1 if rounds.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
