"""Whether every way to train takes the steps of one tower.

    subject = Subject(model, source, update, global_batch=128, num_steps=5)
    for outcome in compare(subject, ways.cases((1, 2, 4), ways.exchanges())):
        print(outcome.case, outcome.verdict)

One tower on the joined batch is the reference.  Each case is trained from the same seed
on the same examples, and after every step all its variables and optimizer slots, those
of every replica too, are compared with the reference.  Modes that do not take the steps
of one tower are held to the property that they state:

  * towers that exchange nothing: tower k trains as one tower alone does on its rows;
  * modes that are a step late: N towers are one tower that is as late;
  * asynchronous towers, let in one at a time: N updates are N steps of one tower on
    batches of their size.

Beside the user's model, each case trains one whose gradients are 1, which tells a sum
from a mean without any rounding (`session.mean_check`).

Batch norm that normalises each tower's batch, round or micro-batch by itself makes a
step depend on these pieces, and on nothing else: the reference then takes its batch in
the same pieces, as rounds or, where rounds are what is compared, as towers.  Where it
takes several of these as one, the reference has them in one piece.

Some models amplify rounding: a ReLU at its kink flips, a small gradient is divided by
its own norm.  A difference beyond the bound is therefore compared with how the
reference amplifies rounding: it is trained again from initial values that are off by
roundings.  Where a variable's gradient is nothing but rounding, as that of a bias
before batch norm, this excuses no difference of any other variable.  A model that does
not repeat its own steps, as it reads a clock or draws without a seed, cannot be excused
so; nor can replicas that exchange gradients and are not equal, bit for bit.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from towers import graph
from towers.cluster.sessions import Local
from towers.layout import parts, placement
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.session import mean_check
from towers.variable_update.modes import DEFAULT, VARIABLE_UPDATES
from towers.verification import reference, rounding_reference
from towers.verification.cases import Modes
from towers.verification.reference import References, TrainingSubject
from towers.verification.rounding_reference import RoundingReference
from towers.verification.verdict import (
    Case,
    Difference,
    Outcome,
    distance,
    same_bits,
)

# A case may move a variable this many times as far as the nudged starts do: it makes
# other units take another derivative than these do, and may do so for two of them.
_TIMES_GROWN = 2.0


def compare(
    subject: TrainingSubject, wanted: Iterable[Case], *, modes: Modes = VARIABLE_UPDATES
) -> Iterator[Outcome]:
    """Trains the reference, then each case.

    Args:
      subject: what is trained.
      wanted: the cases, each taken when it is to be built; those of one mode and number
        of towers, one after the other, share what they are held against.
      modes: the table that they are rows of.

    Raises:
      ValueError: the model cannot be trained so.
    """
    references = References(subject)
    for case, train in _built(subject, wanted, modes):
        expected = references.of(case, train)
        # Sometimes rounding makes a unit take another derivative.  From then on the
        # steps differ by more than rounding.
        compute = expected[0].narrowest
        narrow = case.transfer or compute != tf.float32
        compared = dataclasses.replace(subject, num_steps=1) if narrow else subject
        outcome = _outcome(compared, train, case, expected)
        yield dataclasses.replace(outcome, mean_error=_mean_error(train, modes))


def _built(
    subject: TrainingSubject, wanted: Iterable[Case], modes: Modes
) -> Iterator[tuple[Case, graph.TrainGraph]]:
    """Each case and its train graph, built while the one before it trains.

    Steps release Python's lock, which the building of graphs needs.
    """
    ahead = None
    with futures.ThreadPoolExecutor(1) as builder:
        for case in wanted:
            following = case, builder.submit(reference.build, subject, case, modes)
            if ahead:
                yield ahead[0], ahead[1].result()
            ahead = following
        if ahead:
            yield ahead[0], ahead[1].result()


def _mean_error(train: graph.TrainGraph, modes: Modes) -> str:
    """Why what a case applies is not the mean of gradients; "" if it is."""
    config = placement.session_config(train.placement)
    try:
        mean_check.check(train.options, train.placement, config, Local(), modes=modes)
    except mean_check.NotTheMeanError as error:
        return str(error)
    return ""


def check(
    subject: TrainingSubject,
    *,
    shards: Shards | None = None,
    pipeline: Pipeline | None = None,
) -> None:
    """Tries to shard the model, to cut it into stages, or just to build one tower.

    Raises:
      ValueError: the model is not made for that; the sentence says what it lacks.
    """
    case = Case(DEFAULT, 1, shards=shards, pipeline=pipeline)
    reference.build(subject, case, VARIABLE_UPDATES)


def _outcome(
    subject: TrainingSubject,
    train: graph.TrainGraph,
    case: Case,
    references: Sequence[RoundingReference],
) -> Outcome:
    """Trains a case, with one reference for all towers or one for each."""
    largest, beyond, apart = Difference(0, "", 0.0, 0.0), [], None
    shared = len(references) == 1
    variables = _variables(train, shared)
    bound = case.bound(subject.bound, references[0].narrowest)
    updates = 1 if train.mode.together else case.num_towers
    history = rounding_reference.steps(train, variables, subject.num_steps, updates)
    for step, variable_values in enumerate(history):
        # What it does not save is missing.
        names = references[0].values[0] if shared else ()
        values: _Values = {_Key(None, name): None for name in names}
        values |= variable_values
        for key, value in values.items():
            expected = references[(key.tower or 0) % len(references)]
            difference = Difference(
                step, str(key), *expected.distance(key.name, step, value)
            )
            largest = max(largest, difference, key=lambda d: d.relative)
            if difference.relative > bound:
                beyond.append((key.name, difference))
        if train.mode.joined:
            apart = apart or _apart(step, values)
    first, grown = _unexplained(beyond, references)
    if apart and first and first.step <= apart.step:
        apart = None  # a larger difference that is known by then
    widened = bound if bound != subject.bound else None
    repeats = not (first or apart) or all(expected.repeats for expected in references)
    return Outcome(case, largest, apart or first, widened, grown, repeats, bool(apart))


class _Key(NamedTuple):
    """A variable of a case.

    Attributes:
      tower: whose replica it is; None if it is what is saved, a tower's or not.
      name: that it is saved by.
    """

    tower: int | None
    name: str

    def __str__(self) -> str:
        return self.name if self.tower is None else f"replica_{self.tower}/{self.name}"


_Values = dict[_Key, np.ndarray | None]


def _variables(
    train: graph.TrainGraph, shared: bool
) -> dict[_Key, tf.Variable | parts.Parts]:
    """The variables to compare: all replicas, and what is saved.

    Args:
      train: the case's.
      shared: whether one reference has all that is saved; if not, only what the
        towers have of their own is compared.
    """
    replicas = parts.by_tower(train.mode.replicas, train.mode.wholes)
    compared = {
        _Key(k, name): value
        for k, held in enumerate(replicas)
        for name, value in held.items()
    }
    saved = {v.ref() for held in train.saved.values() for v in parts.each(held)}
    compared = {
        key._replace(tower=None) if parts.each(v)[0].ref() in saved else key: v
        for key, v in compared.items()
    }
    if not shared:
        return compared
    return {_Key(None, name): value for name, value in train.saved.items()} | compared


def _apart(step: int, values: "_Values") -> Difference | None:
    """The first replica that is not equal to what is saved, bit for bit."""
    for key, value in values.items():
        saved = values[key._replace(tower=None)]
        if saved is None or value is None:  # which is a difference of another kind
            continue
        if not same_bits(saved, value):
            return Difference(step, str(key), *distance(saved, value))
    return None


def _unexplained(
    beyond: Sequence[tuple[str, Difference]], references: Sequence[RoundingReference]
) -> tuple[Difference | None, float]:
    """The first difference that amplified rounding does not explain, or None; and the
    bound of those that it explains, 0 if there are none.

    Args:
      beyond: (name that it is saved by, difference).
      references: as `References.of` has them.
    """
    first, grown = None, 0.0
    for name, difference in beyond:
        # Of what no reference has, no difference is explained.
        growths = [
            expected.grown[name][difference.step]
            for expected in references
            if name in expected.grown
        ]
        admitted = _TIMES_GROWN * max(growths, default=0.0)
        if difference.relative <= admitted < math.inf:
            grown = max(grown, admitted)
        else:
            first = first or difference
    return first, grown
