"""An elastic run's workers change: the plan for those that are there, and the state.

The variables of a session end with it.  `Membership` reads them in the session that
ends, and loads them in the next one, whose graph has other towers.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import tensorflow as tf

from flags.field import listing
from flags.problem import wrong_setting
from towers import planning, run_state
from towers.callbacks.base import NEVER, Callback, RunContext, RunValues, TrainingError
from towers.callbacks.every import Every
from towers.cluster.sessions import MembersChangedError, Sessions
from towers.compute.sync_batch_norm import BATCH_NORM
from towers.graph import TrainGraph
from towers.layout import moved_towers
from towers.layout.cluster_spec import ClusterSpec
from towers.layout.gpus import plural
from towers.membership_log import MembershipFile, MembershipLog, Workers
from towers.planning import Plan
from towers.prepared import Prepared
from towers.run_state import RunState
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1


def plan_for(plan: Plan, members: ClusterSpec) -> Plan:
    """The plan with towers on these members.

    Args:
      plan: of the run on all workers that the command line names.
      members: the workers that are there.
    """
    kind = plan.config.cluster.elasticity
    if kind == "keep_towers":
        same_towers = moved_towers.on_members(plan.placement, members.workers)
        if same_towers is not None:
            return dataclasses.replace(plan, placement=same_towers)
    where = planning.placement_of(plan.config, members)
    if kind == "scale_lr":
        factor = _rate_factor(plan, len(members.workers))
        update = plan.update if factor == 1.0 else plan.update.scaled(factor)
        return dataclasses.replace(plan, placement=where, update=update)
    batch = plan.options.batch_size * plan.placement.num_towers
    least, more = divmod(batch, where.num_towers)
    sizes = tuple(least + (k < more) for k in range(where.num_towers))
    options = dataclasses.replace(
        plan.options, batch_size=sizes[0], tower_batch_sizes=sizes
    )
    return dataclasses.replace(plan, placement=where, options=options)


def most_workers(plan: Plan) -> int | None:
    """How many workers have a tower that has an example of its step; None for any
    number."""
    if plan.config.cluster.elasticity == "scale_lr":
        return None
    if not VARIABLE_UPDATES[plan.options.variable_update].together:
        return len(set(plan.placement.hosts))  # the batch of a tower stays
    batch = plan.options.batch_size * plan.placement.num_towers
    return batch // plan.placement.per_task


def _rate_factor(plan: Plan, workers: int) -> float:
    """What `scale_lr` multiplies the learning rate by (Goyal et al. 2017, 2.1)."""
    return workers / plan.options.nominal_workers


class Membership:
    """The members of an elastic run, and its state from one session to the next.

    Args:
      plan: of the run on all workers that the command line names.
      sessions: knows the members.
      console: takes lines for the user.
    """

    def __init__(self, plan: Plan, sessions: Sessions, console: Callable[[str], None]):
        self._plan = plan
        self._sessions = sessions
        self._console = console
        self._state: RunState | None = None
        self._workers: Workers = ()  # of the plan; in a replay those of the log
        # From which the next session goes on, as far as that is known.
        self._step = 0
        self.reached = 0  # the last step whose results this process has
        path = plan.config.cluster.replay_membership
        self._log = MembershipLog.read(path) if path and plan.options.elastic else None

    def plan(self, now: Plan) -> Plan | None:
        """The plan for the members, or None if `now` is for them."""
        members = self._sessions.members
        if members is None:
            return None
        if self._log is None:
            self._workers = tuple(task.index for task in members.workers)
            plan = plan_for(self._plan, members)
        else:
            first, _ = self._log.changes[0]
            self._workers = self._log.workers(max(self._step, first))
            plan = self._replayed(members)
        rates = plan.update.learning_rate, now.update.learning_rate
        same = plan.placement == now.placement and rates[0] == rates[1]
        return None if same else plan

    def _replayed(self, members: ClusterSpec) -> Plan:
        """The plan for as many workers as the log has, with their towers on these.

        Results depend on the number of workers only, and in `keep_towers` not on that.

        Raises:
          ValueError: one of them would have the towers of too many.
        """
        kept = self._plan.config.cluster.elasticity == "keep_towers"
        count, named = len(self._workers), len(set(self._plan.placement.hosts))
        if kept and count <= named:
            return plan_for(self._plan, members)
        hosts = tuple(f"replayed-{k}:1" for k in range(count))
        jobs = {**members.jobs, "worker": hosts}
        logged = dataclasses.replace(members, jobs=jobs, absent=frozenset())
        plan = plan_for(self._plan, logged)
        where = moved_towers.on_members(plan.placement, members.workers[:count])
        if where is None:
            raise wrong_setting(
                "replay_membership",
                self._plan.config.cluster.replay_membership,
                f"has {count} workers, and there are {len(members.workers)}, of which "
                f"each takes the towers of {moved_towers.SHARES} at most",
                "start more",
            )
        return dataclasses.replace(plan, placement=where)

    @contextlib.contextmanager
    def carried(self, train: TrainGraph, session: v1.Session) -> Iterator[None]:
        """Reads the state if this session ends by a loss or for other members.

        A step may have changed the variables though its call failed.  It is taken again
        from the last copy in memory, as nothing was logged, saved or evaluated for it.
        """
        try:
            yield
        except (ValueError, TrainingError):
            raise  # the run ends
        except Exception:
            if self._sessions.members is not None:
                state = run_state.read(train, session)
                ahead = state and train.mode.together and state.step > self.reached
                if not (ahead and self._plan.config.cluster.memory_copy_steps):
                    self.keep(state)
            raise

    def keep(self, state: RunState | None) -> None:
        """Keeps a state, if it is known, in place of the one before."""
        if state:
            self._state, self._step = state, state.step

    def load(self, train: TrainGraph, session: v1.Session) -> bool:
        """Loads the state, unless a checkpoint of a later step was loaded.

        Returns:
          whether it did.
        """
        state = self._state
        if state is None or state.step < int(session.run(train.global_step)):
            return False
        run_state.load(train, session, state)
        return True

    def begin_at(self, run: Prepared, session: v1.Session, step: int) -> None:
        """Prints and logs the members, and keeps a first copy of the state.

        Raises:
          MembersChangedError: the log that is replayed has others at this step, which a
            checkpoint has.
          ValueError: that log begins later.
        """
        members, options = self._sessions.members, run.plan.options
        if members is None:
            return
        self._step = self.reached = step
        if self._log and self._log.workers(step) != self._workers:
            raise MembersChangedError(f"Replaying from step {step} on")
        # A new one, as it is to have a line where a run is taken up.
        file = MembershipFile(run.plan.config.output.train_dir, run.console.side)
        file.note(step, self._workers)
        names = listing([str(task.index) for task in members.workers], "and")
        line = f"Workers from step {step} on: {names}"
        sizes = options.tower_batches(run.plan.placement.num_towers)
        each = listing([str(size) for size in sorted(set(sizes), reverse=True)], "or")
        line += f"; {plural(len(sizes), 'tower')} of {each} examples"
        norms = any(not rule.is_state for rule, _ in run.built.template.statistics)
        if norms and not BATCH_NORM[options.batch_norm].towers:
            line += ", of which batch norm takes its statistics"
        if run.plan.config.cluster.elasticity == "scale_lr":
            factor = _rate_factor(self._plan, len(self._workers))
            line += f"; the learning rate is multiplied by {factor:.3g}"
        self._console(line)
        if run.plan.config.cluster.memory_copy_steps:
            self.keep(run_state.read(run.built, session))

    def hooks(self, run: Prepared) -> list[Callback]:
        """What acts after each step; last, as it may end the session."""
        if self._sessions.members is None:
            return []
        every = run.plan.config.cluster.memory_copy_steps
        copies = [_KeepState(run.built, self, steps=every)] if every else []
        ends: list[Callback] = [_EndForMembers(self, self._sessions)]
        if self._log:
            ends.append(_EndForLog(run.built, self._log))
        return [*copies, *ends]


class _KeepState(Every):
    """Keeps a copy of the state every few steps."""

    def __init__(self, train: TrainGraph, membership: Membership, *, steps: int):
        super().__init__(train, steps=steps)
        self._train = train
        self._membership = membership

    def act(self, run_context: RunContext, step: int) -> None:
        """Reads and keeps it."""
        del step
        self._membership.keep(run_state.read(self._train, run_context.session))


class _EndForMembers(Callback):
    """Ends the session after a step when workers join or leave."""

    def __init__(self, membership: Membership, sessions: Sessions):
        self._membership = membership
        self._sessions = sessions

    def next_due(self, step: int) -> int:
        """The next step, if there is a change."""
        self._membership.reached = step
        return step + 1 if self._sessions.change() else NEVER

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Raises `MembersChangedError`, unless the run ends anyway."""
        del run_values
        self._membership.reached += 1
        news = self._sessions.change()
        if news and not run_context.stop_requested:
            raise MembersChangedError(news)


class _EndForLog(Every):
    """Ends the session where the log that is replayed has other workers."""

    def __init__(self, train: TrainGraph, log: MembershipLog):
        super().__init__(train, at=[step for step, _ in log.changes])
        self._log = log

    def act(self, run_context: RunContext, step: int) -> None:
        """Raises `MembersChangedError`, unless the run ends anyway."""
        if not run_context.stop_requested:
            workers = plural(len(self._log.workers(step)), "worker")
            raise MembersChangedError(f"Replaying {workers} from step {step} on")
