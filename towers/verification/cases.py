"""Enumerates the cases that `agreement` compares.

Every mode is combined with every number of towers, every reduction and every packing.
Pipelines have too many settings for that.  Their cases are chosen so that every pair of
values of stages, micro-batches, schedules, recomputation, towers and modes occurs in
one (pairwise testing).
"""

import dataclasses
import itertools
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import tensorflow as tf

from towers.gradients.exchange import GradientExchange
from towers.gradients.reduction import carries, usable
from towers.layout import batch_sizes
from towers.layout.schedule import SCHEDULES
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.variable_update.base import VariableUpdate
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification.verdict import Case

Modes = Mapping[str, type[VariableUpdate]]
Choice = TypeVar("Choice")

# Every algorithm for all devices, one with shards, and one spec with sizes.
SPECS = (*usable("cpu"), "xring#2", "pscpu:1k:xring")

# Optimizers whose first step is linear in the gradient.  With others, the step of a
# rounded gradient may be any.
LINEAR = ("sgd", "momentum")

_WHOLE = GradientExchange(sufficient_factors=False)
_CHUNKS = 2  # of each stage, if the schedule interleaves


def exchanges(
    specs: Sequence[str] = SPECS,
    packs: Sequence[int] = (0, 2),
    agg_small_grads_max_bytes: Sequence[int] = (0, 1024),
) -> list[GradientExchange]:
    """Every spec with every packing, one packing at a time."""
    packings = [GradientExchange(gradient_repacking=number) for number in packs]
    packings += [
        GradientExchange(agg_small_grads_max_bytes=size)
        for size in agg_small_grads_max_bytes
    ]
    choices = [
        dataclasses.replace(packing, all_reduce_spec=spec)
        for spec in specs
        for packing in packings
    ]
    return list(dict.fromkeys(choices))


def cases(
    num_towers: Sequence[int],
    choices: Sequence[GradientExchange],
    *,
    rounds: Sequence[int] = (1,),
    names: Sequence[str] = (),
) -> list[Case]:
    """Towers without stages, in every mode, number and number of rounds.

    Modes whose replicas exchange gradients have a case for each choice; if they do not
    take the steps of one tower, for each reduction without packing.  Modes that send
    gradients as factors also have a case without.  A single tower, and several rounds,
    have one case only, as the exchange does not matter there.

    Args:
      num_towers: numbers of towers.
      choices: the settings of gradient exchange.
      rounds: of gradient accumulation.
      names: of modes; all if empty.
    """
    all_cases = []
    for name, count, number in itertools.product(
        names or VARIABLE_UPDATES, num_towers, rounds
    ):
        allowed: Sequence[GradientExchange | None] = [None]
        mode = VARIABLE_UPDATES[name]
        if "all_reduce_spec" in mode.reads:
            allowed = choices if mode.exact else _plain(choices)
            allowed = allowed[:1] if count == 1 or number > 1 else allowed
        elif mode.exact and "sufficient_factors" in mode.reads:
            allowed = [None] if count == 1 or number > 1 else [None, _WHOLE]
        all_cases += [Case(name, count, exchange, number) for exchange in allowed]
    return all_cases


def _plain(choices: Sequence[GradientExchange]) -> Sequence[GradientExchange]:
    """The choices that pack no gradients, or all if every one does."""
    plain = [
        e
        for e in choices
        if not e.gradient_repacking and not e.agg_small_grads_max_bytes
    ]
    return plain or choices


class Cuts(NamedTuple):
    """The settings of pipelines.

    Attributes:
      num_blocks: of the model.
      stages: devices of a tower.
      micro_batches: numbers of micro-batches of a tower's batch.
      schedules: rows of `SCHEDULES`.
      recompute: rows of `stages.RECOMPUTE`.
      num_devices: number of devices for all towers; None if it is not limited.
      gathered: whether batch norm waits for all micro-batches.
    """

    num_blocks: int
    stages: Sequence[int] = (1, 2, 4)
    micro_batches: Sequence[int] = (1, 4)
    schedules: Sequence[str] = tuple(SCHEDULES)
    recompute: Sequence[str] = ("none", "stage", "block")
    num_devices: int | None = None
    gathered: bool = False

    def pipelines(self) -> list[Pipeline]:
        """All pipelines of the model, without the whole tower."""
        pipelines = []
        for k, m, name, recompute in itertools.product(
            self.stages, self.micro_batches, self.schedules, self.recompute
        ):
            interleaves = SCHEDULES[name].interleaves
            chunks = _CHUNKS if interleaves else 1
            how = Pipeline(k, m, name, chunks, recompute=recompute, balance="params")
            cut = k > 1 or (not interleaves and (m > 1 or recompute != "none"))
            waits = self.gathered and m > 1 and not SCHEDULES[name].gathers
            if cut and k * chunks <= self.num_blocks and not waits:
                pipelines.append(how)
        return pipelines

    def fits(self, case: Case) -> bool:
        """Whether there is a device for each stage of all towers."""
        needed = case.num_towers * case.devices
        return self.num_devices is None or needed <= self.num_devices


def pipelined(
    num_towers: Sequence[int],
    cuts: Cuts,
    *,
    names: Sequence[str] = (),
    thorough: bool = False,
) -> list[Case]:
    """Towers that are cut into stages.

    Args:
      num_towers: numbers of towers.
      cuts: settings of the pipelines.
      names: of modes; all if empty.
      thorough: every combination; otherwise so few that every pair of values occurs.
    """
    candidates = [
        Case(name, count, pipeline=how)
        for name, count, how in itertools.product(
            names or VARIABLE_UPDATES, num_towers, cuts.pipelines()
        )
    ]
    candidates = [case for case in candidates if cuts.fits(case)]
    return candidates if thorough else list(pairwise(candidates, _settings))


def _settings(case: Case) -> Sequence[Hashable]:
    """The settings of a pipeline's case."""
    how = case.pipeline
    assert how
    settings = how.stages, how.micro_batches, how.schedule, how.recompute
    return case.variable_update, case.num_towers, *settings


def pairwise(
    choices: Sequence[Choice], settings: Callable[[Choice], Sequence[Hashable]]
) -> Iterator[Choice]:
    """A small selection in which every pair of values occurs (pairwise testing).

    It repeatedly takes the choice with the most pairs of values that are not selected
    yet, the first of several.

    Args:
      choices: to select from.
      settings: choice -> its values, in a fixed order.
    """
    pairs = {
        index: frozenset(itertools.combinations(enumerate(settings(choice)), 2))
        for index, choice in enumerate(choices)
    }
    left = frozenset().union(*pairs.values())
    while left:
        best = max(pairs, key=lambda index: len(pairs[index] & left))
        left -= pairs[best]
        yield choices[best]


def sharded(
    num_towers: Sequence[int],
    shards: Sequence[Shards],
    cuts: Cuts,
    *,
    names: Sequence[str],
    rounds: Sequence[int] = (1,),
) -> list[Case]:
    """Towers with layers that are sharded over several devices.

    Args:
      num_towers: numbers of towers.
      shards: which layers are sharded.
      cuts: settings of pipelines, for sharded towers in stages or micro-batches.
      names: of modes that can have partitioned variables.
      rounds: of gradient accumulation, for towers without stages.

    Returns:
      so few cases that every pair of values occurs.
    """
    cuts = cuts._replace(micro_batches=sorted(cuts.micro_batches)[-1:])
    hows: list[tuple[int, Pipeline | None]] = [(number, None) for number in rounds]
    hows += [(1, how) for how in cuts.pipelines()]
    candidates = [
        Case(name, count, rounds=number, pipeline=how, shards=spread)
        for name, count, (number, how), spread in itertools.product(
            names, num_towers, hows, shards
        )
        if how is None or how.stages in (1, spread.devices)
    ]
    return list(pairwise([case for case in candidates if cuts.fits(case)], _spread))


def _spread(case: Case) -> Sequence[Hashable]:
    """The settings of a case of `sharded`."""
    how = case.pipeline
    cut = how and (how.stages > 1, how.recompute != "none")
    return case.variable_update, case.num_towers, case.shards, cut or case.rounds


def unequal(
    num_towers: int, global_batch: int, *, names: Sequence[str] = ()
) -> list[Case]:
    """Towers of which the first has twice the batch of the others, or nearly so.

    Args:
      num_towers: of each case.
      global_batch: examples of a step, at least one for each tower.
      names: of modes; all if empty.
    """
    sizes = batch_sizes.divide(global_batch, (2.0, *[1.0] * (num_towers - 1)))
    if min(sizes) == max(sizes):
        return []
    exact = [n for n in names or VARIABLE_UPDATES if VARIABLE_UPDATES[n].exact]
    return [Case(name, num_towers, batch_sizes=sizes) for name in exact]


def narrow(
    num_towers: int,
    choices: Sequence[GradientExchange],
    dtypes: Sequence[tf.DType],
    *,
    names: Sequence[str] = (),
    kind: str = "cpu",
) -> list[Case]:
    """Gradients that are sent in 16 bits, in the modes that are exact otherwise.

    Every reduction occurs, with the dtypes that it can send in turn.

    Args:
      num_towers: more than 1; the gradients of a single tower are not sent.
      choices: for the modes whose replicas exchange gradients.
      dtypes: in which they are sent.
      names: of modes; all if empty.
      kind: of the devices, cpu or gpu.
    """
    turns = itertools.count()
    narrowed = []
    for name in names or VARIABLE_UPDATES:
        mode = VARIABLE_UPDATES[name]
        if mode.exact and "compact_gradient_transfer" in mode.reads and dtypes:
            if "all_reduce_spec" in mode.reads:
                specs = [choice.all_reduce_spec for choice in _plain(choices)]
                for spec in dict.fromkeys(specs):
                    if able := [d for d in dtypes if carries(spec, d, kind)]:
                        dtype = able[next(turns) % len(able)]
                        narrowed.append(
                            Case(
                                name, num_towers, GradientExchange(spec), transfer=dtype
                            )
                        )
            else:
                narrowed += [Case(name, num_towers, transfer=dtype) for dtype in dtypes]
    return narrowed


def sorted_once(unsorted: Sequence[Case]) -> list[Case]:
    """Each case once, by mode, as in the table, and then by number of towers."""
    places = {name: place for place, name in enumerate(VARIABLE_UPDATES)}
    once = dict.fromkeys(unsorted)
    return sorted(once, key=lambda c: (places[c.variable_update], c.num_towers))
