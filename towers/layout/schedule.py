"""Pipeline schedules: the order in which each stage runs its passes.

A stage is a device.  A chunk is a contiguous part of the model's blocks on a stage: one
per stage, or several with `interleaved`, where chunk c is on stage c modulo the number
of stages.  A pass takes one micro-batch through one chunk, forward or backward.  An
order is the list of passes of each stage.  `sequence` merges these into one topological
order of all passes, or says why there is none, so that a graph whose stages would
deadlock is never run.

With equal chunks and K stages, M micro-batches and V chunks per stage, all schedules
keep the stages busy M V / (M V + K - 1) of the time (for V > 1 if M is a multiple of
K). They differ in how many micro-batches' activations a stage holds.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple


class Pass(NamedTuple):
    """One micro-batch through one chunk, forward or backward; or one leg of that."""

    chunk: int
    micro_batch: int
    backward: bool = False
    leg: int = 0

    def __str__(self) -> str:
        way = "backward" if self.backward else "forward"
        leg = f"leg {self.leg} of the " if self.leg else ""
        return (
            f"{leg}{way} of micro-batch {self.micro_batch} through chunk {self.chunk}"
        )


Order = Sequence[Sequence[Pass]]  # [stages][passes]


class Legs(NamedTuple):
    """How passes are divided into legs if batch norm synchronizes batches.

    Attributes:
      counts: (chunk, backward) -> number of legs of that pass, if more than one.
      meeting: number of micro-batches whose previous legs a leg waits for; 0 if it
        waits for its own micro-batch only.
    """

    counts: Mapping[tuple[int, bool], int] = {}
    meeting: int = 0

    def last(self, pass_: Pass) -> Pass:
        """The last leg of a pass."""
        return pass_._replace(leg=self.counts.get((pass_.chunk, pass_.backward), 1) - 1)

    def divide(self, order: Order) -> Order:
        """Replaces the passes of an order by their legs.

        If micro-batches synchronize, consecutive passes of one chunk run leg by leg:
        the first leg of all of them, then the second, and so on.
        """
        return [
            [
                pass_._replace(leg=leg)
                for group in self._groups(passes)
                for leg in range(self.last(group[0]).leg + 1)
                for pass_ in group
            ]
            for passes in order
        ]

    def _groups(self, passes: Sequence[Pass]) -> list[list[Pass]]:
        if not self.meeting:
            return [[pass_] for pass_ in passes]
        same = itertools.groupby(
            passes, key=lambda pass_: (pass_.chunk, pass_.backward)
        )
        return [list(group) for _, group in same]


_WHOLE = Legs()


class ScheduleError(ValueError):
    """An order in which stages would wait for each other forever."""


class PipelineSchedule(NamedTuple):
    """A pipeline schedule; a row of `SCHEDULES`."""

    order: Callable[[int, int, int], Order]  # of (stages, micro-batches, chunks each)
    interleaves: bool = False  # whether a stage has several chunks
    gathers: bool = False  # whether a chunk's forward passes all precede its backward
    description: str = ""  # one line for the user


def gpipe(stages: int, micro_batches: int, chunks: int = 1) -> Order:
    """All micro-batches forward, then all backward (Huang et al. 2018).

    Args:
      stages: how many.
      micro_batches: how many.
      chunks: of each stage.
    """
    steps = [(chunk, m) for chunk in range(chunks) for m in range(micro_batches)]
    return [
        [Pass(c * stages + stage, m) for c, m in steps]
        + [
            Pass(c * stages + stage, m, backward=True)
            for c in reversed(range(chunks))
            for m in range(micro_batches)
        ]
        for stage in range(stages)
    ]


def one_forward_one_backward(stages: int, micro_batches: int, chunks: int = 1) -> Order:
    """PipeDream's 1F1B: after the warm-up, one forward and one backward in turn.

    Stage s of K holds the activations of at most K - s micro-batches.

    Args:
      stages: how many.
      micro_batches: how many.
      chunks: 1; several are for `interleaved`.
    """
    assert chunks == 1, "several chunks per stage are for `interleaved`"
    return [
        _alternate(
            [Pass(stage, m) for m in range(micro_batches)],
            [Pass(stage, m, backward=True) for m in range(micro_batches)],
            ahead=stages - 1 - stage,
        )
        for stage in range(stages)
    ]


def interleaved(stages: int, micro_batches: int, chunks: int = 2) -> Order:
    """1F1B over several chunks per stage (Narayanan et al. 2021, section 2.2.2).

    Micro-batches run in groups of as many as there are stages: a group passes a stage's
    first chunk, then its second, and so on, before the next group.  A short last group
    runs in the order of a full one, with the missing micro-batches left out.

    Args:
      stages: how many.
      micro_batches: how many.
      chunks: of each stage.
    """
    groups = range(0, micro_batches, stages)
    order = []
    for stage in range(stages):
        forward, backward = (
            [
                Pass(c * stages + stage, m, backward)
                for first in groups
                for c in chunk_order
                for m in range(first, first + stages)
            ]
            for chunk_order, backward in (
                (range(chunks), False),
                (range(chunks)[::-1], True),
            )
        )
        ahead = 2 * (stages - 1 - stage) + (chunks - 1) * stages
        passes = _alternate(forward, backward, ahead=ahead)
        order.append([p for p in passes if p.micro_batch < micro_batches])
    return order


def _alternate(forward: list[Pass], backward: list[Pass], *, ahead: int) -> list[Pass]:
    """`ahead` forward passes as warm-up, then forward and backward passes in turn."""
    ahead = min(ahead, len(forward))
    passes = forward[:ahead]
    for next_forward, next_backward in zip(forward[ahead:], backward):
        passes += [next_forward, next_backward]
    return passes + backward[len(forward) - ahead :]


# --schedule -> row.  To add one, write a function and a row.
SCHEDULES: dict[str, PipelineSchedule] = {
    "gpipe": PipelineSchedule(
        gpipe,
        gathers=True,
        description="all micro-batches forward, then all backward",
    ),
    "1f1b": PipelineSchedule(
        one_forward_one_backward,
        description="one forward, one backward; at most as many micro-batches are "
        "held as there are stages",
    ),
    "interleaved": PipelineSchedule(
        interleaved,
        interleaves=True,
        description="one forward, one backward, over several chunks per stage",
    ),
}


def forward_only(stages: int, micro_batches: int, chunks: int = 1) -> Order:
    """The order of an evaluation, which has no backward passes."""
    return [
        [p for p in passes if not p.backward]
        for passes in gpipe(stages, micro_batches, chunks)
    ]


def needs(pass_: Pass, num_chunks: int, legs: Legs = _WHOLE) -> list[Pass]:
    """The passes that a pass waits for, besides those before it on its stage.

    The gradients of the micro-batches are summed in their order, so a backward pass
    also waits for that of the micro-batch before.
    """
    chunk, m, backward, leg = pass_
    needed = []
    if leg:
        meet = range(legs.meeting) if legs.meeting else [m]
        needed += [pass_._replace(micro_batch=k, leg=leg - 1) for k in meet]
    elif backward:
        needed.append(legs.last(Pass(chunk, m)))
        if chunk + 1 < num_chunks:
            needed.append(legs.last(Pass(chunk + 1, m, backward=True)))
    elif chunk:
        needed.append(legs.last(Pass(chunk - 1, m)))
    if backward and m:
        needed.append(pass_._replace(micro_batch=m - 1))
    return needed


def sequence(order: Order, legs: Legs = _WHOLE) -> list[tuple[int, Pass]]:
    """All passes, each with its stage, in an order in which none waits.

    Args:
      order: of every stage; of the legs, if passes have several.
      legs: of the passes.

    Raises:
      ScheduleError: there is none.  The sentence names the pass that no stage runs or
        that two do, or the passes that wait for each other.
    """
    where = _where(order)
    num_chunks = 1 + max(pass_.chunk for pass_ in where)
    needs_of = functools.partial(needs, num_chunks=num_chunks, legs=legs)
    begun = [0] * len(order)
    done: dict[Pass, int] = {}
    while len(done) < len(where):
        before = len(done)
        for stage, passes in enumerate(order):
            while begun[stage] < len(passes):
                pass_ = passes[begun[stage]]
                if any(need not in done for need in needs_of(pass_)):
                    break
                done[pass_] = stage
                begun[stage] += 1
        if len(done) == before:
            waiting = {s: p[begun[s]] for s, p in enumerate(order) if begun[s] < len(p)}
            raise ScheduleError(_stuck(waiting, where, done, needs_of))
    return [(stage, pass_) for pass_, stage in done.items()]


def _where(order: Order) -> dict[Pass, int]:
    """The stage of every pass."""
    where: dict[Pass, int] = {}
    for stage, passes in enumerate(order):
        for pass_ in passes:
            if pass_ in where:
                raise ScheduleError(
                    f"{pass_} is run twice, by stages {where[pass_]} and {stage}"
                )
            where[pass_] = stage
    if not where:
        raise ScheduleError("no stage runs anything")
    return where


def _stuck(
    waiting: Mapping[int, Pass],
    where: Mapping[Pass, int],
    done: Collection[Pass],
    needs_of: Callable[[Pass], Iterable[Pass]],
) -> str:
    """Why none of the stages can continue."""
    stage = min(waiting)
    links: dict[int, tuple[Pass, int]] = {}
    while stage not in links:
        pass_ = waiting[stage]
        need = next(n for n in needs_of(pass_) if n not in done)
        if need not in where:
            return f"stage {stage}: {pass_} waits for {need}, which no stage runs"
        links[stage] = need, where[need]
        stage = where[need]
    begin, parts = stage, list[str]()
    while not parts or stage != begin:
        need, other = links[stage]
        parts.append(
            f"stage {stage} stands at {waiting[stage]}, for which stage {other} must "
            f"first run {need}"
        )
        stage = other
    return f"stages wait for each other: {'; '.join(parts)}"


class Span(NamedTuple):
    """The time of a pass."""

    stage: int
    what: Pass
    begin: float
    end: float


def simulate(
    order: Order, seconds: Callable[[Pass], float], legs: Legs = _WHOLE
) -> list[Span]:
    """The time of each pass if transfers take no time.

    Args:
      order: of every stage; of the legs, if passes have several.
      seconds: how long a pass or leg takes.
      legs: of the passes.

    Raises:
      ScheduleError: stages would wait for each other forever.
    """
    spans: dict[Pass, Span] = {}
    free = [0.0] * len(order)
    passes = sequence(order, legs)
    num_chunks = 1 + max(pass_.chunk for _, pass_ in passes)
    for stage, pass_ in passes:
        waits = [spans[need].end for need in needs(pass_, num_chunks, legs)]
        begin = max([free[stage], *waits])
        free[stage] = begin + seconds(pass_)
        spans[pass_] = Span(stage, pass_, begin, free[stage])
    return list(spans.values())


def held(passes: Sequence[Pass]) -> int:
    """Largest number of micro-batches whose activations a stage holds at a time.

    Args:
      passes: of one stage.  A micro-batch counts once per chunk that holds it.
    """
    most = now = 0
    for pass_ in passes:
        now += -1 if pass_.backward else 1
        most = max(most, now)
    return most


def busy_share(stages: int, micro_batches: int, chunks: int = 1) -> float:
    """Share of the time that equal stages can be busy; 1 minus this is the bubble.

    With fewer micro-batches than stages, and interleaving, chunks wait until the first
    micro-batch has passed all stages.  A last group that is short leaves gaps, for
    which there is no formula.
    """
    if chunks > 1 and micro_batches > stages and micro_batches % stages:
        return busy_share_in_legs(interleaved(stages, micro_batches, chunks), _WHOLE)
    steps = micro_batches * chunks
    return steps / max(steps + stages - 1, chunks * stages + micro_batches - 1)


def busy_share_in_legs(order: Order, legs: Legs) -> float:
    """`busy_share` if passes wait for other micro-batches between their legs.

    It assumes that backward passes take twice as long as forward ones, and that all
    legs of a pass take equally long.  With L legs in every pass, a stage begins
    (L - 1) M + 1 legs after the one before it.  K stages are then busy
    M L / (M L + (K - 1) ((L - 1) M + 1)) of the time, which tends to
    L / (L + (K - 1) (L - 1)).

    Args:
      order: of every stage, of whole passes.
      legs: of the passes.
    """

    def seconds(pass_: Pass) -> float:
        return (2.0 if pass_.backward else 1.0) / (legs.last(pass_).leg + 1)

    spans = simulate(legs.divide(order), seconds, legs)
    busy = sum(span.end - span.begin for span in spans)
    return busy / (len(order) * max(span.end for span in spans))


def micro_batches_for(share: float, stages: int, chunks: int = 1) -> int:
    """Smallest number of micro-batches from which on equal stages are busy enough.

    For several chunks per stage it holds for multiples of the number of stages.

    Args:
      share: of the time, above 0 and below 1.
      stages: how many.
      chunks: of each stage.
    """
    group = stages if chunks > 1 else 1
    m = 1
    while busy_share(stages, m, chunks) < share:
        m += 1 if m < group else group
    return m
