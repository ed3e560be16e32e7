"""The tasks of a cluster, each started, frozen and killed by hand, for tests.

Of `tasks.found_inside` programs: the network must be private.
"""

import os
import signal
import sys

from benchmarks import launched
from towers.tasks import local_cluster

Name = tuple[str, int]

_PATIENCE = launched.PATIENCE / 3  # less than that of who waits for the program


class Tasks:
    """One ps task, two workers, and a controller if there is one graph.

    Args:
      flags: of every task's command line.
      between: whether each worker is a client.

    Attributes:
      leader: who runs the session.
      programs: (job, index) -> the process that was started last.
    """

    def __init__(self, *flags: str, between: bool):
        ps, *workers, controller = local_cluster.free_addresses(4)
        self._flags = [*flags, "--device=cpu", "--num_gpus=2", f"--ps_hosts={ps}"]
        self._flags.append(f"--worker_hosts={','.join(workers)}")
        names = [("ps", 0), ("worker", 0), ("worker", 1)]
        if between:
            self._flags.append("--replication=between_graph")
        else:
            self._flags.append(f"--controller_host={controller}")
            names.append(("controller", 0))
        self.leader = names[1] if between else names[-1]
        self.programs: dict[Name, launched.Program] = {}
        for name in names:
            self.start(name)

    def start(self, name: Name) -> None:
        """Starts a task, or starts it anew."""
        job, index = name
        self.programs[name] = launched.Program(
            [sys.executable, "-m", "towers.train", *self._flags]
            + [f"--job_name={job}", f"--task_index={index}"]
        )

    def send(self, name: Name, number: int) -> None:
        """Sends a signal; waits for the end of what is killed."""
        process = self.programs[name].process
        os.kill(process.pid, number)
        if number == signal.SIGKILL:
            process.wait()

    def line(self, pattern: str, seconds: float = _PATIENCE) -> str:
        """Waits for a line of the leader's; returns it."""
        return self.programs[self.leader].line(pattern, seconds)

    def end(self, *, but: Name | None = None) -> dict[str, tuple[int, list[str]]]:
        """Waits for the end of all tasks, or of all but one.

        Returns:
          "job index" -> exit status and lines.
        """
        return {
            f"{job} {index}": (program.end(_PATIENCE), program.lines)
            for (job, index), program in self.programs.items()
            if (job, index) != but
        }

    def kill(self) -> None:
        """Ends whatever is left."""
        for program in self.programs.values():
            program.process.kill()
