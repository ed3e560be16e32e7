"""Stamping: the template of a tower, copied onto every tower's device.

The copies lie in the train graph under `tower_<i>/`, with the template's placeholders
replaced by the tower's batch and by the variables as this tower reads them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from towers import costs, pipeline, precision, wire
from towers import tower as tower_lib
from towers.feed import Batch
from towers.tower import Gradient, Site, Task, Template, Tower

v1 = tf.compat.v1


def stamp_towers(
    task: Task,
    batches: Sequence[Batch],
    variables: Any,
    *,
    total_weights: Sequence[tf.Tensor],
    scope: str = "tower",
) -> tuple[Template, list[Tower]]:
    """Traces the task once and stamps it on the device of every tower.

    Args:
      task: what a tower computes.
      batches: one per tower.
      variables: makes them and says how each tower reads them: a row of
        `VARIABLE_UPDATES`, or one like it.
      total_weights: what each tower's shares are shares of; 1 makes them sums.
      scope: prefix of the towers' names.
    """
    trace, copy = _WAYS[task.pipeline is not None]
    specs = [
        tf.TensorSpec(tensor.shape, tensor.dtype)
        for tensor in (batches[0].features, batches[0].labels)
    ]
    task = costs.with_cut(task, *specs, variables.placement)
    template = trace(task, *specs, create=variables.create)
    cast, arrive = precision.Casts(), wire.Arrivals()
    sites = [
        Site(
            scope=f"{scope}_{index}",
            devices=devices,
            inputs={**batch._asdict(), "total_weight": total_weights[index]},
            reads={
                name: arrive(cast(variables.read(name, index), dtype), host)
                for name, dtype in template.reads.items()
            },
        )
        for index, (devices, host, batch) in enumerate(
            zip(variables.placement.stages, variables.placement.hosts, batches)
        )
    ]
    return template, copy(template, sites)


def stamp(template: Template, sites: Sequence[Site]) -> list[Tower]:
    """Copies the template into the current graph, once per site.

    Args:
      template: from `tower.trace`.
      sites: of the towers, in order.
    """
    if template.compiled:
        return [_call(template, index, site) for index, site in enumerate(sites)]
    graph_def = v1.GraphDef(
        versions=template.graph_def.versions, library=template.graph_def.library
    )
    fed: dict[str, tf.Tensor] = {}
    wanted: list[str] = []
    for site in sites:
        given = _given(template, site)
        used = _copy_nodes(graph_def, template, site, given)
        fed |= {f"{site.scope}/{name}:0": given[name] for name in used}
        wanted += [f"{site.scope}/{name}" for name in template.outputs]
    # The scopes are absolute: a caller's name scope or device does not move a tower.
    with v1.name_scope(None), tf.device(None):
        found = tf.import_graph_def(graph_def, fed, return_elements=wanted, name="")
    of = dict(zip(wanted, found))
    return [_tower(template, index, site, of) for index, site in enumerate(sites)]


def _given(template: Template, site: Site) -> dict[str, tf.Tensor]:
    """Placeholder -> what takes its place."""
    return site.inputs | {f"read/{name}": site.reads[name] for name in template.reads}


def _call(template: Template, index: int, site: Site) -> Tower:
    """A tower that is one operation, compiled by XLA."""
    with v1.name_scope(None), tf.device(None), tf.device(site.device):
        with v1.name_scope(site.scope):
            found = template.function(_given(template, site))
    names = [f"{site.scope}/{name}" for name in template.outputs]
    return _tower(template, index, site, dict(zip(names, found)))


def _copy_nodes(
    graph_def: v1.GraphDef, template: Template, site: Site, given: dict[str, Any]
) -> set[str]:
    """Adds a tower's nodes; returns which of the given placeholders they use."""
    used: set[str] = set()
    for node in template.graph_def.node:
        if node.name in given:
            used.add(node.name)
            continue
        copy = graph_def.node.add()
        copy.CopyFrom(node)
        copy.name = f"{site.scope}/{node.name}"
        copy.device = _merge(site.device, node.device)
        # Colocation would name nodes of the template; the devices say the same.
        copy.attr.pop("_class", None)
        del copy.input[:]
        copy.input.extend(
            f"^{site.scope}/{name[1:]}" if name[0] == "^" else f"{site.scope}/{name}"
            for name in node.input
        )
    return used


def _merge(device: str, own: str) -> str:
    """The tower's device, with what a node says of its own in front."""
    if not own:
        return device
    spec = tf.DeviceSpec.from_string(device)
    return spec.make_merged_spec(tf.DeviceSpec.from_string(own)).to_string()


def _tower(
    template: Template, index: int, site: Site, of: dict[str, tf.Tensor]
) -> Tower:
    def get(name: str) -> tf.Tensor:
        return of[f"{site.scope}/{name}"]

    return Tower(
        index=index,
        device=site.device,
        loss=get(template.loss),
        gradients=[_gradient(list(map(get, names))) for names in template.gradients],
        statistics=[get(name) for _, name in template.statistics],
        metrics={name: get(tensor) for name, tensor in template.metrics.items()},
    )


def _gradient(parts: list[tf.Tensor]) -> Gradient:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else tf.IndexedSlices(*parts)


# Whether the task has a pipeline -> how it is traced and how copied.
_WAYS: dict[bool, tuple[Callable[..., Any], Callable[..., list[Tower]]]] = {
    False: (tower_lib.trace, stamp),
    True: (pipeline.trace, pipeline.stamp),
}


def join_shares(
    towers: Sequence[Tower], *, joined: bool = True
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Loss and metrics of a step.

    Args:
      towers: of the step.
      joined: whether the towers' shares add up to a mean; otherwise each tower has a
        mean of its own, and the mean of these is taken.
    """
    part = 1.0 if joined else 1.0 / len(towers)

    def join(shares: list[tf.Tensor], name: str) -> tf.Tensor:
        return tf.multiply(tf.add_n(shares), part, name=name)

    loss = join([tower.loss for tower in towers], "loss")
    metrics = {
        name: join([tower.metrics[name] for tower in towers], name)
        for name in towers[0].metrics
    }
    return loss, metrics
