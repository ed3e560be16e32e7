"""Who of a cluster's tasks answers, and whether they are what they were."""

import threading
from collections.abc import Callable, Sequence

from towers.layout.cluster import Cluster, Task
from towers.tasks import server

ANSWER_SECONDS = 5.0  # an idle task answers in 0.3 s

Hellos = dict[Task, server.Hello]


class RollCall:
    """Asks the tasks on which one depends for signs of life.

    Args:
      spec: with the task that asks as `me`.
      needs: (kind, number) of devices that every worker must have.
    """

    def __init__(self, spec: Cluster, needs: tuple[str, int]):
        self._spec = spec
        self._needs = needs
        self._tasks = spec.servers
        if spec.me != spec.controller:  # it follows: what other followers do is not its
            ps = [task for task in spec.servers if task.job == "ps"]
            self._tasks = [spec.controller, *ps]
        self._heard: Hellos = {}  # the last of each
        self._known: Hellos = {}  # of those that train

    def ask(
        self, tasks: Sequence[Task] | None = None, seconds: float = ANSWER_SECONDS
    ) -> tuple[Hellos, dict[Task, str]]:
        """Asks some tasks or all, side by side.

        Returns:
          what each that answers says of itself, and for the others why they do not.

        Raises:
          ClusterError: a task that answers is not of this cluster.
        """
        seconds = min(ANSWER_SECONDS, seconds)
        hellos: Hellos = {}
        silent: dict[Task, str] = {}

        def ask(task: Task) -> None:
            try:
                hellos[task] = server.ask(self._spec, task, seconds=seconds)
            except server.SilentError as reason:
                silent[task] = f"{self._named(task)}: {reason}"

        in_parallel(ask, self._tasks if tasks is None else tasks)
        self._heard.update(hellos)
        return hellos, {task: silent[task] for task in sorted(silent)}

    def check(self, hellos: Hellos) -> None:
        """Raises ClusterError unless all run what this task runs, on enough devices."""
        wrong = []
        for task, hello in hellos.items():
            wrong += server.differences(self._spec, task, hello)
            if task.job == "worker" and (lack := server.lacking(hello, *self._needs)):
                wrong.append(f"{self._named(task)} {lack}")
        if wrong:
            raise server.ClusterError("; ".join(wrong))

    def remember(self, hellos: Hellos) -> None:
        """Takes these processes for those that train from now on."""
        self._known = hellos

    def absent(self) -> list[str]:
        """Who does not answer, or is not the process that it was, and why."""
        hellos, silent = self.ask()
        return [*silent.values(), *self.changed(hellos)]

    def changed(self, hellos: Hellos) -> list[str]:
        """Who of these has lost what it was doing, and how."""
        found = []
        for task, hello in sorted(hellos.items()):
            known = self._known.get(task, hello)
            if hello.life != known.life:
                found.append(f"{self._named(task)}: it was started anew")
            elif hello.breaks != known.breaks:
                found.append(f"{self._named(task)}: it dropped out ({hello.why})")
        return found

    def is_ours(self, task: Task) -> bool:
        """Whether a task was started for this controller, as far as it says."""
        if task not in self._heard:
            self.ask([task])
        if not (hello := self._heard.get(task)):
            return True
        return server.leader(hello) == self._spec.address(self._spec.controller)

    def _named(self, task: Task) -> str:
        return f"{task} at {self._spec.address(task)}"


def in_parallel(act: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Acts on all tasks at a time; raises what one of them fails with."""
    failed: list[Exception] = []

    def run(task: Task) -> None:
        try:
            act(task)
        except Exception as error:  # or the task would seem to be as it should
            failed.append(error)

    threads = [
        threading.Thread(target=run, args=(task,), daemon=True) for task in tasks
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
