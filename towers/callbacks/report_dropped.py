"""Reports whose gradients were dropped, and writes the log of those that were used."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from flags.field import listing
from towers.callbacks.base import Callback, RunArgs, RunContext, RunValues
from towers.graph import TrainGraph
from towers.layout.cluster_spec import Task
from towers.layout.gpus import plural
from towers.layout.placement import task, task_of
from towers.membership_log import MembershipFile
from towers.variable_update.backup_workers import BackupChief

v1 = tf.compat.v1


class ReportDropped(Callback):
    """Prints how often gradients of each worker were dropped, and who is slowest.

    Args:
      train: the graph of the chief, with backup workers.
      log: takes lines for the user.
      file: gets the workers of each step.
      every: steps after which there is a line, if gradients were dropped.
    """

    def __init__(
        self,
        train: TrainGraph,
        log: Callable[[str], None],
        file: MembershipFile,
        *,
        every: int,
    ):
        assert isinstance(train.clients, BackupChief)
        dropped = train.clients.dropped
        self._fetches = [train.step, train.clients.used, dropped.left]
        self._skipped = dropped.skipped
        self._log, self._file, self._every = log, file, every
        master, count = train.placement.master, train.placement.clients
        self._names = [f"worker {k}" for k in range(count)]
        if task_of(master) == task(Task("chief", 0)):
            self._names = ["the chief", *self._names[:-1]]
        self._steps = 0  # of this session
        # How often each was dropped in this session, and before the last line.
        self._dropped, self._told = (np.zeros(count, int) for _ in range(2))

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the clients that are used, and what each has left."""
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Counts, and prints a line if it is time."""
        step, used, left = run_values.results
        self._file.note(int(step) - 1, np.flatnonzero(used).tolist())
        self._steps += 1
        self._dropped += ~used & (left > 0)  # without examples there is no gradient
        if step % self._every == 0:
            news = self._dropped - self._told
            if news.any():
                self._log(f"Dropped up to step {step}: {self._words(news)}")
            self._told = self._dropped.copy()

    def end(self, session: v1.Session) -> None:
        """Prints all that was dropped."""
        steps = plural(self._steps, "step")
        if not self._dropped.any():
            self._log(f"Dropped in {steps}: no gradients")
            return
        line = f"Dropped in {steps}: {self._words(self._dropped)}"
        if self._skipped is not None:
            line += f"; {session.run(self._skipped)} examples were skipped so far"
        self._log(line)

    def _words(self, counts: np.ndarray) -> str:
        """How often each was dropped, and the slowest."""
        often = [
            f"{name} {plural(int(n), 'time')}"
            for name, n in zip(self._names, counts)
            if n
        ]
        slowest = self._names[int(np.argmax(counts))]
        return f"{listing(often, 'and')}; the slowest is {slowest}"
