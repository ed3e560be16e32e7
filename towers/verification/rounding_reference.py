"""The reference of a comparison: one tower, and how much rounding changes its steps.

Two correct ways to train differ by rounding.  Mostly that difference stays small.  But
where a ReLU's input is near 0, or two inputs of a max pooling are nearly equal, it can
change which derivative is taken, and the variables then differ by much more.  How much
depends on the model.  So it is measured: the reference is trained again from initial
values that are changed at random by a few roundings (a nudged start).
"""

import collections
import functools
import itertools
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from towers import graph
from towers.compute.tower import Template
from towers.layout import parts
from towers.layout import placement as placement_lib
from towers.session import loop
from towers.verification.verdict import distance, same_bits

v1 = tf.compat.v1

# Roundings by which a nudged start changes each element.  A case rounds differently in
# every sum, so it is off by many roundings.  One rounding whose effect is multiplied by
# 16 would not do: 16 roundings make more units take another derivative.
_ROUNDINGS = 16

# The number of nudged starts.  If their results differ by more than a factor _SPREAD,
# there are _MORE_STARTS: then the result depends on which units take another
# derivative, and each start changes that for other units.  A case that is off by r
# roundings exceeds the largest of n starts by chance with probability r / (16 n + r).
_STARTS, _MORE_STARTS, _SPREAD = 4, 16, 4.0

# The largest difference of two runs after an update, in ulps, by rounding alone: each
# run rounds by half an ulp when it adds the update, and by another half where weight
# decay is subtracted separately.
_ROUNDED = 2

# A variable that every nudged start changes by more than this, relative to its size or
# to how far it has moved, consists of rounding errors.
_NOISE = 0.1

Key = TypeVar("Key", bound=Hashable)


class RoundingReference:
    """Trains one tower, the reference of a case.

    Args:
      train: its train graph.
      num_steps: how many steps are compared.
      updates: how many updates a step has.

    Attributes:
      values: of its saved variables before the first step and after each.
      narrowest: the dtype with the lowest precision that it computes in anywhere.
    """

    def __init__(self, train: graph.TrainGraph, num_steps: int, updates: int = 1):
        self._updates = updates
        self._ways: dict[tuple[str, int], float] = {}
        self._train = functools.partial(steps, train, train.saved, num_steps, updates)
        self.values = list(self._train())
        assert isinstance(train.template, Template)  # one tower, in one piece
        self.narrowest = _narrowest(train.template.graph_def)

    @functools.cached_property
    def repeats(self) -> bool:
        """Whether a second training gives the same values, bit for bit."""
        return all(
            same_bits(wanted[name], values[name])
            for wanted, values in zip(self.values, self._train())
            for name in wanted
        )

    @functools.cached_property
    def grown(self) -> dict[str, list[float]]:
        """Variable -> how far a nudged start has moved it after each step.

        The numbers are relative, as in `distance`, and the largest over the starts.
        All variables get the number of the one that moves farthest, because each start
        moves others.  Only a variable that consists of rounding errors has a number of
        its own.  All numbers are 0 if the training does not repeat itself: then
        something other than rounding moves the variables.
        """
        names = list(self.values[0])
        if not self.repeats:
            return {name: [0.0] * len(self.values) for name in names}
        distances = np.array([self._moved(seed) for seed in range(_STARTS)])
        farthest = np.where(_is_noise(distances), 0.0, distances).max(1)
        if (farthest.max(0) > _SPREAD * farthest.min(0)).any():
            more = [self._moved(seed) for seed in range(_STARTS, _MORE_STARTS)]
            distances = np.concatenate([distances, more])
        noise, highest = _is_noise(distances), distances.max(0)
        common = np.where(noise, 0.0, highest).max(0)
        grown = np.maximum(np.where(noise, highest, 0.0), common)
        return dict(zip(names, np.maximum.accumulate(grown, 1).tolist()))

    def distance(
        self,
        name: str,
        step: int,
        value: np.ndarray | None,
        nudge: np.ndarray | None = None,
    ) -> tuple[float, float]:
        """The difference of a variable's value from the reference's after a step.

        Args:
          name: of the variable in a checkpoint.
          step: how many steps have been taken.
          value: the value; None if it is missing.
          nudge: the difference of the initial values; None if they are equal.

        Returns:
          (ulps, relative) as from `verdict.distance`.  `relative` is relative to the
          largest change of an element, if that gives a larger number.  So a wrong mean
          is also seen if gradients change a variable by little of its size.  The
          rounding of each update is subtracted first.
        """
        expected = self.values[step].get(name)
        ulps, relative = distance(expected, value)
        if not 0.0 < ulps < np.inf or not (way := self._way(name, step)):
            return ulps, relative
        apart = ulps
        if nudge is not None and value is not None:
            apart = distance(expected, value - nudge)[0]
        rounded = _ROUNDED * step * self._updates
        return ulps, max(relative, (apart - rounded) / way)

    def _way(self, name: str, step: int) -> float:
        """The largest change of an element, in ulps of the largest element.

        0 for counters.
        """
        if (name, step) not in self._ways:
            start, end = self.values[0][name], self.values[step][name]
            floats = end.dtype.kind == "f"
            self._ways[name, step] = distance(end, start)[0] if floats else 0.0
        return self._ways[name, step]

    def _moved(self, seed: int) -> list[list[float]]:
        """[variables][steps]: how far a nudged start has moved each."""
        first, *later = self._train(nudge=seed)
        nudges = {n: first[n].astype("f8") - base for n, base in self.values[0].items()}
        return [
            [
                self.distance(name, step, values[name], nudge)[1]
                for step, values in enumerate([first, *later])
            ]
            for name, nudge in nudges.items()
        ]


def _is_noise(distances: np.ndarray) -> np.ndarray:
    """Which variables consist of rounding errors, after each step: bool [..., steps].

    One example is a bias before batch norm: its gradient is 0 except for rounding, so
    every start gives it another value.

    Args:
      distances: [starts, variables, steps], how far each start has moved them.
    """
    return distances.min(0) > _NOISE


def _narrowest(graph_def: v1.GraphDef) -> tf.DType:
    """The dtype with the lowest precision that any operation computes in."""
    functions = (function.node_def for function in graph_def.library.function)
    used_types = {
        attr.type
        for node in itertools.chain(graph_def.node, *functions)
        for attr in node.attr.values()
    }
    narrow = (tf.bfloat16, tf.float16)
    return next((d for d in narrow if d.as_datatype_enum in used_types), tf.float32)


def steps(
    train: graph.TrainGraph,
    variables: Mapping[Key, Any],
    num_steps: int,
    updates: int = 1,
    *,
    nudge: int | None = None,
) -> Iterator[dict[Key, np.ndarray]]:
    """Trains; the variables' values before the first step and after each.

    Args:
      train: the graph.
      variables: key -> variable, or its parts, whose values are joined.
      num_steps: number of steps.
      updates: number of updates in each step.
      nudge: a seed for a nudged start; None for the model's own.
    """
    config = placement_lib.session_config(train.placement)
    # Several of these run alternately, so none is made the default session.
    session = v1.Session(graph=train.graph, config=config)
    try:
        with train.graph.as_default():
            loop.start(train, session, lambda session: _nudge(train, session, nudge))
        values_of = session.make_callable(dict(variables))

        def read() -> dict[Key, np.ndarray]:
            return {
                key: np.concatenate(value, variables[key].axis)
                if isinstance(variables[key], parts.Parts)
                else value
                for key, value in values_of().items()
            }

        run = train.loop.runner(session) if train.loop else None
        run_step = session.make_callable(train.step)
        yield read()
        for _ in range(num_steps):
            if run:
                collections.deque(run(0, updates), maxlen=0)
            else:
                for _ in range(updates):
                    run_step()
            yield read()
    finally:
        session.close()


def _nudge(train: graph.TrainGraph, session: v1.Session, seed: int | None) -> None:
    """Changes each element of the trained variables by roundings, up or down."""
    if seed is None:
        return
    draw = np.random.default_rng(seed)
    variables = [train.mode.variables[name] for name in train.template.trainable]
    assignments, moved = [variable.initializer for variable in variables], {}
    # In two calls: each prepares the whole graph, which takes longer than the values.
    for assignment, value in zip(assignments, session.run(variables)):
        epsilon = _ROUNDINGS * np.finfo(value.dtype).eps
        epsilon *= draw.choice([-1, 1], value.shape)
        moved[assignment.inputs[1]] = (value * (1 + epsilon)).astype(value.dtype)
    session.run(assignments, moved)
