"""Plants the faults of the tables, and says which of them no test finds.

python -m tests.mutants --changed -n 2
"""

import argparse
import contextlib
import signal
import subprocess
import sys
from collections.abc import Sequence

from tests.mutants import FAULTS, runner
from tests.mutants.fault import Fault
from tests.processes.programs import ROOT

ENOUGH = 0.97  # part of the faults that tests must catch

_LAST_LINES = 15  # lines of the output of tests that could not be run


def main(arguments: Sequence[str] | None = None) -> int:
    """Plants them; the exit status is 0 if enough are caught, 1 if not, and 2 if the
    rows do not fit the tree."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the tests, too
    faults = [fault for fault in FAULTS if options.only in str(fault)]
    if options.changed:
        changed = set(
            _git("diff", "--name-only", "-z", "--merge-base", options.changed)
        )
        faults = [f for f in faults if changed & {f.file, *f.test_files}]
    if not faults:
        print("No rows are about that.")
        return 0
    outcomes_seen: list[runner.Outcome] = []
    print(f"{len(faults)} faults; first, their tests without any.", flush=True)
    outcomes = runner.run(
        faults,
        ROOT,
        _git("ls-files", "-z"),
        processes=options.processes,
        seconds=options.seconds,
    )
    try:
        with contextlib.closing(outcomes):
            for outcome in outcomes:
                outcomes_seen.append(outcome)
                _show(
                    outcome,
                    f"{len(outcomes_seen):>{len(str(len(faults)))}}/{len(faults)}",
                )
    except runner.UnfitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return conclude(outcomes_seen)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.split("\n")[0]
    )
    parser.add_argument(
        "--changed",
        nargs="?",
        const="main",
        metavar="BASE",
        help="only rows of files, or of tests, that differ from this branch (main)",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only rows with this text in `file: old -> new`",
    )
    parser.add_argument(
        "-n",
        dest="processes",
        type=_from_one_on,
        default=1,
        metavar="COUNT",
        help="faults that are tried at once, each in a copy of its own",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=300.0,
        help="after which the tests of a row are ended",
    )
    return parser


def _from_one_on(text: str) -> int:
    if (count := int(text)) < 1:
        raise ValueError
    return count


def _git(*arguments: str) -> list[str]:
    """The paths that a git command lists, of files that are there."""
    listed = subprocess.run(
        ["git", *arguments], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    paths = listed.stdout.decode().split("\0")
    return [path for path in paths if path and (ROOT / path).is_file()]


def _show(outcome: runner.Outcome, which: str) -> None:
    by = f", by {outcome.by}" if outcome.by else ""
    print(f"{which} {outcome.kind:8} {outcome.seconds:5.1f} s  {outcome.fault}{by}")
    if outcome.kind == runner.BROKEN:
        lines = outcome.output.splitlines()[-_LAST_LINES:]
        print("\n".join(f"    {line}" for line in lines))
    sys.stdout.flush()


def conclude(outcomes: Sequence[runner.Outcome]) -> int:
    """Prints what was not caught, and the score; the exit status."""
    missed = [outcome for outcome in outcomes if not outcome.counts]
    for outcome in missed:
        print(f"{outcome.kind}: {_where(outcome.fault)}, by {outcome.fault.tests}")
    share = 1 - len(missed) / len(outcomes)
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} caught ({share:.1%})")
    return 0 if share >= ENOUGH else 1


def _where(fault: Fault) -> str:
    before, _, _ = (ROOT / fault.file).read_text(encoding="utf-8").partition(fault.old)
    return str(fault).replace(":", f":{before.count(chr(10)) + 1}:", 1)


if __name__ == "__main__":
    sys.exit(main())
