"""Whether every way to train takes the steps of one tower.

    subject = Subject(model, source, update, global_batch=128, num_steps=5)
    for outcome in compare(subject, ways.cases((1, 2, 4), ways.exchanges())):
        print(outcome.case, outcome.verdict)

One tower on the joined batch is the reference; each case is trained from the same seed
on the same examples, and after every step all its variables and optimizer slots, those
of every replica too, are held against the reference's.  The modes that do not take the
steps of one tower are held to properties of their own:

  * towers that exchange nothing: tower k trains as one tower alone does on its rows;
  * modes that are a step late: N towers are one tower that is as late;
  * asynchronous towers, let in one at a time: N updates are N steps of one tower on
    batches of their size.

Batch norm that normalises each tower's batch, round or micro-batch by itself makes a
step depend on these pieces, and on nothing else: the reference then takes its batch in
the same pieces, as rounds or, where rounds are what is compared, as towers.  Where it
takes several of these as one, the reference has them in one piece.
"""

import collections
import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers import graph
from towers.compute.joining import BATCH_NORM
from towers.data.feed import Feed
from towers.gradients.exchange import Exchange
from towers.layout import parts
from towers.layout import placement as placement_lib
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.session import loop
from towers.updates.optimizer import Update
from towers.updates.variable_update import DEFAULT, VARIABLE_UPDATES
from towers.verification.verdict import Case, Difference, Outcome, distance
from towers.verification.ways import Modes

v1 = tf.compat.v1

Values = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is trained.

    Attributes:
      model: a `models.Model`.
      source: where batches come from, of `towers.data.inputs`.
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


def compare(
    subject: Subject, wanted: Sequence[Case], *, modes: Modes = VARIABLE_UPDATES
) -> Iterator[Outcome]:
    """Trains the reference, and then case by case.

    Args:
      subject: what is trained.
      wanted: the cases; those of one mode and number of towers, one after the other,
        share what they are held against.
      modes: the table that they are rows of.

    Raises:
      ValueError: the model cannot be trained so.
    """
    references = _References(subject)
    for case in wanted:
        train = _build(subject, case, modes)
        expected = references.of(case, train)
        # Rounding moves a unit over its kink now and then: from there on the steps
        # differ by more than it.
        narrow = case.transfer or subject.options.dtype != tf.float32
        own = dataclasses.replace(subject, num_steps=1) if narrow else subject
        yield _outcome(own, train, case, expected)


class _References:
    """What the cases are held against, as lists of values after each step.

    Attributes:
      subject: what is trained.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._joined: dict[Alone, list[Values]] = {}
        # Those of a property, of which only the latest mode's and number's are kept:
        # they are many, and large where the model is.
        self._latest: tuple[str, int] | None = None
        self._of_property: dict[Alone, list[list[Values]]] = {}

    def of(self, case: Case, train: graph.TrainGraph) -> list[list[Values]]:
        """One for all towers, or one for each if they exchange nothing."""
        mode, alone = train.mode, _alone(self.subject, case, train)
        if mode.exact:
            if alone not in self._joined:
                self._joined[alone] = list(_run_alone(self.subject, alone))
            return [self._joined[alone]]
        if self._latest != (case.variable_update, case.num_towers):
            self._latest = case.variable_update, case.num_towers
            self._of_property.clear()
        if alone not in self._of_property:
            run = _OF_PROPERTY[mode.joined, mode.together]
            found = run(self.subject, case, alone)
            self._of_property[alone] = [list(values) for values in found]
        return self._of_property[alone]


class Alone(NamedTuple):
    """How the reference takes its batch; the whole of it at once, if it can."""

    num_towers: int = 1
    rounds: int = 1
    batch_norm: str = "micro_batch"


def _alone(subject: Subject, case: Case, train: graph.TrainGraph) -> Alone:
    """The reference of a case, or of one of its towers if they exchange nothing."""
    if not train.template.statistics:
        return Alone()
    count, pieces = case.num_towers, case.pieces
    reach = BATCH_NORM[subject.options.batch_norm]
    pieces = 1 if reach.pieces else pieces
    if reach.towers and count > 1 and pieces > 1:
        # Each round has rows of every tower, as no tower alone can have them.
        return Alone(count, pieces, subject.options.batch_norm)
    if train.mode.joined and train.mode.together and not reach.towers:
        pieces *= count
    if train.mode.exact and (count, case.pipeline) == (1, None):
        return Alone(num_towers=pieces)
    return Alone(rounds=pieces)


def _run_alone(
    subject: Subject, alone: Alone, mode: str = DEFAULT, updates: int = 1
) -> Iterator[Values]:
    """The reference's saved variables before the first step and after each."""
    options = dataclasses.replace(subject.options, batch_norm=alone.batch_norm)
    subject = dataclasses.replace(subject, options=options)
    case = Case(mode, alone.num_towers, rounds=alone.rounds)
    train = _build(subject, case, VARIABLE_UPDATES)
    return _steps(train, train.saved, subject.num_steps, updates)


def _on_its_rows(subject: Subject, case: Case, alone: Alone) -> list[Iterator[Values]]:
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
            ),
            alone,
        )
        for tower in range(count)
    ]


def _as_late(subject: Subject, case: Case, alone: Alone) -> list[Iterator[Values]]:
    return [_run_alone(subject, alone, case.variable_update)]


def _one_by_one(subject: Subject, case: Case, alone: Alone) -> list[Iterator[Values]]:
    """One tower that takes a step for each update of the towers."""
    size = subject.global_batch // case.num_towers
    own = dataclasses.replace(subject, global_batch=size)
    return [_run_alone(own, alone, updates=case.num_towers)]


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


def check(
    subject: Subject, *, shards: Shards | None = None, pipeline: Pipeline | None = None
) -> None:
    """Tries to spread a part of the model over devices, or to cut it.

    Raises:
      ValueError: the model is not made for that; the sentence says what it lacks.
    """
    case = Case(DEFAULT, 1, shards=shards, pipeline=pipeline)
    _build(subject, case, VARIABLE_UPDATES)


def _build(subject: Subject, case: Case, modes: Modes) -> graph.TrainGraph:
    exchange = case.exchange or _exchange(modes[case.variable_update])
    if case.transfer:
        exchange = dataclasses.replace(exchange, transfer=case.transfer)
    return graph.build(
        subject.model,
        subject.source,
        subject.update,
        placement=placement_lib.local(
            case.num_towers * case.devices,
            kind=subject.device,
            num_stages=case.devices,
        ),
        options=dataclasses.replace(
            subject.options,
            batch_size=subject.global_batch // case.num_towers // case.rounds,
            accumulate_steps=case.rounds,
            variable_update=case.variable_update,
            exchange=exchange,
            pipeline=case.pipeline,
            shards=case.shards,
            limit=None,
        ),
        modes=modes,
    )


def _exchange(mode: type) -> Exchange:
    """Asynchronous towers are let in one at a time."""
    return Exchange() if mode.together else Exchange(max_staleness=0)


def _steps(
    train: graph.TrainGraph,
    variables: Mapping[Any, Any],
    num_steps: int,
    updates: int = 1,
) -> Iterator[dict[Any, np.ndarray]]:
    """The variables' values before the first step and after each, of some updates.

    Those of parts are joined.
    """
    config = placement_lib.session_config(train.placement)
    # Several of these run in turns, so none may become the default session.
    session = v1.Session(graph=train.graph, config=config)
    try:
        with train.graph.as_default():
            loop.start(train, session, lambda session: None)
        values_of = session.make_callable(dict(variables))

        def read():
            return {
                key: np.concatenate(value, variables[key].axis)
                if isinstance(variables[key], parts.Parts)
                else value
                for key, value in values_of().items()
            }

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
    replicas = parts.by_tower(train.mode.replicas(), train.mode.wholes)
    variables = {(k, n): v for k, own in enumerate(replicas) for n, v in own.items()}
    shared = len(references) == 1
    if shared:
        variables = {(0, name): v for name, v in train.saved.items()} | variables
    bound = case.bound(subject.bound, subject.options.dtype)
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
            if first is None and difference.relative > bound:
                first = difference
    return Outcome(case, largest, first, bound if bound != subject.bound else None)
