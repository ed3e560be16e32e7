"""Copies the template of a tower to every tower's device.

The copies are in the train graph under `tower_<i>/`.  The template's placeholders are
replaced by the tower's batch, by the variables as this tower reads them, and by the
values that towers exchange.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence

import tensorflow as tf

from towers.compute import summaries, sync_batch_norm
from towers.compute.nodes import operation_of
from towers.compute.sufficient_factors import Factors
from towers.compute.tower import Gradient, Site, Template, Tower
from towers.layout import placeholders
from towers.layout.placement import Placement

v1 = tf.compat.v1


def copy_tower(sites: Sequence[Site]) -> list[Tower]:
    """Copies each site's template, from `tower.trace`, into the current graph.

    Args:
      sites: of the towers, in order.
    """
    if sites[0].template.compiled:
        return [_call(index, site) for index, site in enumerate(sites)]
    groups = [sites] if sites[0].template.exchanges else [[site] for site in sites]
    values = [tensors for group in groups for tensors in _copy(group)]
    return [
        tower(site.template, index, site.device, tensors)
        for index, (site, tensors) in enumerate(zip(sites, values))
    ]


def at_a_time(template: object, placement: Placement) -> int:
    """How many towers of a step compute at the same time; 0 for all of them.

    It is the placement's number, but 0 for towers that exchange values, are pipelines
    or have several devices each.

    Args:
      template: of the towers, a `Template` unless they are pipelines.
      placement: of the towers.
    """
    count, most = len(placement.towers), placement.at_a_time
    plain = isinstance(template, Template) and not template.exchanges
    alone = plain and len(placement.devices) == count
    return most if alone and most < count else 0


def in_turn(
    copies: Callable[[Sequence[Site]], list[Tower]], sites: Sequence[Site], most: int
) -> list[Tower]:
    """Towers of which only some compute at the same time, as others wait for them.

    Args:
      copies: makes the towers of some sites.
      sites: of all towers.
      most: how many compute at the same time; 0 for all.
    """
    size = most or len(sites)
    towers: list[Tower] = []
    for first in range(0, len(sites), size):
        group = sites[first : first + size]
        if first:
            for site, before, tower in zip(
                group, sites[first - size :], towers[-size:]
            ):
                _begin_after(tower, before.scope, site)
        towers += copies(group)
    return [tower._replace(index=index) for index, tower in enumerate(towers)]


def end_of(tower: Tower, name: str) -> tf.Operation:
    """An operation that runs once a tower has its loss and its gradients."""
    gradients = []
    for gradient in tower.gradients:
        if isinstance(gradient, Factors):
            gradients += [gradient.left, gradient.right]
        elif gradient is not None:
            gradients.append(gradient)
    with tf.device(tower.device):
        return tf.group(tower.loss, *gradients, name=name)


def _begin_after(tower: Tower, scope: str, site: Site) -> None:
    """Makes the inputs of the tower at a site wait for the end of another tower."""
    with v1.name_scope(None):
        end = end_of(tower, f"{scope}/end")
    names, inputs = zip(*site.inputs.items())
    with v1.name_scope(None), tf.device(site.device), tf.control_dependencies([end]):
        held = tf.raw_ops.IdentityN(input=inputs, name=f"{site.scope}/begin")
    site.inputs.update(zip(names, held))


def _copy(sites: Sequence[Site]) -> list[dict[str, tf.Tensor]]:
    """Copies the templates of towers that exchange values, or that of one tower.

    Returns:
      for each tower, name of an output of the template or of a summary -> its tensor.
    """
    graph_def = v1.GraphDef(versions=sites[0].template.graph_def.versions)
    fed: dict[str, tf.Tensor] = {}
    wanted: list[list[str]] = []
    for template in {id(site.template): site.template for site in sites}.values():
        graph_def.library.MergeFrom(template.graph_def.library)
    for site in sites:
        template, inputs = site.template, _given(site)
        used = _copy_nodes(graph_def, site, inputs, first=sites[0])
        fed |= {f"{site.scope}/{name}:0": inputs[name] for name in used}
        wanted.append([*template.outputs, *summaries.names(template.summaries)])
    _add_exchanges(graph_def, sites)
    # Without a caller's name scope or device, which would move the tower.
    with v1.name_scope(None), tf.device(None), tf.device(sites[0].device):
        paths = [f"{s.scope}/{n}" for s, names in zip(sites, wanted) for n in names]
        tensors = iter(
            tf.import_graph_def(graph_def, fed, return_elements=paths, name="")
        )
    # `names` is first, so that `zip` takes no tensor of the next tower.
    return [dict(zip(names, tensors)) for names in wanted]


def devices(site: Site) -> dict[str, str]:
    """Output of the template -> the tower's device that computes it."""
    template = site.template
    said = {node.name: node.device for node in template.graph_def.node}
    owners = _owners(site)
    return {
        name: placeholders.of_node(said[operation_of(name)], site.devices, owners)
        for name in template.outputs
    }


def _owners(site: Site) -> list[str]:
    reads = site.reads
    return [reads[n].device if n in reads else "" for n in site.template.owners]


def _given(site: Site) -> dict[str, tf.Tensor]:
    """Placeholder of the template -> the tensor that replaces it."""
    reads = {f"read/{name}": site.reads[name] for name in site.template.reads}
    return site.inputs | reads


def _call(index: int, site: Site) -> Tower:
    """A tower compiled by XLA: one or a few calls on each of its devices."""
    values = {f"{name}:0": tensor for name, tensor in _given(site).items()}
    template, owners = site.template, _owners(site)
    for part, call in template.functions:
        where = placeholders.of_node(part.device, site.devices, owners)
        with v1.name_scope(None), tf.device(None), tf.device(where):
            with v1.name_scope(site.scope):
                values |= zip(part.outputs, call(values))
    return tower(template, index, site.device, values)


def _copy_nodes(
    graph_def: v1.GraphDef, site: Site, inputs: dict, *, first: Site
) -> set[str]:
    """Adds a tower's nodes; returns which of the given placeholders they use.

    The joins of exchanged values are under the first tower's scope.  Nodes on the
    tower's device get it from the import, which takes a third less time.
    """
    used: set[str] = set()
    template, owners = site.template, _owners(site)
    exchanges = {
        name: f"{first.scope}/{joined}"
        for (name, _, _), (joined, _, _) in zip(
            template.exchanges, first.template.exchanges
        )
    }
    elsewhere = exchanges.keys() | {
        f"read/{look_up.variable}" for look_up in template.look_ups
    }

    def renamed(name: str) -> str:
        if name in exchanges:
            return exchanges[name]
        return f"^{site.scope}/{name[1:]}" if name[0] == "^" else f"{site.scope}/{name}"

    for node in template.graph_def.node:
        if node.name not in inputs and node.name not in elsewhere:
            copy = graph_def.node.add()
            copy.CopyFrom(node)
            copy.name = f"{site.scope}/{node.name}"
            device = placeholders.of_node(node.device, site.devices, owners)
            copy.device = "" if device == first.device else device
            # Colocation would name nodes of the template; their devices are set anyway.
            copy.attr.pop("_class", None)
            del copy.input[:]
            copy.input.extend(map(renamed, node.input))
            used.update(map(operation_of, node.input))
    return used & inputs.keys()


def _add_exchanges(graph_def: v1.GraphDef, sites: Sequence[Site]) -> None:
    """Adds the joins of the values that towers send, on the first tower's device."""
    template = sites[0].template
    if not template.exchanges:
        return
    scope, sizes = sites[0].scope, [site.batch_size for site in sites]
    new_names: dict[str, str] = {}
    with tf.Graph().as_default() as graph, tf.device(sites[0].device):
        for index, (name, _, join) in enumerate(template.exchanges):
            placeholders = []
            for site in sites:
                _, sent, _ = site.template.exchanges[index]
                shape = site.template.specs[sent].shape
                placeholder = v1.placeholder(tf.float32, shape, f"{index}/{site.scope}")
                placeholders.append(placeholder)
                new_names[placeholder.op.name] = f"{site.scope}/{sent}"
            with tf.name_scope(f"{scope}/{name}/"):
                joined = sync_batch_norm.JOINS[join](placeholders, sizes)
            tf.identity(joined, f"{index}/joined")
            new_names[f"{index}/joined"] = f"{scope}/{name}"
    for node in graph.as_graph_def().node:
        if node.op != "Placeholder":
            names = [new_names.get(name, name) for name in node.input]
            del node.input[:]
            node.input.extend(names)
            node.name = new_names.get(node.name, node.name)
            graph_def.node.append(node)


def tower(
    template: Template, index: int, device: str, of: Mapping[str, tf.Tensor]
) -> Tower:
    """A `Tower` from its tensors: `of` has them by the template's output names."""
    shown = {n: of[n] for n in summaries.names(template.summaries) if n in of}
    return Tower(
        index=index,
        device=device,
        loss=of[template.loss],
        gradients=[_gradient([of[n] for n in names]) for names in template.gradients],
        statistics=[of[name] for _, name in template.statistics],
        metrics={name: of[tensor] for name, tensor in template.metrics.items()},
        summaries=summaries.given(template.summaries, shown),
    )


def _gradient(parts: list[tf.Tensor]) -> Gradient:
    if not parts:
        return None
    return parts[0] if len(parts) == 1 else tf.IndexedSlices(*parts)


@contextlib.contextmanager
def nothing_is_garbage() -> Iterator[None]:
    """Pauses Python's garbage collector while towers are added to a graph.

    It would scan the growing graph, which is all in use, again and again: that took 0.5
    of the 4.2 s in which 32 resnet50 towers were built.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def join_shares(
    towers: Sequence[Tower], *, joined: bool = True
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Loss and metrics of a step, float32 scalars.

    Args:
      towers: of the step.
      joined: whether the towers have shares of the mean, which are added; if not, each
        has the mean over its own batch, and these are averaged.
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
