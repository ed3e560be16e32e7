"""An elastic run's workers change: the plan for those that are there, and the state.

The variables of a session end with it.  `Membership` reads them in the session that
ends, and loads them in the next one, whose graph has other towers.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import tensorflow as tf

from flags.field import listing
from towers import planning, run_state
from towers.callbacks.base import NEVER, Callback, RunContext, RunValues, TrainingError
from towers.callbacks.every import Every
from towers.cluster.sessions import MembersChangedError, Sessions
from towers.compute.sync_batch_norm import BATCH_NORM
from towers.graph import TrainGraph
from towers.layout import moved_towers
from towers.layout.cluster_spec import ClusterSpec
from towers.layout.gpus import plural
from towers.planning import Plan
from towers.prepared import Prepared
from towers.run_state import RunState

v1 = tf.compat.v1


def plan_for(plan: Plan, members: ClusterSpec) -> Plan:
    """The plan with towers on these members.

    Args:
      plan: of the run on all workers that the command line names.
      members: the workers that are there.
    """
    if plan.config.cluster.elastic != "keep_batch":
        same_towers = moved_towers.on_members(plan.placement, members.workers)
        if same_towers is not None:
            return dataclasses.replace(plan, placement=same_towers)
    where = planning.placement_of(plan.config, members)
    batch = plan.options.batch_size * plan.placement.num_towers
    least, more = divmod(batch, where.num_towers)
    sizes = tuple(least + (k < more) for k in range(where.num_towers))
    options = dataclasses.replace(
        plan.options, batch_size=sizes[0], tower_batch_sizes=sizes
    )
    return dataclasses.replace(plan, placement=where, options=options)


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

    def plan(self, now: Plan) -> Plan | None:
        """The plan for the members, or None if `now` is for them."""
        members = self._sessions.members
        if members is None:
            return None
        plan = plan_for(self._plan, members)
        return None if plan.placement == now.placement else plan

    @contextlib.contextmanager
    def carried(self, train: TrainGraph, session: v1.Session) -> Iterator[None]:
        """Reads the state if this session ends by a loss or for other members."""
        try:
            yield
        except (ValueError, TrainingError):
            raise  # the run ends
        except Exception:
            if self._sessions.members is not None:
                self.keep(run_state.read(train, session))
            raise

    def keep(self, state: RunState | None) -> None:
        """Keeps a state, if it is known, in place of the one before."""
        self._state = state or self._state

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
        """Prints the members and keeps a first copy of the state."""
        members, options = self._sessions.members, run.plan.options
        if members is None:
            return
        names = listing([str(task.index) for task in members.workers], "and")
        line = f"Workers from step {step} on: {names}"
        sizes = options.tower_batches(run.plan.placement.num_towers)
        each = listing([str(size) for size in sorted(set(sizes), reverse=True)], "or")
        line += f"; {plural(len(sizes), 'tower')} of {each} examples"
        norms = any(not rule.is_state for rule, _ in run.built.template.statistics)
        if norms and not BATCH_NORM[options.batch_norm].towers:
            line += ", of which batch norm takes its statistics"
        self._console(line)
        if run.plan.config.cluster.memory_copy_steps:
            self.keep(run_state.read(run.built, session))

    def hooks(self, run: Prepared) -> list[Callback]:
        """What acts after each step; last, as it may end the session."""
        if self._sessions.members is None:
            return []
        every = run.plan.config.cluster.memory_copy_steps
        copies = [_KeepState(run.built, self, steps=every)] if every else []
        return [*copies, _EndForMembers(self._sessions)]


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

    def __init__(self, sessions: Sessions):
        self._sessions = sessions

    def next_due(self, step: int) -> int:
        """The next step, if there is a change."""
        return step + 1 if self._sessions.change() else NEVER

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Raises `MembersChangedError`, unless the run ends anyway."""
        del run_values
        news = self._sessions.change()
        if news and not run_context.stop_requested:
            raise MembersChangedError(news)
