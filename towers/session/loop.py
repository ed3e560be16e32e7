"""The session loop: steps, with TensorFlow's `SessionRunHook`s around them.

TensorFlow's `MonitoredTrainingSession` restores before it initializes the input, which
loses the input position, and prepares its fetches again in each step.  `start` has the
right order, and `run` makes one callable per distinct set of fetches.
"""

import contextlib
import time
from collections.abc import Callable, Collection, Generator, Sequence
from typing import Any

import tensorflow as tf

from towers.callbacks.base import NEVER, Callback, RunArgs
from towers.graph import TrainGraph
from towers.variable_update.asynchronous import Runner, StepsTaken

v1 = tf.compat.v1

# Seconds of steps in one call, before hooks are asked again whether something is due,
# as after a signal; and the steps of the first call.  Asynchronous towers take at least
# as many steps each, as they end together.
_SECONDS = 3.0
_FIRST_STEPS = 8


def start(
    train: TrainGraph, session: v1.Session, restore: Callable[[v1.Session], object]
) -> None:
    """Gives every variable its value and every iterator its position.

    Args:
      train: the graph.
      session: on it.
      restore: loads a checkpoint if there is one.  It runs after the variables and
        before the input are initialized, so the input starts at the restored position.
    """
    session.run(train.initializer)
    restore(session)
    session.run(train.sync)
    session.run(train.feed.initializer)
    train.clients.release(session)


def steps_left(train: TrainGraph, session: v1.Session) -> int:
    """Steps from here to the last example that counts, with `Options.limit` set."""
    left = train.options.limit - session.run(train.position)
    return max(0, -(-left // train.examples_per_step))


def owed_steps(train: TrainGraph, session: v1.Session) -> int:
    """Steps that are left because earlier ones dropped examples, which are taken again.

    They are more if further examples are dropped.
    """
    backup = train.options.backup
    replays = backup is not None and backup.replay and train.options.limit is not None
    return steps_left(train, session) if replays else 0


def run(
    train: TrainGraph,
    session: v1.Session,
    hooks: Sequence[v1.train.SessionRunHook],
    *,
    last_step: int,
    steps_per_loop: int = 1,
    more: Callable[[], int] | None = None,
) -> int:
    """Runs steps until the global step is `last_step` or a hook asks to stop.

    Args:
      train: the graph, started.
      session: on it.
      hooks: called around each step, in order.
      last_step: global step at which training ends.
      steps_per_loop: largest number of steps that run inside the graph between two
        calls of hooks; fewer if they would take more than about 3 seconds.  It has no
        effect on asynchronous towers.
      more: called at the last step; how many more steps to run, 0 at the end.

    Returns:
      the global step reached.
    """
    with train.graph.as_default():
        for hook in hooks:
            hook.begin()
        for hook in hooks:
            hook.after_create_session(session, None)
        steps = _Steps(session, train, steps_per_loop)
        step, stopped = _run(steps, hooks, last_step)
        while more and not stopped and (count := more()):
            step, stopped = _run(steps, hooks, step + count)
        for hook in hooks:
            hook.end(session)
    return step


def _run(
    steps: "_Steps", hooks: Sequence[v1.train.SessionRunHook], last_step: int
) -> tuple[int, bool]:
    """The global step reached, and whether a hook asked to stop."""
    step, stopped = steps.begin(), False
    while step < last_step and not stopped:
        seen = min((_next_due(hook, step) for hook in hooks), default=last_step + 1)
        inside = min(steps.most_inside, last_step - step, seen - 1 - step)
        # A single step inside the graph saves time for asynchronous towers only.
        if inside >= (1 if steps.free else 2):
            # Closed, where a hook fails: no tower goes on by itself.
            with contextlib.closing(steps.inside(step, inside)) as taken:
                for reached, losses, seconds in taken:
                    step = reached
                    for hook in hooks:
                        hook.after_steps(step, losses, seconds)
        else:
            step, stopped = steps(hooks)
    return step, stopped


def _next_due(hook: v1.train.SessionRunHook, step: int) -> int:
    return hook.next_due(step) if isinstance(hook, Callback) else step + 1


class _Steps:
    """Runs steps; asks TensorFlow for a callable once per distinct set of fetches.

    Attributes:
      free: whether towers are asynchronous; then a call takes many steps, whatever
        `steps_per_loop` is.
      most_inside: how many steps to take in one call.
    """

    def __init__(self, session: v1.Session, train: TrainGraph, steps_per_loop: int):
        self._session = session
        self._train = train
        # Key of the fetches -> their callable, and the fetches, which are kept so that
        # no other object gets their identity.
        self._callables: dict[object, tuple[Callable, object]] = {}
        self._inside: Runner | None = None
        self.free = train.loop is not None and train.loop.free
        self._range = (min(steps_per_loop, 2), steps_per_loop)
        self.most_inside = min(steps_per_loop, _FIRST_STEPS)
        if self.free:
            self.most_inside = _FIRST_STEPS * train.placement.num_towers
            self._range = (self.most_inside, NEVER)

    def begin(self) -> int:
        """The global step before the first step."""
        return int(self._session.run(self._train.global_step))

    def __call__(self, hooks: Sequence[v1.train.SessionRunHook]) -> tuple[int, bool]:
        """One step.

        Returns:
          the global step after it, and whether a hook asked to stop.
        """
        base = v1.train.SessionRunArgs(self._train.step)
        context = v1.train.SessionRunContext(base, self._session)
        hook_args = {}
        for index, hook in enumerate(hooks):
            args = hook.before_run(context)
            if args is not None:
                hook_args[index] = args
        fetches = {
            index: args.fetches
            for index, args in hook_args.items()
            if args.fetches is not None
        }
        fetches[-1] = self._train.step
        results, metadata = self._run(fetches, hook_args.values())
        for index, hook in enumerate(hooks):
            hook.after_run(
                context,
                v1.train.SessionRunValues(results.get(index), *metadata),
            )
        return int(results[-1]), context.stop_requested

    def inside(self, step: int, count: int) -> Generator[StepsTaken]:
        """Takes `count` steps after a global step; yields as the loop's runner."""
        if self._inside is None:
            assert self._train.loop is not None
            self._inside = self._train.loop.runner(self._session)
        begun = time.monotonic()
        yield from self._inside(step, count)
        pace = count / max(time.monotonic() - begun, 1e-3)
        least, most = self._range
        self.most_inside = min(most, max(least, int(_SECONDS * pace)))

    def _run(self, fetches: object, hook_args: Collection[RunArgs]) -> tuple[Any, Any]:
        """What was fetched, and the options and metadata of the run."""
        feeds: dict[tf.Tensor, object] = {}
        for args in hook_args:
            feeds |= args.feed_dict or {}
        options = [args.options for args in hook_args if args.options is not None]
        if not options and not feeds:
            key = _key(fetches)
            if key not in self._callables:
                self._callables[key] = (self._session.make_callable(fetches), fetches)
            return self._callables[key][0](), (None, None)
        merged, metadata = v1.RunOptions(), v1.RunMetadata()
        for option in options:
            merged.MergeFrom(option)
        results = self._session.run(fetches, feeds, merged, metadata)
        return results, (merged, metadata)


def _key(fetches: object) -> object:
    """A key that is equal for equal fetches; tensors are compared by identity."""
    if isinstance(fetches, dict):
        return tuple([(name, _key(part)) for name, part in fetches.items()])
    if isinstance(fetches, list | tuple):
        return type(fetches), *map(_key, fetches)
    return fetches if isinstance(fetches, str) else id(fetches)
