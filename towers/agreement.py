"""Whether every way to train takes the steps of one tower.

    subject = Subject(model, source, update, global_batch=128, num_steps=5)
    for outcome in compare(subject, cases((1, 2, 4), exchanges())):
        print(outcome.case, outcome.verdict)

One tower on the joined batch is the reference; each case is trained from the same seed
on the same examples, and after every step all its variables and optimizer slots, those
of every replica too, are held against the reference's.  The modes that do not take the
steps of one tower are held to properties of their own:

  * towers that exchange nothing: tower k trains as one tower alone does on its rows;
  * modes that are a step late: N towers are one tower that is as late;
  * asynchronous towers, let in one at a time: N updates are N steps of one tower on
    batches of their size.
"""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from towers import graph, loop
from towers import placement as placement_lib
from towers.exchange import Exchange
from towers.feed import Feed
from towers.optimizer import Update
from towers.reduction import usable
from towers.variable_update import DEFAULT, VARIABLE_UPDATES
from towers.verdict import PER_TOWER, Case, Difference, Outcome, distance

v1 = tf.compat.v1

Modes = Mapping[str, Callable[..., Any]]
Values = dict[str, np.ndarray]

# Every algorithm that any device has, one that works in shards, and one that is chosen
# by size in bytes.
SPECS = (*usable("cpu"), "xring#2", "pscpu:1k:xring")


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
    rounds: Sequence[int] = (1,),
    names: Sequence[str] = (),
    modes: Modes = VARIABLE_UPDATES,
) -> list[Case]:
    """The cases to compare: every choice, and every reduction once more in several
    rounds and in the modes that do not take the steps of one tower.

    Args:
      num_towers: numbers of towers.
      choices: for the modes whose replicas exchange gradients.
      rounds: that each tower takes its batch in.
      names: of modes; all when empty.
      modes: the table of modes.
    """
    plain = [e for e in choices if not e.gradient_repacking and not e.small_bytes]
    found = []
    for name in names or modes:
        for count in num_towers:
            for number in rounds:
                own: Sequence[Exchange | None] = [None]
                if "all_reduce_spec" in modes[name].reads:
                    all_of_them = number == 1 and modes[name].exact
                    own = choices if all_of_them else plain or choices
                    own = own if count > 1 else own[:1]  # alone, none has a say
                found += [Case(name, count, exchange, number) for exchange in own]
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
        mode = modes[case.variable_update]
        if mode.exact:
            references = joined = joined or [list(_run_alone(subject))]
        else:
            references = _OF_PROPERTY[mode.joined, mode.together](subject, case)
        yield _outcome(subject, _build(subject, case, modes), case, references)


def _run_alone(
    subject: Subject, mode: str = DEFAULT, updates: int = 1
) -> Iterator[Values]:
    """One tower's saved variables before the first step and after each."""
    options = dataclasses.replace(subject.options, batch_norm="tower")
    subject = dataclasses.replace(subject, options=options)
    train = _build(subject, Case(mode, 1), VARIABLE_UPDATES)
    return _steps(train, train.saved, subject.num_steps, updates)


def _on_its_rows(subject: Subject, case: Case) -> list[Iterator[Values]]:
    """For each tower, one tower on the rows of that tower.

    It goes through an epoch as fast as all towers together.
    """
    rate, count = subject.update.learning_rate, case.num_towers
    update = dataclasses.replace(
        subject.update, learning_rate=lambda epochs: rate(epochs * count)
    )
    return [
        _run_alone(
            dataclasses.replace(
                subject,
                source=_Rows(subject.source, tower, count),
                update=update,
                global_batch=subject.global_batch // count,
            )
        )
        for tower in range(count)
    ]


def _as_late(subject: Subject, case: Case) -> list[Iterator[Values]]:
    return [_run_alone(subject, case.variable_update)]


def _one_by_one(subject: Subject, case: Case) -> list[Iterator[Values]]:
    """One tower that takes a step for each update of the towers."""
    size = subject.global_batch // case.num_towers
    own = dataclasses.replace(subject, global_batch=size)
    return [_run_alone(own, updates=case.num_towers)]


# (joined, together) of a mode that is not exact -> what its towers are held to.
_OF_PROPERTY = {
    (False, True): _on_its_rows,
    (True, True): _as_late,
    (False, False): _one_by_one,
}


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
            batch_size=subject.global_batch // case.num_towers // case.rounds,
            accumulate_steps=case.rounds,
            variable_update=case.variable_update,
            exchange=case.exchange or _exchange(modes[case.variable_update]),
            limit=None,
        ),
        modes=modes,
    )


def _exchange(mode: type) -> Exchange:
    """Asynchronous towers are let in one at a time."""
    return Exchange() if mode.together else Exchange(max_staleness=0)


def _steps(
    train: graph.TrainGraph,
    variables: Mapping[Any, tf.Variable],
    num_steps: int,
    updates: int = 1,
) -> Iterator[dict[Any, np.ndarray]]:
    """The variables' values before the first step and after each, of some updates."""
    config = placement_lib.session_config(train.placement)
    # Several of these run in turns, so none may become the default session.
    session = v1.Session(graph=train.graph, config=config)
    try:
        with train.graph.as_default():
            loop.start(train, session, lambda session: None)
        read = session.make_callable(dict(variables))
        run = train.loop.runner(session) if train.loop else None
        one = session.make_callable(train.step)
        yield read()
        for _ in range(num_steps):
            if run:
                collections.deque(run(0, updates), maxlen=0)
            else:
                for _ in range(updates):
                    one()
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
    replicas = train.mode.replicas().items()
    variables = {(k, n): v for n, vs in replicas for k, v in enumerate(vs)}
    shared = len(references) == 1
    if shared:
        variables = {(0, name): v for name, v in train.saved.items()} | variables
    updates = 1 if train.mode.together else case.num_towers
    found = _steps(train, variables, subject.num_steps, updates)
    for step, (values, *expected) in enumerate(zip(found, *references)):
        if shared:  # what it does not save is missing
            values = {(0, name): None for name in expected[0]} | values
        for (tower, name), value in values.items():
            reference = expected[tower % len(expected)].get(name)
            label = f"replica_{tower}/{name}" if tower else name
            difference = Difference(step, label, *distance(reference, value))
            largest = max(largest, difference, key=lambda d: d.relative)
            if first is None and difference.relative > subject.bound:
                first = difference
    excused = ""
    own_batch = case.rounds > 1 or (
        train.mode.joined
        and case.num_towers > 1
        and subject.options.batch_norm == "tower"
    )
    if train.template.statistics and own_batch:
        excused = PER_TOWER if first and first.step else ""
    return Outcome(case, largest, first, excused)
