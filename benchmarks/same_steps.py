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

Both run without TensorFlow's graph optimizers, which round otherwise.  Deep networks
with batch norm make rounding errors of 1e-7 large within ten steps: `NETS` marks them
as chaotic.  So

    with one tower      the gradients here are TensorFlow's own, and not the faster ones
                        of `towers.compute.kernels`, which differ by rounding: "plain
                        gradients"
    with more           where the order of sums differs, each step here begins with the
                        variables and slots that tf_cnn_benchmarks has then; `update`
                        and `variables` are the largest of all steps: "each step"

--plain_gradients and --step_by_step do so for every network.  With --spread,
tf_cnn_benchmarks runs a second time, in another process with two threads for each
operation where the first has one, and rows show how far it is from itself.

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
from typing import Any

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
from benchmarks.lib.shared_networks import NETS, TrainingCase, random_batches
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
                    self._case(net, mode, towers, optimizer)
                    for towers in options.towers
                    for mode in options.variable_updates
                ]
                # All at once there, unless their checkpoints would fill the disk.
                alone = [case for case in cases if case.each_step or options.spread]
                together = [case for case in cases if case not in alone]
                for group in filter(None, [together, *([case] for case in alone)]):
                    with tempfile.TemporaryDirectory(prefix="same_steps") as folder:
                        self._run(group, folder)

    def _case(
        self, net: str, variable_update: str, towers: int, optimizer: str
    ) -> TrainingCase:
        """The case, compared as the network and the command line ask for."""
        options, chaotic = self._options, NETS[net].chaotic
        each = options.step_by_step or (chaotic and towers > 1)
        plain = options.plain_gradients or (chaotic and not each)
        return TrainingCase(net, variable_update, towers, optimizer, plain, each)

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
        return {
            "flags": case.flags(steps),
            "batches": batches,
            "dropout": False,
            "saved": list(range(steps + 1)) if case.each_step else [0, 1, steps],
            "folder": os.path.join(folder, str(case)),
        }

    def _compare(self, case: TrainingCase, run: Mapping[str, Any]) -> None:
        folder = run["folder"]
        with np.load(run["batches"]) as arrays:
            batches = dict(arrays)
        arguments = arguments_of(run["flags"]), batches, path_of(folder, 0)
        plain = case.plain_gradients
        ours: our_steps.OurRun | our_steps.Steps
        if case.each_step:
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
        cells = map(" ".join, zip(Differences._fields, self.cells(case)[2:]))
        words = self.failures.get(case) or ", ".join(filter(None, [*cells, case.how]))
        print(f"[{number}/{total}] {case}: {words}", flush=True)

    def cells(self, case: TrainingCase) -> list[str]:
        """The row of the table."""
        if case in self.failures:
            return [str(case), "failed", *("" for _ in Differences._fields)]
        return [str(case), case.how, *_figures(self.differences[case])]

    def table(self) -> list[str]:
        """A row for each case."""
        title = ["case", "compared", *Differences._fields]
        rows = []
        for case in (*self.differences, *self.failures):
            rows.append(self.cells(case))
            if case in self.spreads:
                rows.append(["  there, two runs", "", *_figures(self.spreads[case])])
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
                "compared": {str(case): case.how for case in self.differences},
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
