"""Several operations in one kernel, where CPUs have it.

A convolution or a matrix product, the bias added to it and the rectifier behind are
one pass over the memory instead of three.  TensorFlow's remapper finds these chains in
the whole graph at the first step, tower by tower; here they are found once, in the
template, and every tower is stamped with them.
"""

from collections import defaultdict
from collections.abc import Collection

import tensorflow as tf

v1 = tf.compat.v1

# Operation -> the one that also adds a bias, and the attributes that the two share.
_FUSED = {
    "Conv2D": (
        "_FusedConv2D",
        ("T", "strides", "padding", "explicit_paddings", "data_format", "dilations"),
    ),
    "MatMul": ("_FusedMatMul", ("T", "transpose_a", "transpose_b")),
}


def fuse(graph_def: v1.GraphDef, kept: Collection[str]) -> v1.GraphDef:
    """Puts `Conv2D` or `MatMul`, `BiasAdd` and, if there is one, `Relu` into one node.

    Only float32, for which every CPU has the kernels, and only where nothing else reads
    what lies between.  The bias is added inside the product's loop: the result is the
    same to float32 rounding.

    Args:
      graph_def: nodes; it stays as it is.
      kept: names of the tensors that must remain.

    Returns:
      fewer nodes, none colocated with another by name (it might be gone); the last
      node of each chain has kept its name.
    """
    fixed = {name.split(":")[0] for name in kept}
    readers = _readers(graph_def)
    last: dict[str, v1.NodeDef] = {}  # name of a chain's last node -> what replaces it
    inner: set[str] = set()
    for node in graph_def.node:
        if node.op not in _FUSED or node.attr["T"].type != tf.float32.as_datatype_enum:
            continue
        chain = _chain(node, readers, fixed)
        if len(chain) > 1:
            last[chain[-1].name] = _fused(chain)
            inner |= {link.name for link in chain[:-1]}
    found = v1.GraphDef(versions=graph_def.versions, library=graph_def.library)
    found.node.extend(
        last.get(node.name, node) for node in graph_def.node if node.name not in inner
    )
    for node in found.node:
        node.attr.pop("_class", None)
    return found


def _readers(graph_def: v1.GraphDef) -> dict[str, list[tuple[v1.NodeDef, str]]]:
    """Node -> who reads any of its outputs or waits for it, and the input's name."""
    found = defaultdict(list)
    for node in graph_def.node:
        for name in node.input:
            found[name.removeprefix("^").split(":")[0]].append((node, name))
    return found


def _chain(node: v1.NodeDef, readers, fixed: Collection[str]) -> list[v1.NodeDef]:
    """The node, the bias that is added to it and the rectifier of that, if so."""
    chain = [node]
    for kind in ("BiasAdd", "Relu"):
        read = readers[chain[-1].name]
        if chain[-1].name in fixed or len(read) != 1:
            break
        [(reader, name)] = read
        first = reader.op == kind and reader.input[0] == name == chain[-1].name
        waits = any(given.startswith("^") for given in reader.input)
        if not first or waits or reader.device != node.device:
            break
        chain.append(reader)
    return chain


def _fused(chain: list[v1.NodeDef]) -> v1.NodeDef:
    product, bias, *_ = chain
    kind, shared = _FUSED[product.op]
    fused = v1.NodeDef(name=chain[-1].name, op=kind, device=product.device)
    data = [name for name in product.input if not name.startswith("^")]
    waits = [name for name in product.input if name.startswith("^")]
    fused.input.extend([*data, bias.input[1], *waits])
    for name in shared:
        if name in product.attr:
            fused.attr[name].CopyFrom(product.attr[name])
    fused.attr["fused_ops"].list.s.extend(link.op.encode() for link in chain[1:])
    fused.attr["num_args"].i = 1
    if product.op == "Conv2D":
        fused.attr["TArgs"].list.type.append(product.attr["T"].type)
    return fused
