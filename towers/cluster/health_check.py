"""Which tasks of a cluster answer, and whether they are still the same processes."""

import threading
from collections.abc import Callable, Sequence

from towers.cluster import comparison, messages
from towers.layout.cluster_spec import ClusterSpec, Task

ANSWER_SECONDS = 5.0  # an idle task answers in 0.3 s

Hellos = dict[Task, messages.TaskInfo]
Unfit = dict[Task, tuple[messages.TaskInfo, str]]  # and why it does not fit


class HealthCheck:
    """Polls the tasks on which this task depends.

    Args:
      spec: with this task as `me`.
      needs: (kind, number) of devices that every worker must have.

    Attributes:
      strangers: of the tasks that `ask` polled last, those with another cluster token.
    """

    def __init__(self, spec: ClusterSpec, needs: tuple[str, int]):
        self._spec = spec
        self._needs = needs
        self._tasks = spec.servers
        if spec.me != spec.controller:  # a follower does not depend on other followers
            ps = [task for task in spec.servers if task.job == "ps"]
            self._tasks = [spec.controller, *ps]
        self._heard: Hellos = {}  # the last answer of each task
        self._known: Hellos = {}  # the answers of the tasks that train
        self.strangers: Hellos = {}

    def ask(
        self, tasks: Sequence[Task] | None = None, seconds: float = ANSWER_SECONDS
    ) -> tuple[Hellos, dict[Task, str]]:
        """Polls some tasks, or all, in parallel.

        Args:
          tasks: to be polled; all when None.
          seconds: to wait for each answer, at most `ANSWER_SECONDS`.

        Returns:
          (task -> its `TaskInfo`, task -> why it does not answer).
        """
        seconds = min(ANSWER_SECONDS, seconds)
        hellos: Hellos = {}
        strangers: Hellos = {}
        silent: dict[Task, str] = {}

        def ask(task: Task) -> None:
            try:
                hellos[task] = messages.fetch_info(self._spec, task, seconds=seconds)
            except messages.NoAnswerError as reason:
                silent[task] = f"{self._named(task)}: {reason}"
                if isinstance(reason, messages.WrongTokenError):
                    strangers[task] = reason.info

        in_parallel(ask, self._tasks if tasks is None else tasks)
        self.strangers = strangers
        self._heard.update(hellos)
        return hellos, {task: silent[task] for task in sorted(silent)}

    def check(self, hellos: Hellos) -> None:
        """Raises ClusterError unless all run what this task runs, on enough devices."""
        wrong = []
        for task, hello in hellos.items():
            wrong += comparison.differences(self._spec, task, hello)
            if task.job == "worker" and (
                lack := comparison.lacking(hello, *self._needs)
            ):
                wrong.append(f"{self._named(task)} {lack}")
        if wrong:
            raise messages.ClusterError("; ".join(wrong))

    def take_unfit(self, hellos: Hellos, silent: dict[Task, str]) -> Unfit:
        """Removes the workers that do not fit this run from the answers.

        Args:
          hellos, silent: what `ask` returned last.

        Returns:
          these workers.

        Raises:
          messages.ClusterError: a ps task is wrong.
        """
        unfit = {
            task: (hello, silent.pop(task))
            for task, hello in self.strangers.items()
            if task.job == "worker"
        }
        for task, hello in list(hellos.items()):
            try:
                self.check({task: hello})
            except messages.ClusterError as error:
                if task.job != "worker":
                    raise
                unfit[task] = hellos.pop(task), str(error)
        return unfit

    def remember(self, hellos: Hellos) -> None:
        """Records the processes at the start of the training."""
        self._known = hellos

    @property
    def were_left(self) -> bool:
        """Whether a recorded task had left a session before."""
        return any(hello.breaks for hello in self._known.values())

    def absent(self, seconds: float = ANSWER_SECONDS) -> dict[Task, str]:
        """The tasks that do not answer or are not the recorded processes, in words.

        Args:
          seconds: as in `ask`.
        """
        hellos, silent = self.ask(seconds=seconds)
        return {**silent, **self.changed(hellos)}

    def changed(self, hellos: Hellos) -> dict[Task, str]:
        """Task -> that it was restarted or has left its session, in words."""
        changes = {}
        for task, hello in sorted(hellos.items()):
            previous = self._known.get(task, hello)
            if hello.life != previous.life:
                changes[task] = f"{self._named(task)}: it was started anew"
            elif hello.breaks != previous.breaks:
                changes[task] = f"{self._named(task)}: it dropped out ({hello.why})"
        return changes

    def is_ours(self, task: Task) -> bool:
        """Whether a task's last answer names this controller."""
        if task not in self._heard:
            self.ask([task])
        if not (hello := self._heard.get(task)):
            return True
        return comparison.leader(hello) == self._spec.address(self._spec.controller)

    def _named(self, task: Task) -> str:
        return f"{task} at {self._spec.address(task)}"


def in_parallel(act: Callable[[Task], None], tasks: Sequence[Task]) -> None:
    """Calls `act` for all tasks in parallel; raises the first error."""
    failed: list[Exception] = []

    def run(task: Task) -> None:
        try:
            act(task)
        except Exception as error:  # otherwise it would be lost with the thread
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
