"""The steps of tf_cnn_benchmarks and of this project, one beside the other.

    python -m benchmarks.same_steps --tf_cnn_benchmarks=PATH --json=/tmp/steps.json

Both start from the variables that tf_cnn_benchmarks saves before its first step, train
on the same batches by the same command line, and are compared.  The columns are
relative differences, |ours - theirs| / |theirs|,

    loss       of the losses, with weight decay's term: the largest of all steps
    rate       of the learning rates: the largest of all steps
    update     of what the first step changes, over all trained variables: the gradient
               and the optimizer
    variables  of all variables after the last step, with batch norm's moving averages
    change     of what all steps change, over all trained variables; for information, as
               rounding errors grow: a rectifier whose input is nearly 0 may let the
               gradient pass on one side and not on the other

The exit status is 1 if one of the first four is above --limit.

With --step_by_step, each step here begins with the variables and slots that
tf_cnn_benchmarks has then, so no error grows from one step to the next; `update` and
`variables` are the largest of all steps.

Both run without TensorFlow's graph optimizers, which round otherwise.  With
--plain_gradients, the gradients here are TensorFlow's own, too, and not the faster ones
of `towers.compute.kernels`, which differ by rounding.  With --spread, tf_cnn_benchmarks
runs a second time, in another process with two threads for each operation where the
first has one, and rows show how far it is from itself.

Images are given to both networks as they are, without preprocessing.  Dropout is left
out of both, because the random numbers of tf_cnn_benchmarks cannot be drawn again.

    python -m benchmarks.same_steps --tf_cnn_benchmarks=PATH --preprocessing a.jpg

compares preprocessing instead: the largest difference of a pixel from 0 to 255, for
the same random numbers.  The exit status is 1 if one is above 1.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np

from benchmarks.lib import machine, our_steps, same_pixels, table, tf_cnn
from benchmarks.lib.options import (
    above_0,
    add_places,
    parser_for,
    places_of,
    positive,
    writable,
)
from benchmarks.lib.step_differences import (
    Differences,
    TheirSteps,
    compare,
    compare_each,
    path_of,
)
from benchmarks.lib.tf_cnn import SYSTEM
from benchmarks.peers.systems import Places, missing

# Of the second run there, for --spread.
_AGAIN = {"num_intra_threads": 2}
_SECOND = ", second run"

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
    "resnet50": SharedNetwork("resnet50", "imagenet", 224, 2, 0.001),
    "resnet50_v1.5": SharedNetwork("resnet50_v1.5", "imagenet", 224, 2, 0.001),
    "inception3": SharedNetwork("inception3", "imagenet", 299, 2, 0.001),
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
            # It rewrites x / 49 as x * (1 / 49), which is rounded otherwise.
            "enable_optimizations": False,
        }


def arguments_of(flags: Mapping[str, Any]) -> list[str]:
    """The arguments of `towers.train` that mean the same as these flags there."""
    return tf_cnn.translation_of(flags).arguments


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
        self.spreads: dict[TrainingCase, Differences] = {}
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
                # All at once there, unless their checkpoints would fill the disk.
                alone = options.step_by_step or options.spread
                for group in [[case] for case in cases] if alone else [cases]:
                    with tempfile.TemporaryDirectory(prefix="same_steps") as folder:
                        self._run(group, folder)

    def _run(self, cases: Sequence[TrainingCase], folder: str) -> None:
        options = self._options
        runs = [self._arguments(case, folder) for case in cases]
        complaint = self._run_theirs(runs, folder)
        if options.spread:
            again = {
                "flags": {**runs[0]["flags"], **_AGAIN},
                "folder": runs[0]["folder"] + _SECOND,
                "saved": [0, 1, options.steps],
            }
            complaint = self._run_theirs([{**runs[0], **again}], folder)
        for case, run in zip(cases, runs):
            try:
                if not os.path.exists(os.path.join(run["folder"], "steps.json")):
                    raise ValueError(f"tf_cnn_benchmarks failed: {complaint}")
                self._compare(case, run)
            except ValueError as error:
                self.failures[case] = str(error)
            self._show(case)
        self._save()

    def _run_theirs(self, runs: Sequence[Mapping[str, Any]], folder: str) -> str:
        """Runs the driver in a process; returns its last line."""
        return tf_cnn.run_driver(
            "tf_cnn_peer",
            runs,
            os.path.join(folder, "runs.json"),
            places=self._places,
            timeout=self._options.timeout,
        )

    def _arguments(self, case: TrainingCase, folder: str) -> dict[str, Any]:
        """The arguments of the driver's run."""
        steps = self._options.steps
        batches = os.path.join(folder, f"{case.num_gpus}.npz")
        if not os.path.exists(batches):
            np.savez(batches, **random_batches(case, steps))
        each = self._options.step_by_step
        return {
            "flags": case.flags(steps),
            "batches": batches,
            "dropout": False,
            "saved": list(range(steps + 1)) if each else [0, 1, steps],
            "folder": os.path.join(folder, str(case)),
        }

    def _compare(self, case: TrainingCase, run: Mapping[str, Any]) -> None:
        folder = run["folder"]
        with np.load(run["batches"]) as arrays:
            batches = dict(arrays)
        arguments = arguments_of(run["flags"]), batches, path_of(folder, 0)
        plain = self._options.plain_gradients
        ours: our_steps.OurRun | our_steps.Steps
        if self._options.step_by_step:
            with our_steps.OurRun(
                *arguments, dropout=False, plain_gradients=plain
            ) as ours:
                self.differences[case] = compare_each(ours, folder)
        else:
            ours = our_steps.take(*arguments, dropout=False, plain_gradients=plain)
            self.differences[case] = compare(ours, folder)
        if self._options.spread:
            theirs = TheirSteps(folder + _SECOND, ours.names)
            self.spreads[case] = compare(theirs.as_ours(ours.trained), folder)

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
        return [str(case), *_figures(self.differences[case])]

    def table(self) -> list[str]:
        """A row for each case."""
        title = ["case", *Differences._fields]
        rows = []
        for case in (*self.differences, *self.failures):
            rows.append(self.cells(case))
            if case in self.spreads:
                rows.append(["  there, two runs", *_figures(self.spreads[case])])
        return table.table_lines(title, rows)

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
                "spreads": {
                    str(case): spread._asdict() for case, spread in self.spreads.items()
                },
                "failures": {str(c): text for c, text in self.failures.items()},
            },
        )


def _figures(differences: Differences) -> list[str]:
    return [f"{value:.1e}" for value in differences]


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
    parser.add_argument("--step_by_step", action="store_true")
    parser.add_argument("--plain_gradients", action="store_true")
    parser.add_argument("--spread", action="store_true")
    parser.add_argument(
        "--preprocessing", nargs="+", type=_readable, metavar="JPEG", default=()
    )
    parser.add_argument(
        "--official_models",
        default="",
        metavar="PATH",
        help="a checkout of tensorflow/models, for --preprocessing",
    )
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


def _readable(path: str) -> str:
    """A file of the command line."""
    if not os.path.isfile(path):
        raise argparse.ArgumentTypeError(f"there is no file {path}")
    return path


def main(argv: Sequence[str] | None = None) -> int:
    """Compares and prints; returns the exit status."""
    options = parse(argv)
    places = options.places
    del options.places
    if options.preprocessing:
        return same_pixels.show(options, places)
    comparison = StepsBesideTheirs(options, places)
    comparison.run()
    print("\n".join(["", *comparison.table()]))
    above = [d for d in comparison.differences.values() if d.above(options.limit)]
    words = f"{len(above)} of {len(comparison.differences)} cases are above"
    print(f"\n{words} {options.limit:g}; {len(comparison.failures)} failed")
    return 1 if above or comparison.failures else 0


if __name__ == "__main__":
    sys.exit(main())
