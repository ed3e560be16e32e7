"""`--tower_batch_sizes=auto`: divides the global batch by the speed of each tower.

Before the first step every tower computes some equal batches alone, and the time of its
loss and gradients is taken.  So no profiler runs, and no step of the training waits.
Each tower reads the same batch again and again, so the input does not count, nor does
the reduction.  The sizes then stay, unless `--rebalance` changes them, and are in the
checkpoints: a resumed run with as many towers and the same global batch uses them
again.
"""

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

from flags.batch_sizes import AUTO
from towers import graph
from towers.checkpoints import checkpoint, constants
from towers.cluster.sessions import Sessions, Stop, session_config
from towers.compute.sufficient_factors import dense
from towers.compute.tower import Tower
from towers.layout import batch_sizes
from towers.planning import Plan
from towers.session import loop
from towers.session.progress import Console

v1 = tf.compat.v1

WARMUP = 2  # calls of each tower; the first makes kernels
CALLS = 5  # timed

# Towers whose times differ by less are taken as equally fast, since a new run would
# measure other numbers, and each further size is traced once more.
_ALIKE = 1.1

# Seconds in which each tower computes its batch.
Measure = Callable[[Plan, Sessions, Stop], list[float]]


def measure(plan: Plan, sessions: Sessions, stop: Stop) -> list[float]:
    """Times each tower alone, in a graph of its own.

    Raises:
      ValueError: the model and the data do not fit.
    """
    options = dataclasses.replace(
        plan.options, batch_norm=_alone(plan.options.batch_norm), limit=None
    )
    placement = dataclasses.replace(plan.placement, at_a_time=0)
    parts = plan.parts | {"options": options, "placement": placement}
    built = graph.build(**parts)
    ends = [_end(built, tower) for tower in built.towers]
    config = session_config(plan.placement, plan.config.devices)
    config.isolate_session_state = True  # the iterators of the run have other shapes
    seconds: list[float] = []

    def attempt() -> int:
        with sessions.open(built.graph, config) as session:
            loop.start(built, session, lambda session: None)
            seconds[:] = _timed(built, session, ends)
        return 0

    sessions.keep(attempt, stop, resumes=True)
    return seconds


def _alone(batch_norm: str) -> str:
    """Batch norm in which no tower waits for another."""
    return {"sync": "tower", "sync_micro_batch": "micro_batch"}.get(
        batch_norm, batch_norm
    )


def _end(built: graph.TrainGraph, tower: Tower) -> tf.Operation:
    """An operation that runs once the tower has its loss and gradients."""
    values = [dense(gradient) for gradient in tower.gradients if gradient is not None]
    with built.graph.as_default(), tf.device(tower.device):
        return tf.group(tower.loss, *tf.nest.flatten(values, expand_composites=True))


def _timed(
    built: graph.TrainGraph, session: v1.Session, ends: Sequence[tf.Operation]
) -> list[float]:
    """The median time of each tower, on a batch that is fed."""
    feed = built.feed
    tensors = tf.nest.flatten([batch._asdict() for batch in feed.batches])
    values, _ = session.run([tensors, feed.refills])
    medians = []
    for end in ends:
        run = session.make_callable(end, feed_list=tensors)
        seconds = []
        for _ in range(WARMUP + CALLS):
            begun = time.perf_counter()
            run(*values)
            seconds.append(time.perf_counter() - begun)
        medians.append(statistics.median(seconds[WARMUP:]))
    return medians


def speeds(seconds: Sequence[float]) -> list[float]:
    """The speed of each tower, the same for those that are about equally fast."""
    ordered = sorted(range(len(seconds)), key=lambda tower: seconds[tower])
    groups: list[list[int]] = []
    for tower in ordered:
        if groups and seconds[tower] < seconds[groups[-1][0]] * _ALIKE:
            groups[-1].append(tower)
        else:
            groups.append([tower])
    of_tower = {
        tower: len(group) / sum(seconds[tower] for tower in group)
        for group in groups
        for tower in group
    }
    return [of_tower[tower] for tower in range(len(seconds))]


def settled(
    plan: Plan,
    console: Console,
    sessions: Sessions,
    stop: Stop,
    *,
    measured: Measure = measure,
) -> Plan:
    """The plan of a run, with batch sizes in place of `auto`, or as a run kept them.

    Args:
      plan: of the run; with `auto`, of equal batches.
      console: takes lines for the user.
      sessions: opens sessions.
      stop: set by signals.
      measured: times the towers.

    Raises:
      ValueError: the model and the data do not fit.
    """
    flags, options, where = plan.config.variables, plan.options, plan.placement
    auto = flags.tower_batch_sizes == AUTO
    if not (auto or flags.rebalance) or options.keeps_batch_sizes:
        return plan
    here, multiple = options.sizes(where.num_towers), options.multiple
    directory = plan.config.output.train_dir
    path = directory and checkpoint.latest(directory)
    sizes = constants.batch_sizes(path) if path else ()
    like = (len(sizes), sum(sizes)) == (len(here), sum(here))
    why = f"as in {path}"
    if not like or any(size % multiple for size in sizes):
        sizes = here
        if auto:
            console("Timing each tower, to divide the batch among them")
            seconds = measured(plan, sessions, stop)
            sizes = batch_sizes.divide(sum(here), speeds(seconds), multiple=multiple)
            times = ", ".join(f"{1e3 * s:.1f}" for s in seconds)
            why = f"as {options.batch_size} took {times} ms"
    if auto or sizes != here:
        text = ",".join(map(str, sizes))
        console(f"Batch sizes: --tower_batch_sizes={text}, {why}")
    options = dataclasses.replace(
        options, tower_batch_sizes=sizes, keeps_batch_sizes=True
    )
    if flags.rebalance:  # no tower's time has that of another in it
        where = dataclasses.replace(where, at_a_time=0)
    return dataclasses.replace(plan, options=options, placement=where)
