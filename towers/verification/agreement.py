"""Checks that every mode, reduction and layout takes the steps of one tower.

    subject = TrainingSubject(model, source, update, global_batch=128, num_steps=5)
    for outcome in compare(subject, cases.cases((1, 2, 4), cases.exchanges())):
        print(outcome.case, outcome.verdict)

One tower on the joined batch is the reference.  Each case is trained from the same seed
on the same examples.  After every step all its variables and optimizer slots, also
those of every replica, are compared with the reference.  Modes that do not take the
steps of one tower are compared with another reference:

  * towers that exchange nothing: tower k trains like one tower on its rows;
  * modes that are a step late: N towers train like one tower that is as late;
  * asynchronous towers, one at a time: N updates are N steps of one tower on batches of
    their size.

Each case also trains a model whose gradients are 1, which shows a sum instead of a mean
without any rounding (`session.mean_check`).

If batch norm normalizes each tower's batch, round or micro-batch by itself, a step
depends on how the batch is divided.  The reference then computes its batch in the same
parts, as rounds or, if rounds are compared, as towers.

Some models amplify rounding: a ReLU whose input is near 0 changes its derivative, a
small gradient is divided by its own norm.  So a difference beyond the bound is compared
with the amplification in the reference, which is trained again from initial values that
differ by roundings.  A variable whose gradient is only rounding, such as a bias before
batch norm, does not raise the bound of others.  The bound is not raised if the model
does not repeat its own steps (it reads a clock or draws without a seed), or if replicas
that exchange gradients are not equal, bit for bit.
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

# A case may change a variable this many times as much as the nudged starts do, because
# it changes the derivatives of other units than these, and perhaps of two at once.
_TIMES_GROWN = 2.0


def compare(
    subject: TrainingSubject, wanted: Iterable[Case], *, modes: Modes = VARIABLE_UPDATES
) -> Iterator[Outcome]:
    """Trains the reference, then each case.

    Args:
      subject: what is trained.
      wanted: the cases; each is taken when it is built.  Consecutive cases of one mode
        and number of towers share their reference.
      modes: the table of modes.

    Raises:
      ValueError: the model cannot be trained in this way.
    """
    references = References(subject)
    for case, train in _built(subject, wanted, modes):
        expected = references.of(case, train)
        # Rounding can change the derivative of a unit.  After that, steps differ by
        # more than rounding.
        compute = expected[0].narrowest
        narrow = case.transfer or compute != tf.float32
        compared = dataclasses.replace(subject, num_steps=1) if narrow else subject
        outcome = _outcome(compared, train, case, expected)
        yield dataclasses.replace(outcome, mean_error=_mean_error(train, modes))


def _built(
    subject: TrainingSubject, wanted: Iterable[Case], modes: Modes
) -> Iterator[tuple[Case, graph.TrainGraph]]:
    """Each case and its train graph, built while the one before it trains.

    Steps release Python's lock, which building graphs needs.
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
    """Why a case's update is not the mean of gradients; "" if it is."""
    config = placement.session_config(train.placement)
    try:
        mean_check.check(train.options, train.placement, config, Local(), modes=modes)
    except mean_check.NotTheMeanError as error:
        return error.errors[0]
    return ""


def check(
    subject: TrainingSubject,
    *,
    shards: Shards | None = None,
    pipeline: Pipeline | None = None,
) -> None:
    """Tries to shard the model, to cut it into stages, or just to build one tower.

    Raises:
      ValueError: it cannot be done with the model; the sentence says why.
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
        apart = None  # the first difference between replicas
    widened = bound if bound != subject.bound else None
    repeats = not (first or apart) or all(expected.repeats for expected in references)
    return Outcome(case, largest, apart or first, widened, grown, repeats, bool(apart))


class _Key(NamedTuple):
    """A variable of a case.

    Attributes:
      tower: of the replica; None for the variable that is saved.
      name: in a checkpoint.
    """

    tower: int | None
    name: str

    def __str__(self) -> str:
        return self.name if self.tower is None else f"replica_{self.tower}/{self.name}"


_Values = dict[_Key, np.ndarray | None]


def _variables(
    train: graph.TrainGraph, shared: bool
) -> dict[_Key, tf.Variable | parts.Parts]:
    """The variables to compare: all replicas, and the saved variables.

    Args:
      train: graph of the case.
      shared: whether one reference has all saved variables; if not, only the towers'
        replicas are compared.
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
    """The first replica that is not equal to the saved variable, bit for bit."""
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
    """The first difference that amplified rounding does not explain, or None.

    Also the bound of those that it explains, 0 if there are none.

    Args:
      beyond: (name in a checkpoint, difference).
      references: from `References.of`.
    """
    first, grown = None, 0.0
    for name, difference in beyond:
        # A difference of a variable that no reference has is not explained.
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
