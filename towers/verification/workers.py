"""Processes that help to compare: a case takes mostly Python, which runs on one core.

    for outcome in compare(subject, cases, Helpers(command, count=1)):
        ...

This process takes cases from the front, and prints what it finds as it goes; helpers
take them from the end, until they meet.  A helper is the same program with the same
command line, which an environment variable tells what it is.  It asks for cases on its
standard output, gets them on its standard input, and ends with this process.  What it
leaves undone, as when it is killed, is done here.
"""

import collections
import contextlib
import os
import pickle
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import BinaryIO, NamedTuple

from towers.verification import agreement
from towers.verification.reference import TrainingSubject
from towers.verification.verdict import Case, Outcome

_ROLE = "TOWERS_VERIFY_HELPS"


class Workers(NamedTuple):
    """So many processes of one kind.

    Attributes:
      command: starts a process that calls `help_with` the same subject.
      count: of them.
    """

    command: Sequence[str]
    count: int  # type: ignore[assignment]


def compare(
    subject: TrainingSubject, cases: Sequence[Case], helpers: Workers
) -> Iterator[Outcome]:
    """As `agreement.compare`, in order, with the help of other processes.

    Args:
      subject: what is trained.
      cases: each once.
      helpers: none, or some.

    Raises:
      ValueError: the model cannot be trained so.
    """
    if not helpers.count:
        yield from agreement.compare(subject, cases)
        return
    left = collections.deque(cases)
    outcomes: dict[Case, Outcome] = {}
    with (
        futures.ThreadPoolExecutor(helpers.count) as threads,
        contextlib.ExitStack() as stack,
    ):
        served = []
        for _ in range(helpers.count):
            helper = stack.enter_context(_started(helpers.command))
            served.append(threads.submit(_serve, helper, left, outcomes))
        num_done = 0
        for outcome in agreement.compare(subject, _taken(left)):
            num_done += 1
            yield outcome
        futures.wait(served)
    rest = cases[num_done:]
    undone = [case for case in rest if case not in outcomes]
    outcomes |= {o.case: o for o in agreement.compare(subject, undone)}
    yield from map(outcomes.__getitem__, rest)


def _taken(left: collections.deque[Case]) -> Iterator[Case]:
    """Takes cases from the front."""
    with contextlib.suppress(IndexError):  # helpers have taken the rest
        while True:
            yield left.popleft()


@contextlib.contextmanager
def _started(command: Sequence[str]) -> Iterator[subprocess.Popen]:
    """A helper, which is killed in the end, if it has not ended by itself."""
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where a case fails, it is done here and fails here
        env={**os.environ, _ROLE: "1"},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _serve(
    helper: subprocess.Popen,
    left: collections.deque[Case],
    outcomes: dict[Case, Outcome],
) -> None:
    """Gives a helper cases from the end, and keeps their outcomes, until it ends."""
    from_helper, to_helper = helper.stdout, helper.stdin
    assert from_helper is not None and to_helper is not None
    with contextlib.suppress(EOFError, OSError, pickle.UnpicklingError):
        while True:
            outcome = pickle.load(from_helper)
            if outcome is not None:
                outcomes[outcome.case] = outcome
                continue
            try:
                case = left.pop()
            except IndexError:
                case = None
            _send(case, to_helper)


class WorkQueue(NamedTuple):
    """Where a helper asks for cases, and where it gets them."""

    questions: BinaryIO
    answers: BinaryIO


def asked() -> WorkQueue | None:
    """What this process is to help with; None if it is no helper.

    Takes the standard streams away from all that may print or read.
    """
    if not os.environ.get(_ROLE):
        return None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this will end it
    work = WorkQueue(os.fdopen(os.dup(1), "wb"), os.fdopen(os.dup(0), "rb"))
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(2):
        os.dup2(nothing, stream)
    return work


def help_with(work: WorkQueue, subject: Callable[[], TrainingSubject]) -> int:
    """Compares what it is asked to, to the end; returns the exit status.

    Args:
      work: of `asked`.
      subject: what is trained, made here.
    """

    def cases() -> Iterator[Case]:
        while True:
            _send(None, work.questions)
            case = pickle.load(work.answers)
            if case is None:
                return
            yield case

    try:
        for outcome in agreement.compare(subject(), cases()):
            _send(outcome, work.questions)
    except (EOFError, BrokenPipeError):
        return 1  # nobody waits for it any more
    return 0


def _send(message: Case | Outcome | None, pipe: BinaryIO) -> None:
    pickle.dump(message, pipe)
    pipe.flush()
