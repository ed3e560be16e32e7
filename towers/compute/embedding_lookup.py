"""Embedding look-ups on the table's device: only the rows of a batch are transferred.

If a tower does nothing with a variable but gather rows of it, the gathers are cut out
of the template and run on the device that holds the variable, or each part of it.  So
only the rows of a batch that are on a ps task cross the network, each once however
often it occurs in the batch.  Results do not change.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.compute.nodes import needed_by, operation_of, tensor_of
from towers.compute.tower import Site, Template
from towers.compute.variable_getter import VariableLookup
from towers.layout import parts
from towers.layout.placement import task_of

v1 = tf.compat.v1


def cut_out(template: Template) -> Template:
    """Removes the reads of variables from which a template only gathers rows.

    Instead of these reads it has `look_ups`: rows that replace the gathers.
    """
    nodes = {node.name: node for node in template.graph_def.node}
    users: dict[str, list[v1.NodeDef]] = {f"read/{name}": [] for name in template.reads}
    for node in nodes.values():
        for name in map(operation_of, node.input):
            if name in users:
                users[name].append(node)
    outputs = set(map(operation_of, template.outputs))
    inputs = {*users, *(name for name, _, _ in template.exchanges)}
    look_ups: list[VariableLookup] = []
    for name, dtype in template.reads.items():
        read = f"read/{name}"
        gathers = [node for node in users[read] if _takes_rows(node, read, nodes)]
        early = all(inputs.isdisjoint(needed_by(nodes, [n.input[1]])) for n in gathers)
        whole = not parts.is_part(name)  # the part's device looks it up already
        if len(gathers) == len(users[read]) and early and whole and read not in outputs:
            look_ups += [
                VariableLookup(name, dtype, tensor_of(node.input[1]), node.name)
                for node in gathers
            ]
    gone = {look_up.variable for look_up in look_ups}
    reads = {name: d for name, d in template.reads.items() if name not in gone}
    return dataclasses.replace(template, reads=reads, look_ups=tuple(look_ups))


def _takes_rows(node: v1.NodeDef, read: str, nodes: Mapping[str, v1.NodeDef]) -> bool:
    """Whether a node is a plain gather of rows, along the variable's first axis."""
    if node.op != "GatherV2" or list(map(operation_of, node.input)).count(read) != 1:
        return False
    axis = nodes[operation_of(node.input[2])]
    along_first = axis.op == "Const" and not tf.make_ndarray(axis.attr["value"].tensor)
    return (
        operation_of(node.input[0]) == read
        and along_first
        and not node.attr["batch_dims"].i
    )


def look_up(sites: Sequence[Site], hosts: Sequence[str], variables: Any) -> None:
    """Gives towers, as further inputs, the rows that replace their gathers.

    Args:
      sites: of the towers, with templates from `cut_out`.
      hosts: the CPU device of each tower's host.
      variables: reads them, as `VariableUpdate.read` does.
    """
    for index, (site, host) in enumerate(zip(sites, hosts)):
        read = functools.partial(variables.read, tower=index)
        scope = f"{site.scope}/look_up"
        template, inputs, device = site.template, site.inputs, site.device
        site.inputs.update(
            rows(template, inputs, read, scope=scope, device=device, host=host)
        )


def rows(
    template: Template,
    inputs: Mapping[str, tf.Tensor],
    read: Callable[[str], Any],
    *,
    scope: str,
    device: str,
    host: str,
) -> dict[str, tf.Tensor]:
    """The rows that replace a tower's gathers, by the gathers' names.

    Args:
      template: from `cut_out`.
      inputs: of the tower.
      read: name of a variable -> its value on its device, or `parts.Parts` of values.
      scope: prefix of the names of the operations that compute the row indices.
      device: of the tower.
      host: CPU device beside it.
    """
    if not template.look_ups:
        return {}
    nodes = {node.name: node for node in template.graph_def.node}
    wanted = [look_up.ids for look_up in template.look_ups]
    needed = needed_by(nodes, wanted)
    ids_def = v1.GraphDef(
        versions=template.graph_def.versions, library=template.graph_def.library
    )
    ids_def.node.extend(nodes[name] for name in sorted(needed))
    fed = {f"{name}:0": inputs[name] for name in needed & set(inputs)}
    with v1.name_scope(None), tf.device(None), tf.device(device):
        indices = tf.import_graph_def(ids_def, fed, return_elements=wanted, name=scope)
    with v1.name_scope(f"{scope}/rows/"):
        return {
            look_up.rows: _fetch(read(look_up.variable), ids, look_up.dtype, host)
            for look_up, ids in zip(template.look_ups, indices)
        }


def _fetch(table: Any, ids: tf.Tensor, dtype: tf.DType, host: str) -> tf.Tensor:
    """Rows [*ids.shape, units] of a table, cast to a dtype before the transfer."""
    pieces = parts.each(table)
    if len(pieces) == 1 and task_of(table.device) == task_of(host):
        return _take(table, ids, dtype)
    with tf.device(host):
        once, place = tf.unique(tf.reshape(ids, [-1]))
    if len(pieces) == 1:
        unique_rows = _take(table, once, dtype)
    elif table.axis:
        taken = [_take(piece, once, dtype) for piece in pieces]
        with tf.device(host):
            unique_rows = tf.concat(taken, table.axis)
    else:
        unique_rows = _take_by_owner(table, once, dtype, host)
    with tf.device(host):
        shape = [*ids.shape, *table.shape[1:]]
        return tf.reshape(tf.gather(unique_rows, place), shape)


def _take_by_owner(
    table: parts.Parts, ids: tf.Tensor, dtype: tf.DType, host: str
) -> tf.Tensor:
    """Rows [ids, units], each from the part that has it."""
    count = len(table)
    with tf.device(host):
        owner = parts.owners(ids, table)
        part_ids = tf.dynamic_partition(ids, owner, count)
        places = tf.dynamic_partition(tf.range(tf.size(ids)), owner, count)
        part_ids = [some - start for some, start in zip(part_ids, table.starts)]
    taken = [_take(part, some, dtype) for part, some in zip(table, part_ids)]
    with tf.device(host):
        return tf.dynamic_stitch(places, taken)


def _take(piece: Any, ids: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
    with tf.device(piece.device):
        return tf.cast(tf.gather(piece, ids), dtype)
