"""The variables of tf_cnn_benchmarks' checkpoints by the names of this project.

    theirs = pairs(names, contents.of(path))  # our name -> the name in the checkpoint

There, a layer has the number that it gets among all layers of its kind, in the order in
which the network is built: `v0/cg/incept_v3_a0/conv5/conv2d/kernel` is the sixth
convolution.  Here, it has the name of its block and a number in the block:
`mixed_5b/conv/kernel`.  Both networks are built from the first layer to the last, so
layers are paired in that order; `_ORDERS` has the blocks that are built in another.

A dense layer that reads all pixels of an image has its rows in the order of
`--data_format`.  Here, they are those of NHWC in any format:

    kernel = in_our_order(theirs[name], kernel, data_format(path))
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

# Their names and ours: the layer's kind and number, and the variable's role.
_THEIRS = re.compile(
    r"v0?/cg/(?:.+/)?(?P<kind>conv|affine|batchnorm)(?P<number>\d+)/(?:conv2d/)?"
    r"(?P<role>\w+)"
)
_OURS = re.compile(
    r"(?P<block>[^/]+)/(?P<kind>conv|dense|batch_norm)(?:_(?P<number>\d+))?/"
    r"(?P<role>\w+)"
)
_KINDS = {"conv": "conv", "dense": "affine", "batch_norm": "batchnorm"}
_ROLES = {"weights": "kernel", "biases": "bias"}

# Regular expression of a block's name, number of its layers of each kind, and the order
# in which they are built there, as numbers in our block.
_ORDERS: Sequence[tuple[str, int, Sequence[int]]] = (
    # ResNet, version 1: a unit's projection is built before its three convolutions.
    (r"stage\d+_unit1", 4, (3, 0, 1, 2)),
    # The last modules of Inception-v3 and v4: here, what branches share is built first.
    (r"mixed_7[bc]", 9, (3, 0, 4, 5, 1, 2, 6, 7, 8)),
    (r"mixed_7[bcd]", 10, (4, 5, 0, 6, 7, 1, 2, 3, 8, 9)),
)

# The images that a dense layer reads whole: height, width, channels.
_IMAGES = {
    height * width * channels: (height, width, channels)
    for height, width, channels in (
        (227, 227, 3),  # trivial
        (32, 32, 3),  # trivial for CIFAR-10
        (7, 7, 64),  # lenet
        (6, 6, 256),  # alexnet
        (8, 8, 64),  # alexnet for CIFAR-10
        (6, 6, 1024),  # overfeat
        (7, 7, 512),  # vgg11, 16 and 19
    )
}
_READS_IMAGES = re.compile(r"v0?/cg/affine0/weights")
_TO_NCHW = [0, 3, 1, 2]  # what each tower transposes its images by

_Layer = tuple[str, str, int]  # of ours: block, kind, number in the block


def are_theirs(stored: Iterable[str]) -> bool:
    """Whether names of variables are those of a checkpoint of tf_cnn_benchmarks."""
    return any(map(_THEIRS.fullmatch, stored))


def pairs(names: Iterable[str], stored: Collection[str]) -> dict[str, str]:
    """The name in a checkpoint of tf_cnn_benchmarks of each variable of a model.

    Args:
      names: of our variables, those of a block after those of the blocks before it.
        Names that are not of a layer, as those of slots and counters, are left out.
      stored: the names in the checkpoint.

    Raises:
      ValueError: the checkpoint is of another network.
    """
    theirs = {
        (
            match["kind"],
            int(match["number"]),
            _ROLES.get(match["role"], match["role"]),
        ): name
        for name in stored
        if (match := _THEIRS.fullmatch(name))
    }
    ours = {name: match for name in names if (match := _OURS.fullmatch(name))}
    numbers = _numbers(map(_layer, ours.values()))
    keys = {
        name: (_KINDS[match["kind"]], numbers[_layer(match)], match["role"])
        for name, match in ours.items()
    }
    if alone := set(theirs).symmetric_difference(keys.values()):
        kind, number, role = key = min(alone)
        where = "checkpoint" if key in theirs else "model"
        raise ValueError(
            "the checkpoint of tf_cnn_benchmarks is of another network: "
            f"{kind}{number} has a {role} in the {where} only"
        )
    return {name: theirs[key] for name, key in keys.items()}


def reads_images(name: str, shape: Sequence[int]) -> bool:
    """Whether a variable's rows are in the order of the data format.

    Args:
      name, shape: of a variable in a checkpoint of tf_cnn_benchmarks.
    """
    return bool(_READS_IMAGES.fullmatch(name)) and shape[0] in _IMAGES


def data_format(path: str) -> str:
    """`NHWC` or `NCHW`, of the run that wrote a checkpoint of tf_cnn_benchmarks.

    Raises:
      ValueError: its graph, `path`.meta, is not beside it, or is empty or damaged.
    """
    try:
        with tf.io.gfile.GFile(f"{path}.meta", "rb") as file:
            content = file.read()
        meta = tf.compat.v1.MetaGraphDef.FromString(content)
    except tf.errors.NotFoundError as error:
        raise ValueError(f"{path}.meta is not there") from error
    except Exception as error:  # protobuf's DecodeError, whose module is not ours
        raise ValueError(f"{path}.meta cannot be read ({error})") from error
    nodes = {node.name: node for node in meta.graph_def.node}
    if not nodes:
        raise ValueError(f"{path}.meta is empty")
    orders = [
        tf.make_ndarray(nodes[node.input[1]].attr["value"].tensor).tolist()
        for node in nodes.values()
        if node.op == "Transpose" and nodes[node.input[1]].op == "Const"
    ]
    return "NCHW" if _TO_NCHW in orders else "NHWC"


def in_our_order(name: str, value: np.ndarray, data_format: str) -> np.ndarray:
    """The value of a variable, with the rows in the order of NHWC.

    Args:
      name: in the checkpoint.
      value: its value there.
      data_format: of the run that wrote it.
    """
    if data_format == "NHWC" or not reads_images(name, value.shape):
        return value
    height, width, channels = _IMAGES[value.shape[0]]
    rows = value.reshape(channels, height, width, -1)
    return rows.transpose(1, 2, 0, 3).reshape(value.shape)


def _layer(match: re.Match) -> _Layer:
    return match["block"], match["kind"], int(match["number"] or 0)


def _numbers(layers: Iterable[_Layer]) -> dict[_Layer, int]:
    """The number that tf_cnn_benchmarks gives each layer among those of its kind."""
    blocks: dict[str, dict[str, set[int]]] = {}
    for block, kind, number in layers:
        blocks.setdefault(block, {}).setdefault(kind, set()).add(number)
    numbers: dict[_Layer, int] = {}
    for kind in _KINDS:
        places = [
            (block, kind, number)
            for block, kinds in blocks.items()
            for number in _order(block, kinds).get(kind, ())
        ]
        numbers |= {layer: index for index, layer in enumerate(places)}
    return numbers


def _order(block: str, kinds: Mapping[str, set[int]]) -> Mapping[str, Sequence[int]]:
    """Kind -> the block's layers of it, in the order in which they are built there."""
    counts = {len(members) for members in kinds.values()}
    for regex, count, order in _ORDERS:
        if counts == {count} and re.fullmatch(regex, block):
            return dict.fromkeys(kinds, order)
    return {kind: sorted(members) for kind, members in kinds.items()}
