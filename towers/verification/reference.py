"""What is trained, and one tower on the joined batch, which it is held against.

The reference takes its batch in the pieces that a case normalises by themselves, and
otherwise at once; for the modes that do not take the steps of one tower it is what
their property says.
"""

import collections
import dataclasses
import functools
import itertools
import threading
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers import graph
from towers.compute.joining import BATCH_NORM
from towers.data.feed import Feed
from towers.gradients.exchange import Exchange
from towers.layout import parts
from towers.layout import placement as placement_lib
from towers.session import loop
from towers.updates.optimizer import Update
from towers.updates.variable_update import DEFAULT, VARIABLE_UPDATES
from towers.verification.verdict import Case, distance
from towers.verification.ways import Modes

v1 = tf.compat.v1

# A model may keep tensors of its graph from one block to another.
_BUILDING = threading.Lock()

Values = dict[str, np.ndarray]

# How many roundings a nudged start is off by: a case rounds otherwise in every sum.  As
# many are not as good as one whose effect is multiplied: they turn as many more units
# over their kinks, and no further.
_ROUNDINGS = 16

# Nudged starts, and as many where these differ by more than so many times: then it is
# units turned over that decide, and each start turns over others.  A case that is off
# by r roundings goes beyond all of n starts by chance with about r / (16 n + r).
_STARTS, _MORE_STARTS, _SPREAD = 4, 16, 4.0


@dataclasses.dataclass(frozen=True)
class Subject:
    """What is trained.

    Attributes:
      model: a `models.Model`.
      source: where batches come from, of `towers.data.inputs`.
      update: optimizer, learning rate, weight decay.
      global_batch: examples per step, of all towers together.
      num_steps: of every run.
      bound: the largest difference that counts as equal, relative to the largest
        element of the variable.
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


class Reference:
    """One tower that is trained.

    Args:
      train: its train graph.
      num_steps: after which its values are compared.
      updates: in each of them.

    Attributes:
      values: of its saved variables before the first step and after each.
      narrowest: dtype that it computes in somewhere, asked to or by itself.
    """

    def __init__(self, train: graph.TrainGraph, num_steps: int, updates: int = 1):
        self._train = functools.partial(steps, train, train.saved, num_steps, updates)
        self.values = list(self._train())
        self.narrowest = _narrowest(train.template.graph_def)

    @functools.cached_property
    def repeats(self) -> bool:
        """Whether it takes the same steps when it is trained once more."""
        return all(
            np.array_equal(wanted[name], values[name], equal_nan=True)
            for wanted, values in zip(self.values, self._train())
            for name in wanted
        )

    @functools.cached_property
    def grown(self) -> list[float]:
        """How far 16 roundings of the start have taken it after each step, relative.

        Nowhere if it does not repeat: what moves it then is no rounding.
        """
        if not self.repeats:
            return [0.0] * len(self.values)
        found = [self._moved(seed) for seed in range(_STARTS)]
        if any(max(step) > _SPREAD * min(step) for step in zip(*found)):
            found += [self._moved(seed) for seed in range(_STARTS, _MORE_STARTS)]
        return list(itertools.accumulate(map(max, zip(*found)), max))

    def _moved(self, seed: int) -> list[float]:
        """How far a nudged start has taken it after each step, relative."""
        return [
            max(distance(wanted[name], values[name])[1] for name in wanted)
            for wanted, values in zip(self.values, self._train(nudge=seed))
        ]


def _narrowest(graph_def: v1.GraphDef) -> tf.DType:
    """The dtype with the fewest bits of precision that operations work in."""
    functions = (function.node_def for function in graph_def.library.function)
    found = {
        attr.type
        for node in itertools.chain(graph_def.node, *functions)
        for attr in node.attr.values()
    }
    narrow = (tf.bfloat16, tf.float16)
    return next((d for d in narrow if d.as_datatype_enum in found), tf.float32)


class References:
    """What the cases are held against.

    Attributes:
      subject: what is trained.
    """

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._joined: dict[Pieces, Reference] = {}
        # Those of a property, of which only the latest mode's and number's are kept:
        # they are many, and large where the model is.
        self._latest: tuple[str, int] | None = None
        self._of_property: dict[Pieces, list[Reference]] = {}

    def of(self, case: Case, train: graph.TrainGraph) -> list[Reference]:
        """One for all towers, or one for each if they exchange nothing."""
        mode, pieces = train.mode, _pieces_of(self.subject, case, train)
        if mode.exact:
            if pieces not in self._joined:
                self._joined[pieces] = _trained(self.subject, pieces)
            return [self._joined[pieces]]
        if self._latest != (case.variable_update, case.num_towers):
            self._latest = case.variable_update, case.num_towers
            self._of_property.clear()
        if pieces not in self._of_property:
            run = _OF_PROPERTY[mode.joined, mode.together]
            self._of_property[pieces] = run(self.subject, case, pieces)
        return self._of_property[pieces]


class Pieces(NamedTuple):
    """What the reference takes its batch in; by default, it is one piece.

    Attributes:
      num_towers: that get a piece each.
      rounds: in which each tower takes its own.
      batch_norm: a row of `joining.BATCH_NORM`.
    """

    num_towers: int = 1
    rounds: int = 1
    batch_norm: str = "micro_batch"


def _pieces_of(subject: Subject, case: Case, train: graph.TrainGraph) -> Pieces:
    """Of the reference of a case, or of one of its towers if they exchange nothing."""
    if not train.template.statistics:
        return Pieces()
    count, number = case.num_towers, case.pieces
    reach = BATCH_NORM[subject.options.batch_norm]
    number = 1 if reach.micro_batches else number
    if reach.towers and count > 1 and number > 1:
        # Each round has rows of every tower, as no tower alone can have them.
        return Pieces(count, number, subject.options.batch_norm)
    if train.mode.joined and train.mode.together and not reach.towers:
        number *= count
    if train.mode.exact and (count, case.pipeline) == (1, None):
        return Pieces(num_towers=number)
    return Pieces(rounds=number)


def _trained(
    subject: Subject, pieces: Pieces, mode: str = DEFAULT, updates: int = 1
) -> Reference:
    options = dataclasses.replace(subject.options, batch_norm=pieces.batch_norm)
    subject = dataclasses.replace(subject, options=options)
    case = Case(mode, pieces.num_towers, rounds=pieces.rounds)
    train = build(subject, case, VARIABLE_UPDATES)
    return Reference(train, subject.num_steps, updates)


def _on_its_rows(subject: Subject, case: Case, pieces: Pieces) -> list[Reference]:
    """For each tower, one tower on the rows of that tower.

    It goes through an epoch as fast as all towers together.
    """
    rate, count = subject.update.learning_rate, case.num_towers
    update = dataclasses.replace(
        subject.update, learning_rate=lambda epochs: rate(epochs * count)
    )
    return [
        _trained(
            dataclasses.replace(
                subject,
                source=_Rows(subject.source, tower, count),
                update=update,
                global_batch=subject.global_batch // count,
            ),
            pieces,
        )
        for tower in range(count)
    ]


def _as_late(subject: Subject, case: Case, pieces: Pieces) -> list[Reference]:
    return [_trained(subject, pieces, case.variable_update)]


def _one_by_one(subject: Subject, case: Case, pieces: Pieces) -> list[Reference]:
    """One tower that takes a step for each update of the towers."""
    size = subject.global_batch // case.num_towers
    own = dataclasses.replace(subject, global_batch=size)
    return [_trained(own, pieces, updates=case.num_towers)]


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

    @property
    def vocabulary(self) -> tuple[bytes, ...]:
        return self.source.vocabulary

    def feed(self, groups, **options) -> Feed:
        ((host, (device,)),) = groups
        feed = self.source.feed([(host, [device] * self.count)], **options)
        return feed._replace(batches=[feed.batches[self.tower]])


def build(subject: Subject, case: Case, modes: Modes) -> graph.TrainGraph:
    """The train graph of a case; threads that want one get it one after the other.

    Raises:
      ValueError: the model cannot be trained so.
    """
    exchange = case.exchange or _exchange(modes[case.variable_update])
    if case.transfer:
        exchange = dataclasses.replace(exchange, transfer=case.transfer)
    with _BUILDING:
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


def steps(
    train: graph.TrainGraph,
    variables: Mapping[Any, Any],
    num_steps: int,
    updates: int = 1,
    *,
    nudge: int | None = None,
) -> Iterator[dict[Any, np.ndarray]]:
    """Trains; the variables' values before the first step and after each.

    Args:
      train: the graph.
      variables: key -> variable, or its parts, whose values are joined.
      num_steps: how many.
      updates: in each of them, one after the other.
      nudge: a seed, for a start that is off by roundings; None for the model's own.
    """
    config = placement_lib.session_config(train.placement)
    # Several of these run in turns, so none may become the default session.
    session = v1.Session(graph=train.graph, config=config)
    try:
        with train.graph.as_default():
            loop.start(train, session, lambda session: _nudge(train, session, nudge))
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


def _nudge(train: graph.TrainGraph, session: v1.Session, seed: int | None) -> None:
    """Moves each element of the whole trained variables by roundings, up or down."""
    if seed is None:
        return
    draw = np.random.default_rng(seed)
    for name in train.template.trainable:
        variable = train.mode.variables[name]
        value = session.run(variable)
        epsilon = _ROUNDINGS * np.finfo(value.dtype).eps
        epsilon *= draw.choice([-1, 1], value.shape)
        moved = (value * (1 + epsilon)).astype(value.dtype)
        session.run(variable.initializer, {variable.initializer.inputs[1]: moved})
