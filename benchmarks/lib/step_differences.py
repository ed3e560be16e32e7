"""Steps of tf_cnn_benchmarks, which its driver saved, and ours beside them."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.lib.our_steps import OurRun, Steps


class Differences(NamedTuple):
    """Relative differences, as the docstring of `benchmarks.same_steps` has them."""

    loss: float
    rate: float
    update: float
    variables: float
    change: float

    def above(self, limit: float) -> bool:
        """Whether one of the first four is above the limit, or is no number."""
        return not all(value <= limit for value in self[:4])


class TheirSteps:
    """The steps that the driver has saved in a folder.

    Args:
      folder: of the run.
      names: our name of each variable -> theirs.
    """

    def __init__(self, folder: str, names: Mapping[str, str]):
        self._folder = folder
        self._names = names
        with open(os.path.join(folder, "steps.json"), encoding="utf-8") as file:
            self.losses, self.rates = map(list, zip(*json.load(file)))

    def values(self, step: int) -> dict[str, np.ndarray]:
        """Our name -> value of each variable after as many steps."""
        reader = tf.train.load_checkpoint(path_of(self._folder, step))
        return {name: reader.get_tensor(theirs) for name, theirs in self._names.items()}

    def as_ours(self, trained: Sequence[str]) -> Steps:
        """The steps, to be compared with those of another run there."""
        first, last = self.values(1), self.values(len(self.losses))
        names = dict(self._names)
        return Steps(self.losses, self.rates, names, first, last, trained)


def path_of(folder: str, step: int) -> str:
    """The checkpoint of a step of the driver's run."""
    return os.path.join(folder, f"model.ckpt-{step}")


def compare(ours: Steps, folder: str) -> Differences:
    """Our steps with those that the driver has saved in a folder."""
    theirs = TheirSteps(folder, ours.names)
    start, first, end = map(theirs.values, (0, 1, len(theirs.losses)))
    return Differences(
        loss=max(map(relative, ours.losses, theirs.losses)),
        rate=max(map(relative, ours.rates, theirs.rates)),
        update=_of_change(ours.first, first, start, ours.trained),
        variables=_of_values(ours.values, end),
        change=_of_change(ours.values, end, start, ours.trained),
    )


def compare_each(run: OurRun, folder: str) -> Differences:
    """Each of our steps, begun where theirs began, with theirs."""
    theirs, rows = TheirSteps(folder, run.names), []
    before = theirs.values(0)
    for step, (loss, rate) in enumerate(zip(theirs.losses, theirs.rates)):
        run.restore(path_of(folder, step))
        our_loss, our_rate = run.step()
        ours, after = run.values(), theirs.values(step + 1)
        update = _of_change(ours, after, before, run.trained)
        losses, rates = relative(our_loss, loss), relative(our_rate, rate)
        rows.append((losses, rates, update, _of_values(ours, after), update))
        before = after
    return Differences(*map(max, zip(*rows)))


def relative(ours: Any, theirs: Any) -> float:
    """|ours - theirs| / |theirs|; 0 if both are 0."""
    return _ratio(_squares(np.subtract(ours, theirs)), _squares(theirs))


def _of_values(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]
) -> float:
    """The difference of all variables, as one vector."""
    return _ratio(
        sum(_squares(ours[name] - theirs[name]) for name in theirs),
        sum(map(_squares, theirs.values())),
    )


def _of_change(
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
    start: Mapping[str, np.ndarray],
    names: Sequence[str],
) -> float:
    """The difference of the changes since the start, over the variables named."""
    return _ratio(
        sum(_squares(ours[name] - theirs[name]) for name in names),
        sum(_squares(theirs[name] - start[name]) for name in names),
    )


def _ratio(apart: float, size: float) -> float:
    return float(np.sqrt(apart / size)) if size else float(apart > 0)


def _squares(values: Any) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
