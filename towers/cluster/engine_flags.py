"""The command line of a program that has an engine such as Ray start a cluster.

    parser = engine_flags.parser(__doc__)
    parser.add_argument("--address", help="of the engine")
    given = engine_flags.read(parser)

Its own flags say which tasks there are.  Those after `--` are of `towers.train`, and
every task gets them.
"""

import argparse
from collections.abc import Sequence

from flags.cluster import parse_tasks

# Flags that say where tasks are, which the driver gives to each of them.
_OF_PLACES = (
    *("job_name", "task_index", "ps_hosts", "worker_hosts", "controller_host"),
    "local_cluster",
)


class EngineFlags(argparse.Namespace):
    """The flags that are given, and the tasks that follow from them.

    Attributes:
      tasks: job -> number of tasks, without the controller.
      flags: of `towers.train`.  With `--replication=between_graph` there is no
        controller, and worker 0 leads.
      max_restarts: times that a task is started again.
      max_workers: of an elastic run, with those that join; those of `tasks` when None.
    """

    tasks: dict[str, int]
    flags: Sequence[str]
    max_restarts: int = 3
    max_workers: int | None = None

    @property
    def elastic(self) -> bool:
        """Whether workers join, and may be lost."""
        values = dict(flag.lstrip("-").partition("=")[::2] for flag in self.flags)
        return values.get("elastic", "false") != "false"

    @property
    def most_workers(self) -> int:
        """The number of workers, with those that join."""
        return max(self.tasks["worker"], self.max_workers or 0)

    @property
    def names(self) -> list[tuple[str, int]]:
        """(job, index) of each task, by rank; last the workers beyond `tasks`."""
        counts = {**self._controller, **self.tasks, "worker": self.most_workers}
        jobs = sorted(counts)  # "worker" is last
        return [(job, index) for job in jobs for index in range(counts[job])]

    @property
    def at_once(self) -> int:
        """The number of tasks with which the run begins: the first ranks."""
        return sum(self._controller.values()) + sum(self.tasks.values())

    @property
    def needed(self) -> set[int]:
        """The ranks without which the run ends."""
        names = enumerate(self.names)
        return {rank for rank, (job, _) in names if not self.elastic or job != "worker"}

    @property
    def leader(self) -> int:
        """The rank whose status is that of the run."""
        return self.names.index(("controller" if self._controller else "worker", 0))

    @property
    def _controller(self) -> dict[str, int]:
        between = "--replication=between_graph" in self.flags
        return {} if between else {"controller": 1}

    def fault(self) -> str:
        """Why a run cannot have these flags, or ""."""
        for flag in self.flags:
            if flag.lstrip("-").partition("=")[0] in _OF_PLACES:
                words = "the engine places the tasks that --tasks names; leave it out"
                return f"{flag}: {words}"
        if self.max_restarts < 0:
            return f"--max_restarts={self.max_restarts} is below 0"
        if self.max_workers is not None and self.max_workers < 1:
            return f"--max_workers={self.max_workers} is below 1"
        if self.max_workers and not self.elastic:
            return "--max_workers needs --elastic among the flags of towers.train"
        return ""


def parser(doc: str) -> argparse.ArgumentParser:
    """Returns a parser with the flags that the programs of all engines have.

    Args:
      doc: of the program; its first line is an example.
    """
    flags = argparse.ArgumentParser(description=doc.splitlines()[0])
    flags.add_argument("--tasks", default="ps:1,worker:2", type=_tasks)
    flags.add_argument("--max_restarts", type=int, help="of each task")
    flags.add_argument("--max_workers", type=int, help="of an elastic run")
    flags.add_argument("flags", nargs="*", help="of towers.train, after --")
    return flags


def read(
    flags: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> EngineFlags:
    """Reads a command line; ends the program with status 2 if it is wrong.

    Args:
      flags: of the program.
      argv: the arguments; those of this process when None.
    """
    given = flags.parse_args(argv, EngineFlags())
    if fault := given.fault():
        flags.error(fault)
    return given


def _tasks(text: str) -> dict[str, int]:
    """`parse_tasks`, with errors whose words argparse prints."""
    try:
        return parse_tasks(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} {error}") from None
