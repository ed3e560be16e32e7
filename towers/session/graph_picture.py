"""The graph of a step as an SVG: its name scopes, its devices, and what they exchange.

The upper part shows the name scopes at the top level of the graph, as TensorBoard does,
and the bytes that each reads from the others in a step.  The lower part is a matrix of
the bytes that a row's device sends to a column's.  With a parameter server one row and
one column are full; with a ring or a pipeline the squares next to the diagonal are.
"""

import html
import itertools
import math
import os
import re
from collections.abc import Iterable

import tensorflow as tf

from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph
from towers.layout import graph_names
from towers.session import traffic as crossing
from towers.session.traffic import Scope, Scopes, Traffic, Transfer, in_bytes

_WIDTH, _BAR_WIDTH = 860, 790  # of the picture and of its widest boxes, in pixels
_TOP, _BAR, _GAP = 64, 40, 44  # where boxes begin, a box's height, between boxes
_TITLE, _PART = 42, 22  # of a tower's box: the height of its title, and of a part
_MOST_TOWERS, _MOST_PARTS = 8, 7
_CELL, _ROW = 76, 36  # a square of the matrix
_FEW_DEVICES = 24  # with more, squares are smaller and have no numbers
_LETTER = 6.4  # the mean width of a letter
_DEVICE_COLOURS = (
    *("#cfe2ff", "#d3f2d9", "#ffe7c2", "#f3d1f4"),
    *("#fbd0d0", "#d2f1f4", "#e6dfc8", "#dcd6f7"),
)
_INPUT, _VARIABLES, _REDUCTION, _UPDATE = (
    name.removesuffix("/")
    for name in (
        graph_names.INPUT,
        graph_names.VARIABLES,
        graph_names.REDUCTION,
        graph_names.UPDATE,
    )
)


def write_graph(train: TrainGraph, path: str, side: SideOutputs, *, title: str) -> None:
    """Writes the nodes of a graph, or a picture of it.

    Args:
      train: the graph.
      path: of the file: `.svg` for the picture, `.txt` or `.pbtxt` for nodes as text.
      side: writes it.
      title: of the picture.
    """
    folder, name = os.path.split(os.path.abspath(path))
    if name.endswith(".svg"):
        picture = draw(crossing.of_scopes(train), crossing.of(train), title)
        side.write("nodes of the graph", path, picture)
        return
    with side.writing("nodes of the graph", path):
        tf.io.write_graph(train.graph, folder, name, as_text=name.endswith("txt"))


def draw(scopes: Scopes, traffic: Traffic, title: str) -> str:
    """The text of an SVG file.

    Args:
      scopes: of a step, for the upper part.
      traffic: of the same step, for the lower part.
      title: of the picture.
    """
    colours = dict(zip(traffic.devices, itertools.cycle(_DEVICE_COLOURS)))
    above, bottom = _flow(scopes, colours)
    below, right, bottom = _matrix(traffic, colours, bottom + 16)
    width = max(_WIDTH, right)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{bottom}" viewBox="0 0 {width} {bottom}" '
            'font-family="sans-serif" font-size="12">',
            '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" '
            'markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0,0 L8,4 L0,8 z" fill="#555555"/></marker></defs>',
            '<rect width="100%" height="100%" fill="white"/>',
            _text(10, 22, title, bold=True),
            _text(
                10,
                42,
                "Boxes are the graph's name scopes, coloured by device. "
                "Arrows are what one step reads.",
            ),
            *above,
            *below,
            "</svg>\n",
        ]
    )


def _flow(scopes: Scopes, colours: dict[str, str]) -> tuple[list[str], int]:
    """The shapes of the name scopes, and the y coordinate below them."""
    names = [name for name in scopes.by_name if re.fullmatch(r"tower_\d+", name)]
    most_parts = max(len(_parts(scopes.by_name[name])) for name in names)
    height = _TITLE + _PART * most_parts + 6
    towers_top = _TOP + 2 * _BAR + 12 + _GAP
    tops = {
        _INPUT: _TOP,
        _VARIABLES: _TOP + _BAR + 12,
        _REDUCTION: towers_top + height + _GAP,
        _UPDATE: towers_top + height + _BAR + 2 * _GAP,
    }
    towers, lines, boxes = _shortened(names, _MOST_TOWERS), [], []
    pitch = (_BAR_WIDTH + 12) / len(towers)
    for place, name in enumerate(towers):
        x = 10 + place * pitch
        if name not in scopes.by_name:
            boxes.append(_text(x + pitch / 2, towers_top + 20, name, middle=True))
            continue
        box = x, towers_top, pitch - 12, height
        boxes += _tower(box, name, scopes.by_name[name], colours)
        for source, share, above in ((_INPUT, 0.1, 26), (_VARIABLES, 0.4, 10)):
            ends = tops[source] + _BAR, towers_top
            sent = scopes.sent.get((source, name))
            lines += _arrow(x + share * pitch, ends, sent, above=above)
        ends = towers_top + height, tops[_REDUCTION]
        lines += _arrow(x + 0.4 * pitch, ends, scopes.sent.get((name, _REDUCTION)))
    ends = tops[_REDUCTION] + _BAR, tops[_UPDATE]
    lines += _arrow(_BAR_WIDTH / 2, ends, scopes.sent.get((_REDUCTION, _UPDATE)))
    lines.append(_assignment(tops[_UPDATE], tops[_VARIABLES]))
    for name, top in tops.items():
        if scope := scopes.by_name.get(name):
            boxes += _bar(top, name, scope, colours[scope.devices[0]])
    bottom = tops[_UPDATE] + _BAR
    if others := _others(scopes):
        bottom += 24
        boxes.append(_text(10, bottom - 4, f"Also: {others}"))
    return lines + boxes, bottom


def _others(scopes: Scopes) -> str:
    """The transfers of a kilobyte or more between scopes without an arrow, as text."""
    ends = ((_INPUT, "tower"), (_VARIABLES, "tower"), ("tower", _REDUCTION))
    drawn = {*ends, (_REDUCTION, _UPDATE)}
    others = [
        f"{source} to {reader}: {_all(sent)}"
        for (source, reader), sent in scopes.sent.items()
        if sent.bytes >= 1000 and (_kind(source), _kind(reader)) not in drawn
    ]
    return "; ".join(_shortened(others, 4))


def _kind(name: str) -> str:
    """`tower` of `tower_1`."""
    return re.sub(r"^tower_\d+$", "tower", name)


def _parts(scope: Scope) -> list[str]:
    return _shortened(scope.parts, _MOST_PARTS)


def _shortened(names: Iterable[str], most: int) -> list[str]:
    """At most `most` names; if there are more, those in the middle become a number."""
    names = list(names)
    if len(names) <= most:
        return names
    return [*names[: most - 2], f"... {len(names) - most + 1} more", names[-1]]


def _tower(
    box: tuple[float, float, float, float],
    name: str,
    scope: Scope,
    colours: dict[str, str],
) -> list[str]:
    """The box (x, y, width, height) of a tower, with what is in its name scope."""
    x, y, width, _ = box
    devices = [device for device in colours if device in scope.devices]
    places = ", ".join(_short(device) for device in devices)
    shapes = [
        _rectangle(box, fill=colours[devices[0]], tooltip=places),
        _text(x + 8, y + 17, name, bold=True),
        _text(x + 8, y + 33, places),
    ]
    for k, part in enumerate(_parts(scope)):
        top = y + _TITLE + k * _PART
        if device := scope.parts.get(part):
            fill = colours[device] if len(devices) > 1 else "white"
            tooltip = f"{name}/{part} on {device}"
            inner = x + 6, top, width - 12, _PART - 3
            shapes.append(_rectangle(inner, fill=fill, tooltip=tooltip))
        letters = int((width - 16) / _LETTER)
        text = part if len(part) <= letters else f"{part[: letters - 2]}..."
        shapes.append(_text(x + width / 2, top + 14, text, middle=True))
    return shapes


def _bar(y: float, name: str, scope: Scope, fill: str) -> list[str]:
    """The box of a name scope that is not a tower."""
    first, *others = scope.devices
    places = _short(first) + f" and {len(others)} more" * bool(others)
    holds = f"{scope.operations} operations on {places}"
    if scope.variable_bytes:
        holds = f"{in_bytes(scope.variable_bytes)}, {holds}"
    box = 10, y, _BAR_WIDTH, _BAR
    return [
        _rectangle(box, fill=fill, tooltip=", ".join(scope.devices)),
        _text(18, y + 25, name, bold=True),
        _text(104, y + 25, holds),
    ]


def _short(device: str) -> str:
    """The device's short name: `CPU:1`, or `worker 0 CPU:1` on a cluster."""
    spec = tf.DeviceSpec.from_string(device)
    task = f"{spec.job} {spec.task} " if spec.job else ""
    return f"{task}{spec.device_type}:{spec.device_index}"


def _arrow(
    x: float, ends: tuple[float, float], sent: Transfer | None, *, above: float = 10
) -> list[str]:
    """An arrow down from one row of boxes to another, with its bytes beside it."""
    if not sent or not (sent.bytes or sent.unknown):
        return []
    start, end = ends
    return [
        f'<path d="M{x:.0f},{start} V{end}" {_LINE}/>',
        _text(x + 5, end - above, _all(sent)),
    ]


def _assignment(start: float, end: float) -> str:
    """The arrow from the update back to the variables, at the right."""
    x, half = 10 + _BAR_WIDTH, _BAR / 2
    return (
        f'<path d="M{x},{start + half} h26 V{end + half} H{x}" {_LINE}/>'
        f'<text transform="translate({x + 42},{(start + end) / 2}) rotate(90)" '
        'text-anchor="middle">assigns</text>'
    )


_LINE = 'fill="none" stroke="#555555" marker-end="url(#arrow)"'


def _matrix(
    traffic: Traffic, colours: dict[str, str], top: int
) -> tuple[list[str], int, int]:
    """The shapes of the matrix, and the coordinates of its right and lower ends."""
    devices, few = traffic.devices, len(traffic.devices) <= _FEW_DEVICES
    cell = _CELL if few else _CELL // 4
    holds = {device: "; ".join(traffic.holds[device]) for device in devices}
    longest = max(len(text) for text in (*devices, *holds.values()))
    left = 24 + math.ceil(_LETTER * longest)
    most = max((sent.bytes for sent in traffic.sent.values()), default=0)
    total = f"{in_bytes(traffic.bytes)} cross between devices in a step"
    shapes = [_text(10, top + 14, f"{total}; from the row's device to the column's:")]
    for k, device in enumerate(devices):
        x, y = left + cell * k, top + 24 + _ROW * k
        shapes.append(_text(x + cell / 2, top + 14, str(k), middle=True))
        shapes.append(_text(10, y + 15, f"{k}  {device}", bold=True))
        shapes.append(_text(24, y + 29, holds[device]))
        shapes.append(_square(x, y, cell, colour=colours[device], tooltip=device))
        for j, other in enumerate(devices):
            if sent := traffic.sent.get((device, other)):
                x = left + cell * j
                colour = _colour(sent.bytes, most)
                tooltip = f"{k} to {j}: {sent.tensors} tensors, {_all(sent)}"
                shapes.append(_square(x, y, cell, colour=colour, tooltip=tooltip))
                if few:
                    shapes.append(_text(x + cell / 2, y + 21, _all(sent), middle=True))
    return shapes, left + cell * len(devices) + 10, top + 34 + _ROW * len(devices)


def _all(sent: Transfer) -> str:
    """The number of bytes; a `+` means further tensors of unknown size."""
    return in_bytes(sent.bytes) + " +" * bool(sent.unknown)


def _colour(count: int, most: int) -> str:
    """A colour from white (one byte) to blue (`most` bytes), by orders of magnitude."""
    share = math.log(max(count, 1)) / math.log(max(most, 2))
    red, green = (round(255 - share * (255 - end)) for end in (107, 174))
    return f"#{red:02x}{green:02x}ff"


def _square(x: float, y: float, width: float, *, colour: str, tooltip: str) -> str:
    return (
        f'<rect x="{x}" y="{y}" width="{width - 1}" height="{_ROW - 1}" '
        f'fill="{colour}"><title>{html.escape(tooltip)}</title></rect>'
    )


def _rectangle(
    box: tuple[float, float, float, float], *, fill: str, tooltip: str
) -> str:
    x, y, width, height = box
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" '
        f'rx="4" fill="{fill}" stroke="#888888">'
        f"<title>{html.escape(tooltip)}</title></rect>"
    )


def _text(
    x: float, y: float, text: str, *, bold: bool = False, middle: bool = False
) -> str:
    style = ' font-weight="bold"' * bold + ' text-anchor="middle"' * middle
    return f'<text x="{x:.4g}" y="{y:.4g}"{style}>{html.escape(text)}</text>'
