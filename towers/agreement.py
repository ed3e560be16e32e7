"""Whether every way to train takes the steps of one tower.

    subject = Subject(model, source, update, global_batch=128, num_steps=5)
    for outcome in compare(subject, cases((1, 2, 4), exchanges())):
        print(outcome.case, outcome.verdict)

One tower on the joined batch is the reference; each case is trained from the same seed
on the same examples, and after every step all its variables and optimizer slots, those
of every replica too, are held against the reference's.  Towers that exchange nothing
are held to their own property: tower k trains as one tower alone does on its rows.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers import graph, loop
from towers import placement as placement_lib
from towers.feed import Feed
from towers.optimizer import Update
from towers.reduction import REDUCTIONS
from towers.variable_update import VARIABLE_UPDATES, Exchange

v1 = tf.compat.v1

Modes = Mapping[str, Callable[..., Any]]
Values = dict[str, np.ndarray]

# Every algorithm, one that works in shards, and one that is chosen by size in bytes.
SPECS = (*REDUCTIONS, "xring#2", "pscpu:1k:xring")

_COLUMNS = "{:17}  {:37} {:>6}  {:>8}  {:>8}  {:34}  {}"
HEADING = _COLUMNS.format(
    "variable_update",
    "all_reduce_spec, packing",
    "towers",
    "ulps",
    "relative",
    "first beyond the bound",
    "verdict",
)

PER_TOWER = "by design: batch norm per tower"


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is trained.

    Attributes:
      model: a `models.Model`.
      source: where batches come from, of `towers.inputs`.
      update: optimizer, learning rate, weight decay.
      global_batch: examples per step, of all towers together.
      num_steps: of every run.
      bound: the largest difference that is none, relative to a variable's largest
        element.
      device: `cpu`, `gpu` or `auto`, as `placement.local` has it.
      options: of every train graph, but what the case decides.
    """

    model: Any
    source: Any
    update: Update
    global_batch: int
    num_steps: int = 5
    bound: float = 1e-5
    device: str = "cpu"
    options: graph.Options = graph.Options(batch_size=1)  # noqa: RUF009 - frozen


@dataclasses.dataclass(frozen=True)
class Case:
    """One way to train; `exchange` is None where there is nothing to choose."""

    variable_update: str
    num_towers: int
    exchange: Exchange | None = None

    @property
    def reduction(self) -> str:
        """The reduction and its packing, in words; "-" where there is no choice."""
        if self.exchange is None:
            return "-"
        words = [self.exchange.all_reduce_spec]
        if packs := self.exchange.gradient_repacking:
            words.append(f"{packs} pack" + ("s" if packs > 1 else ""))
        if self.exchange.small_bytes:
            words.append(f"joined to {self.exchange.small_bytes} bytes")
        return ", ".join(words)


class Difference(NamedTuple):
    """How far a variable is from the reference's after a step."""

    step: int
    variable: str  # `replica_2/name` in a replica but the first
    ulps: float  # of the variable's largest element
    relative: float  # to that element


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of a case.

    Attributes:
      case: that was run.
      largest: the largest difference over all steps and variables.
      first: the first beyond the bound, or None.
      excused: why it may be beyond the bound, or "".
    """

    case: Case
    largest: Difference
    first: Difference | None
    excused: str = ""

    @property
    def verdict(self) -> str:
        """`agrees`, `DIFFERS`, or why it may differ."""
        return self.excused or ("agrees" if self.agrees else "DIFFERS")

    @property
    def agrees(self) -> bool:
        """Whether nothing is beyond the bound."""
        return self.first is None

    @property
    def failed(self) -> bool:
        """Whether something is that should not be."""
        return not self.agrees and not self.excused


def exchanges(
    specs: Sequence[str] = SPECS,
    packs: Sequence[int] = (0, 2),
    small_bytes: Sequence[int] = (0, 1024),
) -> list[Exchange]:
    """Every spec in every packing; not two packings at a time."""
    packings = [{"gradient_repacking": number} for number in packs]
    packings += [{"small_bytes": size} for size in small_bytes]
    found = [
        Exchange(all_reduce_spec=s, **packing) for s in specs for packing in packings
    ]
    return list(dict.fromkeys(found))


def cases(
    num_towers: Sequence[int],
    choices: Sequence[Exchange],
    *,
    names: Sequence[str] = (),
    modes: Modes = VARIABLE_UPDATES,
) -> list[Case]:
    """The cases to compare.

    Args:
      num_towers: numbers of towers.
      choices: for the modes whose replicas exchange gradients.
      names: of modes; all when empty.
      modes: the table of modes.
    """
    found = []
    for name in names or modes:
        for count in num_towers:
            if modes[name].exchanges and hasattr(modes[name], "replicas"):
                own = choices if count > 1 else choices[:1]  # alone, none has a say
                found += [Case(name, count, exchange) for exchange in own]
            else:
                found.append(Case(name, count))
    return found


def compare(
    subject: Subject, wanted: Sequence[Case], *, modes: Modes = VARIABLE_UPDATES
) -> Iterator[Outcome]:
    """Trains the reference, and then case by case.

    Args:
      subject: what is trained.
      wanted: the cases.
      modes: the table that they are rows of.

    Raises:
      ValueError: the model cannot be trained so.
    """
    joined = None
    for case in wanted:
        if modes[case.variable_update].exchanges:
            joined = joined or [list(_reference(subject))]
            references = joined
        else:
            count = case.num_towers
            references = [_reference(subject, k, count) for k in range(count)]
        yield _outcome(subject, _build(subject, case, modes), case, references)


def _reference(subject: Subject, tower: int = 0, count: int = 1) -> Iterator[Values]:
    """One tower on the rows of tower `tower` of `count`: its saved variables by step.

    It goes through an epoch as fast as the `count` towers together.
    """
    rate = subject.update.learning_rate
    own = dataclasses.replace(
        subject,
        source=_Rows(subject.source, tower, count),
        update=dataclasses.replace(
            subject.update, learning_rate=lambda epochs: rate(epochs * count)
        ),
        global_batch=subject.global_batch // count,
    )
    train = _build(own, Case("parameter_server", 1), VARIABLE_UPDATES)
    return _steps(train, train.saved, subject.num_steps)


@dataclasses.dataclass(frozen=True)
class _Rows:
    """A source of which one tower gets what tower `tower` of `count` would get."""

    source: Any
    tower: int
    count: int

    @property
    def num_classes(self) -> int:
        return self.source.num_classes

    @property
    def num_examples(self) -> int:
        return self.source.num_examples

    def feed(self, groups, **options) -> Feed:
        ((host, (device,)),) = groups
        feed = self.source.feed([(host, [device] * self.count)], **options)
        return feed._replace(batches=[feed.batches[self.tower]])


def _build(subject: Subject, case: Case, modes: Modes) -> graph.TrainGraph:
    return graph.build(
        subject.model,
        subject.source,
        subject.update,
        placement=placement_lib.local(case.num_towers, kind=subject.device),
        options=dataclasses.replace(
            subject.options,
            batch_size=subject.global_batch // case.num_towers,
            variable_update=case.variable_update,
            exchange=case.exchange or Exchange(),
            limit=None,
        ),
        modes=modes,
    )


def _steps(
    train: graph.TrainGraph, variables: Mapping[Any, tf.Variable], num_steps: int
) -> Iterator[dict[Any, np.ndarray]]:
    """The variables' values before the first step and after each."""
    config = placement_lib.session_config(train.placement)
    # Several of these run in turns, so none may become the default session.
    session = v1.Session(graph=train.graph, config=config)
    try:
        with train.graph.as_default():
            loop.start(train, session, lambda session: None)
        step = session.make_callable(train.step)
        read = session.make_callable(dict(variables))
        yield read()
        for _ in range(num_steps):
            step()
            yield read()
    finally:
        session.close()


def _outcome(
    subject: Subject,
    train: graph.TrainGraph,
    case: Case,
    references: Sequence[Iterable[Values]],
) -> Outcome:
    """Trains a case, with one reference for all towers or one for each."""
    largest, first = Difference(0, "", 0.0, 0.0), None
    replicas = getattr(train.mode, "replicas", dict)()
    variables = {(k, n): v for n, vs in replicas.items() for k, v in enumerate(vs)}
    if train.mode.exchanges:
        variables = {(0, name): v for name, v in train.saved.items()} | variables
    found = _steps(train, variables, subject.num_steps)
    for step, (values, *expected) in enumerate(zip(found, *references)):
        if train.mode.exchanges:  # what it does not save is missing
            values = {(0, name): None for name in expected[0]} | values
        for (tower, name), value in values.items():
            reference = expected[tower % len(expected)].get(name)
            label = f"replica_{tower}/{name}" if tower else name
            difference = Difference(step, label, *distance(reference, value))
            largest = max(largest, difference, key=lambda d: d.relative)
            if first is None and difference.relative > subject.bound:
                first = difference
    excused = ""
    if train.template.statistics and train.mode.exchanges and case.num_towers > 1:
        excused = PER_TOWER if first and first.step else ""
    return Outcome(case, largest, first, excused)


def distance(
    reference: np.ndarray | None, found: np.ndarray | None
) -> tuple[float, float]:
    """The largest difference of two arrays.

    Returns:
      It in ulps of the reference's largest element, and relative to that element;
      infinite where one is missing or not finite.
    """
    if reference is None or found is None or reference.shape != found.shape:
        return np.inf, np.inf
    if not reference.size:
        return 0.0, 0.0
    if not (np.all(np.isfinite(reference)) and np.all(np.isfinite(found))):
        return np.inf, np.inf
    gap = np.max(np.abs(reference.astype("f8") - found))
    scale = np.max(np.abs(reference)) or reference.dtype.type(1)
    ulp = np.spacing(scale) if reference.dtype.kind == "f" else 1
    return float(gap / ulp), float(gap / scale)


def row(outcome: Outcome) -> str:
    """A line of the table under `HEADING`."""
    case, first = outcome.case, outcome.first
    return _COLUMNS.format(
        case.variable_update,
        case.reduction,
        case.num_towers,
        f"{outcome.largest.ulps:.3g}",
        f"{outcome.largest.relative:.1e}",
        f"step {first.step}, {first.variable}" if first else "-",
        outcome.verdict,
    )


def summary(outcomes: Sequence[Outcome], bound: float) -> str:
    """The outcomes in one sentence."""
    held = [outcome for outcome in outcomes if not outcome.excused]
    agreeing = sum(outcome.agrees for outcome in held)
    words = [f"{agreeing} of {len(held)} agree with one tower to {bound:.0e}"]
    if excused := len(outcomes) - len(held):
        words.append(f"{excused} may differ {PER_TOWER}")
    if failed := [outcome for outcome in held if outcome.failed]:
        case, first = failed[0].case, failed[0].first
        words.append(
            f"{case.variable_update} ({case.reduction}) with {case.num_towers} towers "
            f"differs from step {first.step} on, first in {first.variable}"
        )
    return "; ".join(words)
