"""Sessions of an elastic run: workers come and go, and the others go on.

Each server knows only itself, and each session names its members (TensorFlow's
ClusterSpec propagation).  Tasks send heartbeats to the controller, so that it knows
which workers join or leave.  The variables of a session end with it; `towers.run`
carries their values over to the next session.
"""

import contextlib
import dataclasses
import json
import threading
import time
from collections.abc import Callable, Iterator, Set

import tensorflow as tf

from flags.cluster import ClusterFlags
from towers.cluster import comparison, messages
from towers.cluster.controller import QUIET_SECONDS, Controller
from towers.cluster.health_check import HealthCheck, Hellos, Unfit
from towers.cluster.sessions import Stop
from towers.layout.cluster_spec import ClusterSpec, Task
from towers.layout.placement import task as filter_of

v1 = tf.compat.v1

# Who stops a whole job sends the signal to all tasks at once.  So a worker's signal
# counts only if the controller gets none in this time.
_OTHERS_SECONDS = 2.0
_FRESH_SECONDS = 15.0  # after its last heartbeat, a task that may join is forgotten
# A worker that was lost within so many seconds of joining waits before it is taken
# again; twice as long each time.
_SHORT_SECONDS, _FIRST_WAIT, _LONGEST_WAIT = 60.0, 5.0, 300.0
# Exit statuses: of a worker that left, which schedulers may start again; of one that
# does not fit the run.
_LEFT, _REFUSED = 128 + 15, 2
_FAREWELL_SECONDS = 20.0


@dataclasses.dataclass
class _Worker:
    """What the controller knows of a worker's address.

    Attributes:
      life: of the process that sent the last heartbeat.
      beat_at: when it came; 0 after the worker was lost.
      leaving: the signal after which that process leaves, or "".
      leaves_at: when this was heard.
      joined_life: of the process that is a member, or "".
      joined_at: when it became one.
      losses: how often in a row it was lost soon after it had joined.
      not_before: when it may join again.
      asked: the life of the process that is asked now, before it may join, or "".
      fit: the life of the process that may join.
      refused: the life of the process that may not take part.
      told: the life of the process about which a line says why it waits.
    """

    life: str = ""
    beat_at: float = 0.0
    leaving: str = ""
    leaves_at: float = 0.0
    joined_life: str = ""
    joined_at: float = 0.0
    losses: int = 0
    not_before: float = 0.0
    asked: str = ""
    fit: str = ""
    refused: str = ""
    told: str = ""


class ElasticController(Controller):
    """Opens sessions of those tasks that are there.

    Args:
      spec: with this task, the controller, as `me`, and the workers that are known.
      config: of the server.
      flags: of the cluster.
      most: workers that have an example of a step; None for any number.
      needs, console: as in `Controller`.
    """

    _goes_on = "The others go on."

    def __init__(
        self,
        spec: ClusterSpec,
        config: v1.ConfigProto,
        *,
        flags: ClusterFlags,
        most: int | None,
        needs: tuple[str, int],
        console: Callable[[str], None],
    ):
        super().__init__(
            dataclasses.replace(spec, places=0),
            config,
            needs=needs,
            stall_secs=flags.stall_secs,
            wait_secs=flags.wait_secs,
            console=console,
        )
        self._flags, self._needs = flags, needs
        self._limits = [n for n in (flags.max_workers, most) if n is not None]
        # By address; a worker's index is its place here.
        known = spec.jobs.get("worker", ())
        self._workers = {address: _Worker() for address in known}
        self._places = spec.places  # of a run that knows none of its workers
        self._begun = False  # whether there was a session
        threading.Thread(target=self._listen, daemon=True).start()

    @contextlib.contextmanager
    def open(self, graph: tf.Graph, config: v1.ConfigProto) -> Iterator[v1.Session]:
        """As in `Controller`; the session's tasks are the members."""
        named = v1.ConfigProto()
        named.CopyFrom(config)
        jobs: dict[str, dict[int, str]] = {}
        for task in (*self._spec.servers, self._spec.controller):
            jobs.setdefault(task.job, {})[task.index] = self._spec.address(task)
        named.cluster_def.CopyFrom(tf.train.ClusterSpec(jobs).as_cluster_def())
        with super().open(graph, named) as session:
            yield session

    def change(self) -> str:
        """Who leaves or joins; "" if nobody does."""
        now, members = time.monotonic(), self._members()
        news = [
            f"{self._name(address)} leaves ({worker.leaving})"
            for address, worker in self._known()
            if address in members
            and worker.leaving
            and now - worker.leaves_at >= _OTHERS_SECONDS
        ]
        room, joining = len(news) + self._room(len(members)), self._joining()
        news += [f"{self._name(address)} joins" for address in joining[:room]]
        for address in joining[room:]:
            words = f"waits, as the run uses {min(self._limits)} workers at most."
            self._say_once(self._workers[address], f"{self._name(address)} {words}")
        return "; ".join(news)

    def dismiss(self, status: int) -> None:
        """As in `Controller`; also tasks that take no part now."""
        self._spec = self._of(set(self._workers))
        self._roll_call = HealthCheck(self._spec, self._needs)  # which knows all
        super().dismiss(status)

    def _known(self) -> list[tuple[str, _Worker]]:
        return list(self._workers.items())  # a heartbeat may add one meanwhile

    def _name(self, address: str) -> str:
        return f"{self._task(address)} at {address}"

    def _members(self) -> set[str]:
        """The addresses of the workers of the last session."""
        return {self._spec.address(task) for task in self._spec.workers}

    def _room(self, count: int) -> int:
        """How many workers may join `count` others."""
        most = min(self._limits, default=count + len(self._workers))
        return max(0, most - count)

    def _say_once(self, worker: _Worker, line: str) -> None:
        """Prints why a worker waits, once for each of its processes."""
        if worker.told != worker.life:
            worker.told = worker.life
            self._console(line)

    def _of(self, addresses: Set[str]) -> ClusterSpec:
        """The cluster with these workers."""
        every = tuple(address for address, _ in self._known())
        absent = {i for i, address in enumerate(every) if address not in addresses}
        jobs = {**self._spec.jobs, "worker": every}
        return dataclasses.replace(self._spec, jobs=jobs, absent=frozenset(absent))

    def _joining(self, *, few: bool = False) -> list[str]:
        """The addresses of workers that are no members and may become some.

        Args:
          few: whether those count that are to wait, as they are lost all the time.
        """
        now, members = time.monotonic(), self._members()
        return [
            address
            for address, worker in self._known()
            if address not in members
            and now - worker.beat_at < _FRESH_SECONDS
            and (few or now >= worker.not_before)
            and not worker.leaving
            and worker.fit == worker.life
        ]

    def _listen(self) -> None:
        """Notes the heartbeats of all tasks."""
        itself = messages.boot_name(self._spec, self._spec.me)
        with tf.Graph().as_default() as graph:
            with tf.device(messages.host_of(self._spec, self._spec.me)):
                heard = messages.heartbeats()
        config = v1.ConfigProto(device_filters=[filter_of(itself)])
        session = v1.Session(self.target, graph=graph, config=config)
        while True:
            self._note(messages.Heartbeat(*json.loads(session.run(heard))))

    def _note(self, beat: messages.Heartbeat) -> None:
        if beat.job != "worker":
            return
        now, worker = time.monotonic(), self._workers.get(beat.address, _Worker())
        # A heartbeat may come after that of the same process which says that it leaves.
        if beat.life != worker.life or not worker.leaving:
            worker.leaving, worker.leaves_at = beat.leaving, now
        worker.life, worker.beat_at = beat.life, now
        self._workers[beat.address] = worker
        if beat.address in self._members():
            return
        if beat.leaving and self._begun:
            self._let_go(beat.address, _LEFT)
        elif beat.life not in (worker.fit, worker.refused, worker.asked):
            worker.asked = beat.life
            ask = threading.Thread(target=self._vet, args=(beat.address,), daemon=True)
            ask.start()

    def _vet(self, address: str) -> None:
        """Asks a worker that sends heartbeats whether it fits, before it may join.

        So no session ends for one that cannot be reached, or does not fit.
        """
        worker = self._workers[address]
        asked = HealthCheck(self._of({address}), self._needs)
        try:
            hellos, silent = asked.ask([self._task(address)])
            self._refuse(asked.take_unfit(hellos, silent))
            for hello in hellos.values():
                worker.fit = hello.life
            for reason in silent.values():
                self._say_once(worker, f"Not taken yet: {reason}.")
        finally:
            worker.asked = ""

    def _gather(self, stop: Stop) -> None:
        """Waits for the ps tasks and enough workers; they are the members from then on.

        At the start it waits a while for all workers that are known, or that there may
        be.
        """
        begun = time.monotonic()
        due = begun + QUIET_SECONDS
        few = False
        while stop.received is None:
            waited = time.monotonic() - begun
            hellos, missing = self._ask(few=few)
            count = sum(task.job == "worker" for task in (*hellos, self._spec.me))
            late = not self._begun and waited < min(self._stall_secs, self._wait_secs)
            few = count < self._flags.min_workers
            needed = any(task.job == "ps" for task in missing)
            if not (needed or few or (late and (missing or count < self._places))):
                return self._settle(hellos)
            reasons = "; ".join(missing.values()) or "workers"
            if few:
                reasons += f" ({count} of --min_workers={self._flags.min_workers})"
            due = self._go_on_waiting(begun, due, missing, reasons)

    def _ask(self, *, few: bool) -> tuple[Hellos, dict[Task, str]]:
        """Polls the ps tasks and the workers that may be the next members.

        Args:
          few: as in `_joining`.

        Returns:
          (task -> its `TaskInfo`, of those that may take part; task -> why it does not
          answer).

        Raises:
          messages.ClusterError: a ps task is wrong.
        """
        stay = self._members() if self._begun else set(self._workers)
        leaving = {address for address, worker in self._known() if worker.leaving}
        spec = self._of(stay.difference(leaving).union(self._joining(few=few)))
        asked = HealthCheck(spec, self._needs)
        hellos, silent = asked.ask()
        self._refuse(asked.take_unfit(hellos, silent))
        for task, hello in list(hellos.items()):
            if task.job != "worker":
                continue
            if not self._is_calm(spec.address(task), hello) and not few:
                del hellos[task]
        for task in silent:
            if task.job == "worker" and hellos:  # else this task itself was cut off
                self._note_loss(spec.address(task))
        return hellos, silent

    def _refuse(self, unfit: Unfit) -> None:
        """Says once of each worker why it does not fit; ends those of this run."""
        for task, (hello, why) in unfit.items():
            address = list(self._workers)[task.index]
            worker = self._workers[address]
            if worker.refused == hello.life:
                continue
            worker.refused = worker.life = hello.life
            self._console(f"Not taken: {why}.")
            if comparison.leader(hello) == self._spec.address(self._spec.controller):
                self._let_go(address, _REFUSED, f"not taken: {why}")

    def _is_calm(self, address: str, hello: messages.TaskInfo) -> bool:
        """Whether a worker that answers may take part, as it is not lost all the time.

        One that was started anew was lost before.
        """
        worker = self._workers[address]
        if worker.joined_life not in ("", hello.life):
            self._note_loss(address)
        worker.life = hello.life
        return time.monotonic() >= worker.not_before

    def _note_loss(self, address: str) -> None:
        """Notes that a worker is lost; it joins later if that happens often."""
        worker, now = self._workers[address], time.monotonic()
        if not (worker.beat_at and self._begun):
            return  # it is known
        short = now - worker.joined_at < _SHORT_SECONDS
        worker.losses = worker.losses + 1 if short or not worker.joined_life else 0
        # Only a heartbeat from now on says that it is there again.
        worker.beat_at, worker.joined_life, worker.fit = 0.0, "", ""
        worker.told = worker.life
        if worker.losses > 1:
            pause = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (worker.losses - 2))
            worker.not_before = now + pause
            self._console(
                f"{self._name(address)} was lost {worker.losses} times soon after it "
                f"joined; it may join again after {pause:.0f} s."
            )

    def _settle(self, hellos: Hellos) -> None:
        """Makes those that answered the members, as many as may be."""
        before, now = self._members() if self._begun else set(), time.monotonic()
        there = [self._spec.me] if self._spec.me.job == "worker" else []
        there += sorted(task for task in hellos if task.job == "worker")
        every = list(self._workers)
        addresses = [every[task.index] for task in there]
        # Those that were members stay, if not all may.
        addresses.sort(key=lambda address: address not in before)
        chosen = addresses[: self._room(0)]
        self._spec = self._of(set(chosen))
        self._roll_call = HealthCheck(self._spec, self._needs)
        self._roll_call.remember(hellos)
        self._remark(hellos)
        for address in chosen:
            worker = self._workers[address]
            if address not in before or not worker.joined_life:
                worker.joined_at = now
            worker.joined_life = worker.life
        for address in before.difference(chosen):
            self._workers[address].joined_life = ""
            if self._workers[address].leaving:
                self._let_go(address, _LEFT)
        self.members, self._begun = self._spec, True

    def _task(self, address: str) -> Task:
        return Task("worker", list(self._workers).index(address))

    def _let_go(self, address: str, status: int, words: str = "") -> None:
        """Ends a worker, in the background, after it has printed these words."""
        spec, task = self._of({address}), self._task(address)

        def end() -> None:
            if words:
                note = messages.Note(str(task), words, ends=True)
                with contextlib.suppress(messages.NoAnswerError, tf.errors.OpError):
                    messages.send(spec, note, seconds=_FAREWELL_SECONDS, to=task)
            messages.dismiss(spec, task, status=status, seconds=_FAREWELL_SECONDS)

        threading.Thread(target=end, daemon=True).start()
