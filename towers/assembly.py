"""The towers of a graph: traced once, then stamped on every device, looped there, or
cut into stages."""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.compute import (
    accumulation,
    copy_tower,
    embedding_lookup,
    precision,
)
from towers.compute import tower as tower_lib
from towers.compute.sufficient_factors import Factors
from towers.compute.tower import Site, Template, Tower, TowerSpec
from towers.data.source import Batch
from towers.gradients import wire
from towers.layout import graph_names
from towers.layout.placement import Placement, task_of
from towers.layout.stages import Pipeline
from towers.pipelines import costs, pipeline, recompute

v1 = tf.compat.v1


def copy_towers(
    task: TowerSpec,
    batches: Sequence[Batch],
    variables: Any,
    *,
    scalars: Sequence[Mapping[str, tf.Tensor]],
    rounds: int = 1,
    scope: str = "tower",
) -> tuple[Template, list[Tower]]:
    """Traces the task once and stamps it on the device of every tower.

    Args:
      task: what a tower computes.
      batches: one per tower.
      variables: makes them and says how each tower reads them: a row of
        `VARIABLE_UPDATES`, or one like it.
      scalars: for each tower, float32 inputs beside its batch: `total_weight`, which
        its shares are shares of (1 makes them sums); and `loss_scale`, if the task is
        scaled.
      rounds: pieces of equal size that each batch is taken in.
      scope: prefix of the towers' names.

    Raises:
      ValueError: the towers cannot be made; the sentence says why.
    """
    batch = batches[0]
    task = _with_shards(task, variables.placement)
    _check_fit(task, batch, variables.placement)
    specs = [_piece(tensor, rounds) for tensor in (batch.features, batch.labels)]
    task = costs.with_cut(task, *specs, variables.placement)
    task = recompute.with_choice(task, *specs, variables.placement)
    trace = pipeline.trace if task.pipeline else tower_lib.trace
    template = trace(task, *specs, create=variables.create)
    plain = rounds == 1 and task.pipeline is None and not task.compiled
    if plain:
        template = embedding_lookup.cut_out(template)
    cast, arrive = precision.Casts(), wire.Arrivals()

    def reads(index: int, host: str, devices: Sequence[str]) -> dict[str, tf.Tensor]:
        with v1.name_scope(graph_names.READ):
            values = {
                name: cast(variables.read(name, index), dtype)
                for name, dtype in template.reads.items()
            }
            fetched = {n: v for n, v in values.items() if n not in template.owners}
            return values | arrive.beside(arrive.all(fetched, host), devices)

    sites = [
        Site(
            scope=f"{scope}_{index}",
            devices=devices,
            inputs={**batch._asdict(), **scalars[index]},
            reads=reads(index, host, devices),
        )
        for index, (devices, host, batch) in enumerate(
            zip(variables.placement.stages, _hosts(variables.placement), batches)
        )
    ]
    if plain:
        _look_up(template, sites, variables)
    copy = _copier(task, rounds)
    size = at_a_time(template, variables.placement) or len(sites)
    towers: list[Tower] = []
    for first in range(0, len(sites), size):
        group = sites[first : first + size]
        if first:  # each waits for one of the group before
            for site, before, tower in zip(
                group, sites[first - size :], towers[-size:]
            ):
                _begin_after(_end(tower, before.scope), site)
        copies = copy(template, group)
        if task.training:
            copies = [_given_to(variables, tower, template) for tower in copies]
        towers += copies
    return template, [t._replace(index=index) for index, t in enumerate(towers)]


def _copier(task: TowerSpec, rounds: int) -> Callable[..., list[Tower]]:
    """What copies a template for some sites."""
    if task.pipeline:
        return pipeline.copy_pipelines
    if rounds > 1:
        return functools.partial(_loops, rounds=rounds)
    return copy_tower.copy_tower


def _given_to(variables: Any, tower: Tower, template: Template) -> Tower:
    """The tower, with gradients in the forms in which the mode takes them."""
    gradients = variables.taken(tower.gradients, template.trainable)
    return tower._replace(gradients=list(gradients))


def at_a_time(template: Template, placement: Placement) -> int:
    """How many towers of a step compute at a time; 0 where none waits for another.

    As the placement says, but 0 for towers that exchange something on the way, are
    pipelines or have several devices each.
    """
    count, most = len(placement.towers), placement.at_a_time
    plain = isinstance(template, Template) and not template.exchanges
    alone = plain and len(placement.devices) == count
    return most if alone and most < count else 0


def _end(tower: Tower, scope: str) -> tf.Operation:
    """An operation that runs once the tower has its loss and gradients."""
    gradients = []
    for gradient in tower.gradients:
        if isinstance(gradient, Factors):
            gradients += [gradient.left, gradient.right]
        elif gradient is not None:
            gradients.append(gradient)
    with v1.name_scope(None), tf.device(tower.device):
        return tf.group(tower.loss, *gradients, name=f"{scope}/end")


def _begin_after(end: tf.Operation, site: Site) -> None:
    """Makes a tower's inputs wait for `end`."""
    names, inputs = zip(*site.inputs.items())
    with v1.name_scope(None), tf.device(site.device), tf.control_dependencies([end]):
        held = tf.raw_ops.IdentityN(input=inputs, name=f"{site.scope}/begin")
    site.inputs.update(zip(names, held))


def _loops(template: Template, sites: Sequence[Site], rounds: int) -> list[Tower]:
    """A loop on each tower's device, which keeps what it adds up there; towers that
    exchange go through their rounds together."""
    groups = [sites] if template.exchanges else [[site] for site in sites]
    return [
        tower
        for group in groups
        for tower in accumulation.loop(template, group, rounds)
    ]


def _with_shards(task: TowerSpec, placement: Placement) -> TowerSpec:
    """The task, which knows whether its towers have the tables on their devices."""
    if task.shards is None:
        return task
    shards = task.shards._replace(elsewhere=placement.is_cluster)
    return dataclasses.replace(task, shards=shards)


def _check_fit(task: TowerSpec, batch: Batch, placement: Placement) -> None:
    """Checks that micro-batches divide the batch, and that towers have the devices."""
    how, size = task.pipeline or Pipeline(), batch.features.shape[0]
    if size % how.micro_batches:
        raise ValueError(
            f"Pipeline.micro_batches is {how.micro_batches}, and does not divide a "
            f"tower's batch of {size}"
        )
    count = max(how.stages, task.shards.devices if task.shards else 1)
    if any(len(devices) != count for devices in placement.stages):
        raise ValueError(
            f"each tower of the placement has {len(placement.stages[0])} of the "
            f"devices, and Options.pipeline and Options.shards ask for {count}; give "
            f"the placement num_stages={count}, and a multiple of {count} devices"
        )


def _hosts(placement: Placement) -> list[str | None]:
    """Where each tower's variables arrive; None where its stages are on several tasks,
    each of which fetches what it reads."""
    return [
        host if len(set(map(task_of, devices))) == 1 else None
        for devices, host in zip(placement.stages, placement.hosts)
    ]


def _look_up(template: Template, sites: Sequence[Site], variables: Any) -> None:
    """Gives the towers the rows that they look up."""
    for index, (site, host) in enumerate(zip(sites, variables.placement.hosts)):
        rows = embedding_lookup.rows(
            template,
            site.inputs,
            functools.partial(variables.read, tower=index),
            scope=f"{site.scope}/look_up",
            device=site.device,
            host=host,
        )
        site.inputs.update(rows)


def _piece(batch: tf.Tensor, rounds: int) -> tf.TensorSpec:
    size, *rest = batch.shape
    return tf.TensorSpec([size // rounds, *rest], batch.dtype)
