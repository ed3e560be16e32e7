"""Copies of a tower on the devices of all towers, whole, in rounds or in stages.

The model is traced once for each batch size.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from towers.compute import (
    accumulation,
    copy_tower,
    embedding_lookup,
    precision,
    sufficient_factors,
    tower,
)
from towers.compute.tower import Site, Template, Tower, TowerSpec
from towers.data import nests
from towers.data.source import Batch
from towers.gradients import transfer
from towers.layout import graph_names
from towers.pipelines import costs, cutting, pipeline, recompute

v1 = tf.compat.v1
AnyTemplate: TypeAlias = Template | pipeline.PipelineTemplate


def copy_towers(
    task: TowerSpec,
    batches: Sequence[Batch],
    variables: Any,
    *,
    scalars: Sequence[Mapping[str, tf.Tensor]],
    rounds: int = 1,
    scope: str = "tower",
) -> tuple[AnyTemplate, list[Tower]]:
    """Traces a tower once and copies it to the device of every tower.

    It is traced once for each batch size.

    Args:
      task: what a tower computes.
      batches: one per tower.
      variables: creates the variables and reads them for each tower: a row of
        `VARIABLE_UPDATES`, or an object with its methods.
      scalars: for each tower, float32 inputs besides its batch: `total_weight`, by
        which its sums are divided (1 leaves them sums), `progress` in training, and
        `loss_scale`, if the loss is scaled.
      rounds: number of equal parts in which a tower computes its batch.
      scope: prefix of the towers' names.

    Returns:
      the template of the largest batch, and the towers.

    Raises:
      ValueError: the towers cannot be made; the sentence says why.
    """
    templates = _templates(task, batches, variables, rounds)
    template = templates[max(templates)]
    if task.training:
        variables.fix(_unchanged(template))
    cast, arrive = precision.PrecisionCasts(), transfer.Arrivals()
    hosts = transfer.arrival_hosts(variables.placement)

    def reads(
        index: int, host: str | None, devices: Sequence[str]
    ) -> dict[str, tf.Tensor]:
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
            inputs={**batch.tensors(), **scalars[index]},
            reads=reads(index, host, devices),
            template=templates[nests.batch_size(batch.features)],
        )
        for index, (devices, host, batch) in enumerate(
            zip(variables.placement.stages, hosts, batches)
        )
    ]
    if isinstance(template, Template):
        embedding_lookup.look_up(sites, variables.placement.hosts, variables)
    copy = _copier(task, rounds)

    def copies(group: Sequence[Site]) -> list[Tower]:
        towers = copy(group)
        if task.training:
            _factor(towers, template, variables)
        return towers

    most = copy_tower.at_a_time(template, variables.placement)
    towers = copy_tower.in_turn(copies, sites, most)
    sufficient_factors.of_all_or_none([tower.gradients for tower in towers])
    return template, towers


def _templates(
    task: TowerSpec, batches: Sequence[Batch], variables: Any, rounds: int
) -> dict[int, AnyTemplate]:
    """Batch size -> the template of a tower; see `copy_towers`.

    All are cut in the same way, that of the largest batch, whose trace creates the
    variables.
    """
    sizes = [nests.batch_size(batch.features) for batch in batches]
    by_size = dict(sorted(zip(sizes, batches), key=lambda item: -item[0]))
    templates: dict[int, AnyTemplate] = {}
    for size, batch in by_size.items():
        cutting.check_fit(task, size, variables.placement)
        features, labels = (nests.piece(part, rounds) for part in batch[:2])
        create = lambda *_, **options: None  # noqa: E731
        if not templates:
            task = costs.with_cut(task, features, labels, variables.placement)
            task = recompute.with_choice(task, features, labels, variables.placement)
            create = variables.create
        relative_size = size * len(sizes) / sum(sizes)
        joined = task.joined._replace(relative_size=relative_size)
        task = dataclasses.replace(task, joined=joined)
        trace = pipeline.trace if task.pipeline else tower.trace
        template = trace(task, features, labels, create=create)
        if isinstance(template, Template) and rounds == 1 and not task.compiled:
            template = embedding_lookup.cut_out(template)
        templates[size] = template
    return templates


def _factor(towers: Sequence[Tower], template: AnyTemplate, mode: Any) -> None:
    """Puts factors in the place of large gradients that are products of them."""
    added = mode.placement.towers if mode.together else ()
    for index, device in mode.factored(template.trainable).items():
        for gradients in (copied.gradients for copied in towers):
            gradients[index] = sufficient_factors.of(gradients[index], device, added)


def _unchanged(template: AnyTemplate) -> set[str]:
    """The variables that towers read and no step changes."""
    followed = {rule.variable for rule, _ in template.statistics}
    return set(template.reads).difference(template.trainable, followed)


def _copier(task: TowerSpec, rounds: int) -> Callable[..., list[Tower]]:
    """The function that copies a template to devices."""
    if task.pipeline:
        return pipeline.copy_pipelines
    if rounds > 1:
        return functools.partial(accumulation.accumulation_loops, rounds=rounds)
    return copy_tower.copy_tower
