"""What lies on each device, and what crosses between them in a step, as a picture.

The picture is a communication matrix: a row for each device that sends, a column for
each that receives.  A parameter server is a full row and a full column, a ring a band
beside the diagonal, a pipeline the squares next to it.  All of it is read from the
graph; nothing is run.
"""

import html
import math
import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph

_MOST_SCOPES = 4  # that are named, of those on a device
_CELL, _HEIGHT = 76, 36  # of a device in the picture, in pixels
_LEFT = 620  # left of the matrix are the devices' names and what they hold
_FEW_DEVICES = 24  # squares of more are smaller, and have no numbers


class Transfer(NamedTuple):
    """What one device sends to another in a step."""

    tensors: int
    bytes: int  # of tensors whose shapes the graph knows
    unknown: int  # tensors whose shapes it does not know


class Traffic(NamedTuple):
    """The devices of a step, and what they exchange."""

    devices: list[str]
    holds: dict[str, list[str]]  # device -> lines on what lies there
    sent: dict[tuple[str, str], Transfer]  # (from, to) -> what crosses in a step

    @property
    def bytes(self) -> int:
        """The bytes that cross between devices."""
        return sum(sent.bytes for sent in self.sent.values())


def write_graph(train: TrainGraph, path: str, side: SideOutputs, *, title: str) -> None:
    """Writes the nodes of a graph, or a picture of what its devices exchange.

    Args:
      train: the graph.
      path: of the file: `.svg` for the picture, `.txt` or `.pbtxt` for nodes as text.
      side: writes it.
      title: of the picture.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if name.endswith(".svg"):
        side.write("nodes of the graph", path, picture(of(train), title))
        return
    with side.writing("nodes of the graph", path):
        tf.io.write_graph(train.graph, folder, name, as_text=name.endswith("txt"))


def of(train: TrainGraph) -> Traffic:
    """The traffic of one step; where towers are asynchronous, of one step of each."""
    master = train.placement.master
    held: dict[str, dict[str, tf.Operation]] = defaultdict(dict)
    sent: dict[tuple[str, str], Transfer] = {}
    for step in train.steps:
        for op in reached(step.train_op):
            held[_device(op, master)][op.name] = op
        for pair, tensors in crossing(step.train_op, master).items():
            sent[pair] = _sent(tensors, sent.get(pair, Transfer(0, 0, 0)))
    # First those that the placement names, in its order.
    named = [stage for stages in train.placement.stages for stage in stages]
    devices = list(dict.fromkeys([master, *named, *sorted(held)]))
    return Traffic(
        [device for device in devices if device in held],
        {device: _holds(list(ops.values())) for device, ops in held.items()},
        sent,
    )


def crossing(step: tf.Operation, master: str) -> dict[tuple[str, str], list[tf.Tensor]]:
    """(from, to) -> the tensors that a step sends from one device to another.

    A tensor that several operations of a device read is sent to it once.  The body of a
    loop is counted once.

    Args:
      step: what a session runs.
      master: the device of operations without one.
    """
    by_pair: dict[tuple[str, str], dict[str, tf.Tensor]] = defaultdict(dict)
    for op in reached(step):
        here = _device(op, master)
        for tensor in op.inputs:
            there = _device(tensor.op, master)
            if there != here and tensor.dtype != tf.resource:
                by_pair[there, here][tensor.name] = tensor
    return {pair: list(tensors.values()) for pair, tensors in by_pair.items()}


def reached(step: tf.Operation) -> list[tf.Operation]:
    """What a session runs for a step."""
    waiting, operations = [step], {}
    while waiting:
        op = waiting.pop()
        if op.name not in operations:
            operations[op.name] = op
            waiting += [tensor.op for tensor in op.inputs]
            waiting += op.control_inputs
    return list(operations.values())


def _device(op: tf.Operation, master: str) -> str:
    """The device of an operation; without one, that of the variable that it changes."""
    handles = [t.op.device for t in op.inputs if t.dtype == tf.resource]
    return op.device or next(filter(None, handles), master)


def _holds(operations: Sequence[tf.Operation]) -> list[str]:
    """`variables 1.1 MB` and the scopes with most operations, with their numbers."""
    handles = [op for op in operations if op.type == "VarHandleOp"]
    shapes = [(tf.TensorShape(op.get_attr("shape")), op) for op in handles]
    size = sum(
        shape.num_elements() * op.get_attr("dtype").size
        for shape, op in shapes
        if shape.is_fully_defined()
    )
    scopes = Counter(
        op.name.split("/")[0]
        for op in operations
        if op.type != "VarHandleOp" and "/" in op.name
    )
    counts = [f"{scope} {count}" for scope, count in scopes.most_common(_MOST_SCOPES)]
    lines = [f"variables {_size(size)}"] if handles else []
    return lines + [f"operations of {', '.join(counts)}"] * bool(counts)


def _sent(tensors: Sequence[tf.Tensor], before: Transfer) -> Transfer:
    """Adds tensors to what one device sends to another."""
    sizes = [
        tensor.shape.num_elements() * tensor.dtype.size
        for tensor in tensors
        if tensor.shape.is_fully_defined() and tensor.dtype != tf.variant
    ]
    return Transfer(
        before.tensors + len(tensors),
        before.bytes + sum(sizes),
        before.unknown + len(tensors) - len(sizes),
    )


def _size(count: float) -> str:
    """As `12 B`, `3.4 kB`, `56 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def picture(traffic: Traffic, title: str) -> str:
    """The matrix as the text of an SVG file.

    Args:
      traffic: of a step.
      title: above the matrix.
    """
    devices, few = traffic.devices, len(traffic.devices) <= _FEW_DEVICES
    cell = _CELL if few else _CELL // 4
    most = max((sent.bytes for sent in traffic.sent.values()), default=0)
    width, height = _LEFT + cell * len(devices) + 10, _HEIGHT * (len(devices) + 3)
    total = f"{_size(traffic.bytes)} cross between devices in a step"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        _text(4, 20, title, bold=True),
        _text(4, 20 + _HEIGHT, f"{total}; from the row's device to the column's:"),
    ]
    for k, device in enumerate(devices):
        x, y = _LEFT + cell * k, _HEIGHT * (k + 2)
        parts.append(_text(x + cell / 2, 20 + _HEIGHT, str(k), middle=True))
        parts.append(_text(4, y + 15, f"{k}  {device}", bold=True))
        parts.append(_text(18, y + 29, "; ".join(traffic.holds[device])))
        parts.append(_square(x, y, cell, colour="#dddddd", tooltip=device))
        for j, other in enumerate(devices):
            if sent := traffic.sent.get((device, other)):
                x = _LEFT + cell * j
                colour = _colour(sent.bytes, most)
                tooltip = f"{k} to {j}: {sent.tensors} tensors, {_all(sent)}"
                parts.append(_square(x, y, cell, colour=colour, tooltip=tooltip))
                if few:
                    parts.append(_text(x + cell / 2, y + 21, _all(sent), middle=True))
    return "\n".join([*parts, "</svg>\n"])


def _all(sent: Transfer) -> str:
    """The bytes in all; a `+` stands for tensors of unknown size."""
    return _size(sent.bytes) + " +" * bool(sent.unknown)


def _colour(count: int, most: int) -> str:
    """From white for a byte to blue for the most, by orders of magnitude."""
    share = math.log(max(count, 1)) / math.log(max(most, 2))
    red, green = (round(255 - share * (255 - end)) for end in (107, 174))
    return f"#{red:02x}{green:02x}ff"


def _square(x: float, y: float, width: float, *, colour: str, tooltip: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width - 1}" height="{_HEIGHT - 1}" '
        f'fill="{colour}"><title>{html.escape(tooltip)}</title></rect>'
    )


def _text(
    x: float, y: float, text: str, *, bold: bool = False, middle: bool = False
) -> str:
    how = ' font-weight="bold"' * bold + ' text-anchor="middle"' * middle
    return f'<text x="{x}" y="{y}"{how}>{html.escape(text)}</text>'
