"""The steps of tf_cnn_benchmarks and of this project, one beside the other.

    python -m benchmarks.same_steps --tf_cnn_benchmarks=PATH --json=/tmp/steps.json

Both start from the variables that tf_cnn_benchmarks saves before its first step, train
on the same batches by the same command line, and are compared.  The columns are
relative differences, |ours - theirs| / |theirs|,

    loss       of the losses, with weight decay's term: the largest of all steps
    rate       of the learning rates: the largest of all steps
    first      of what the first step changes, over all trained variables: the gradient
               and the optimizer
    variables  of all variables after the last step, with batch norm's moving averages
    change     of what all steps change, over all trained variables; for information, as
               rounding errors grow: a rectifier whose input is nearly 0 may let the
               gradient pass on one side and not on the other

The exit status is 1 if one of the first four is above --limit.  Images are random, and
given to both networks as they are, without preprocessing.  Dropout is left out of both,
because the random numbers of tf_cnn_benchmarks cannot be drawn again.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np
import tensorflow as tf

import models
from benchmarks.lib import machine, our_steps, process, table
from benchmarks.lib.options import (
    above_0,
    add_places,
    parser_for,
    places_of,
    positive,
    writable,
)
from benchmarks.lib.our_steps import Steps
from benchmarks.peers.systems import ENVIRONMENT, Places, missing
from flags import config, tf_cnn_translation
from flags import parse as flags_parse

SYSTEM = "tf_cnn_benchmarks"
DRIVER = process.ROOT / "benchmarks" / "peers" / "tf_cnn_peer.py"

MODES = ("parameter_server", "replicated")
OPTIMIZERS = ("sgd", "momentum", "rmsprop")


class SharedNetwork(NamedTuple):
    """A network of both.

    Attributes:
      theirs, data_name: flags of tf_cnn_benchmarks.
      size: of the images.
      batch_size: per tower, for two cores and 16 GB of memory.
      rate: the learning rate, so small that rounding errors do not grow much.
    """

    theirs: str
    data_name: str
    size: int
    batch_size: int
    rate: float


NETS: Mapping[str, SharedNetwork] = {
    "lenet": SharedNetwork("lenet", "imagenet", 28, 16, 0.005),
    "alexnet": SharedNetwork("alexnet", "imagenet", 227, 4, 0.0005),
    "alexnet_cifar10": SharedNetwork("alexnet", "cifar10", 32, 16, 0.005),
    "resnet20": SharedNetwork("resnet20", "cifar10", 32, 16, 0.001),
    "resnet20_v2": SharedNetwork("resnet20_v2", "cifar10", 32, 16, 0.001),
    "resnet50": SharedNetwork("resnet50", "imagenet", 224, 4, 1e-6),
    "resnet50_v1.5": SharedNetwork("resnet50_v1.5", "imagenet", 224, 4, 1e-6),
    "inception3": SharedNetwork("inception3", "imagenet", 299, 4, 1e-6),
    "vgg11": SharedNetwork("vgg11", "imagenet", 224, 2, 0.0002),
}
CLASSES = {"imagenet": 1001, "cifar10": 11}  # of tf_cnn_benchmarks


class TrainingCase(NamedTuple):
    """A network, and how it is trained."""

    net: str
    variable_update: str
    num_gpus: int
    optimizer: str

    def __str__(self) -> str:
        return f"{self.net} {self.variable_update} x{self.num_gpus} {self.optimizer}"

    def flags(self, steps: int) -> dict[str, Any]:
        """The flags of tf_cnn_benchmarks that both sides are given."""
        net = NETS[self.net]
        return {
            "model": net.theirs,
            "data_name": net.data_name,
            "variable_update": self.variable_update,
            "num_gpus": self.num_gpus,
            "batch_size": net.batch_size,
            "num_batches": steps,
            "num_warmup_batches": 0,
            "optimizer": self.optimizer,
            "init_learning_rate": net.rate,
            "device": "cpu",
            "local_parameter_device": "cpu",
            "data_format": "NHWC",
            "num_intra_threads": 1,  # sums in one order
        }


class Differences(NamedTuple):
    """The relative differences; see the module's docstring."""

    loss: float
    rate: float
    first: float
    variables: float
    change: float

    def above(self, limit: float) -> bool:
        """Whether one of the first four is above the limit, or is no number."""
        return not all(value <= limit for value in self[:4])


def compare(ours: Steps, folder: str) -> Differences:
    """Our steps with those that the driver has saved in a folder."""
    with open(os.path.join(folder, "steps.json"), encoding="utf-8") as file:
        losses, rates = zip(*json.load(file))
    start, first, end = (
        _values(os.path.join(folder, when), ours.names)
        for when in ("start", "first", "end")
    )
    return Differences(
        loss=max(map(relative, ours.losses, losses)),
        rate=max(map(relative, ours.rates, rates)),
        first=_of_change(ours.first, first, start, ours.trained),
        variables=_ratio(
            sum(_squares(ours.values[name] - end[name]) for name in end),
            sum(map(_squares, end.values())),
        ),
        change=_of_change(ours.values, end, start, ours.trained),
    )


def relative(ours: Any, theirs: Any) -> float:
    """|ours - theirs| / |theirs|; 0 if both are 0."""
    return _ratio(_squares(np.subtract(ours, theirs)), _squares(theirs))


def _values(folder: str, names: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Our name -> value in the newest checkpoint of a folder."""
    reader = tf.train.load_checkpoint(folder)
    return {name: reader.get_tensor(theirs) for name, theirs in names.items()}


def _of_change(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> float:
    """The difference of the changes since the start, over the variables named."""
    return _ratio(
        sum(_squares(ours[name] - theirs[name]) for name in names),
        sum(_squares(theirs[name] - start[name]) for name in names),
    )


def _ratio(apart: float, size: float) -> float:
    return float(np.sqrt(apart / size)) if size else float(apart > 0)


def _squares(values: Any) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))


def arguments_of(flags: Mapping[str, Any]) -> list[str]:
    """The arguments of `towers.train` that mean the same as these flags there."""
    argv = [SYSTEM, *(f"--{name}={value}" for name, value in flags.items())]
    settings = config.flat(flags_parse.parse(argv, {}, config.TfCnnBenchmarksConfig))
    translation = tf_cnn_translation.translate(
        settings, models=models.MODELS, gpus=False
    )
    return translation.arguments


class StepsBesideTheirs:
    """A comparison under way.

    Args:
      options: the command line.
      places: where tf_cnn_benchmarks is.
    """

    def __init__(self, options: argparse.Namespace, places: Places):
        self._options = options
        self._places = places
        self.differences: dict[TrainingCase, Differences] = {}
        self.failures: dict[TrainingCase, str] = {}

    def run(self) -> None:
        """All cases; those of one network and optimizer share a process there."""
        options = self._options
        for net in options.models:
            for optimizer in options.optimizers:
                cases = [
                    TrainingCase(net, mode, towers, optimizer)
                    for mode in options.variable_updates
                    for towers in options.towers
                ]
                with tempfile.TemporaryDirectory(prefix="same_steps") as folder:
                    self._run(cases, folder)

    def _run(self, cases: Sequence[TrainingCase], folder: str) -> None:
        steps = self._options.steps
        runs = []
        for case in cases:
            batches = os.path.join(folder, f"{case.num_gpus}.npz")
            if not os.path.exists(batches):
                np.savez(batches, **random_batches(case, steps))
            runs.append(
                {
                    "flags": case.flags(steps),
                    "batches": batches,
                    "dropout": False,
                    "folder": os.path.join(folder, str(case)),
                }
            )
        complaint = run_theirs(runs, folder, self._places, self._options.timeout)
        for case, run in zip(cases, runs):
            done = os.path.exists(os.path.join(run["folder"], "steps.json"))
            try:
                if not done:
                    raise ValueError(f"tf_cnn_benchmarks failed: {complaint}")
                with np.load(run["batches"]) as arrays:
                    ours = our_steps.take(
                        arguments_of(run["flags"]),
                        dict(arrays),
                        os.path.join(run["folder"], "start", "model.ckpt-0"),
                        dropout=False,
                    )
                self.differences[case] = compare(ours, run["folder"])
            except ValueError as error:
                self.failures[case] = str(error)
            self._show(case)
        self._save()

    def _show(self, case: TrainingCase) -> None:
        number = len(self.differences) + len(self.failures)
        options = self._options
        kinds = (options.models, options.optimizers)
        total = int(np.prod([*map(len, kinds)]))
        total *= len(options.variable_updates) * len(options.towers)
        cells = map(" ".join, zip(Differences._fields, self.cells(case)[1:]))
        words = self.failures.get(case) or ", ".join(cells)
        print(f"[{number}/{total}] {case}: {words}", flush=True)

    def cells(self, case: TrainingCase) -> list[str]:
        """The row of the table."""
        if case in self.failures:
            return [str(case), "failed", *("" for _ in Differences._fields[1:])]
        return [str(case), *(f"{value:.1e}" for value in self.differences[case])]

    def table(self) -> list[str]:
        """A row for each case."""
        title = ["case", *Differences._fields]
        cases = [*self.differences, *self.failures]
        return table.table_lines(title, [self.cells(case) for case in cases])

    def _save(self) -> None:
        if not self._options.json:
            return
        python = self._places.tf_cnn_python
        machine.write_json(
            self._options.json,
            {
                "arguments": vars(self._options),
                "versions": {
                    "towers": machine.versions(sys.executable),
                    SYSTEM: {
                        **machine.versions(python),
                        "commit": machine.revision(self._places.tf_cnn_benchmarks),
                    },
                },
                "nets": {name: net._asdict() for name, net in NETS.items()},
                "differences": {
                    str(case): differences._asdict()
                    for case, differences in self.differences.items()
                },
                "failures": {str(c): text for c, text in self.failures.items()},
            },
        )


def random_batches(case: TrainingCase, steps: int) -> dict[str, np.ndarray]:
    """Random images and labels, as the driver takes them."""
    net = NETS[case.net]
    rng = np.random.default_rng(1)
    shape = steps, case.num_gpus, net.batch_size
    size = (*shape, net.size, net.size, 3)
    return {
        "images": 0.5 * rng.standard_normal(size, np.float32),
        "labels": rng.integers(0, CLASSES[net.data_name] - 1, shape, np.int32),
    }


def run_theirs(
    runs: Sequence[Mapping[str, Any]], folder: str, places: Places, timeout: float
) -> str:
    """Runs the driver; returns its last line, which says why a run is missing."""
    path = os.path.join(folder, "runs.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(runs, file)
    scripts = places.tf_cnn_benchmarks
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": scripts,
        "TF_USE_LEGACY_KERAS": "1",
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
    }
    command = process.Command(
        [places.tf_cnn_python, str(DRIVER), path], environment, scripts
    )
    return process.run(command, timeout=timeout).complaint


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line; exits with status 2 when something is wrong with it."""
    parser = parser_for("same_steps", __doc__)
    for name, values in (
        ("models", tuple(NETS)),
        ("variable_updates", MODES),
        ("optimizers", OPTIMIZERS),
    ):
        parser.add_argument(
            f"--{name}", nargs="+", choices=values, default=values, metavar="NAME"
        )
    parser.add_argument("--towers", nargs="+", type=positive, default=[1, 2])
    parser.add_argument("--steps", type=positive, default=10)
    parser.add_argument("--limit", type=above_0, default=1e-4)
    parser.add_argument(
        "--timeout", type=positive, default=3600, help="seconds for a network there"
    )
    add_places(parser)
    parser.add_argument("--json", type=writable, metavar="FILE", help="for all numbers")
    options = parser.parse_args(argv)
    places = places_of(options)
    reason = missing(SYSTEM, places, machine.versions(places.tf_cnn_python))
    if reason:
        parser.error(reason)
    options.places = places
    return options


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and prints; returns the exit status."""
    options = parse(argv)
    places = options.places
    del options.places
    comparison = StepsBesideTheirs(options, places)
    comparison.run()
    print("\n".join(["", *comparison.table()]))
    above = [d for d in comparison.differences.values() if d.above(options.limit)]
    words = f"{len(above)} of {len(comparison.differences)} cases are above"
    print(f"\n{words} {options.limit:g}; {len(comparison.failures)} failed")
    return 1 if above or comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
