"""A line chart as SVG, without a library."""

import html
import math
from collections.abc import Mapping, Sequence

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 50  # margins
_FONT = 'font-family="sans-serif" font-size="13"'
_TICKS = 5  # on the vertical axis
_COLOURS = ("#36c", "#c33", "#393", "#c80", "#639")  # of several lines, in turn


def line_chart(
    xs: Sequence[float],
    ys: Sequence[float] | Mapping[str, Sequence[float]],
    *,
    title: str,
    labels: tuple[str, str],
    mark: float | None = None,
) -> str:
    """The SVG text of lines over a logarithmic horizontal axis.

    Args:
      xs: above 0, ascending, not all equal.
      ys: finite, one for each; or several lines, each under its name.
      title: above the chart.
      labels: of the horizontal and the vertical axis.
      mark: an x at which a vertical line is drawn.
    """
    lines = ys if isinstance(ys, Mapping) else {"": ys}
    low, high = math.log10(xs[0]), math.log10(xs[-1])
    bottom, top = min(map(min, lines.values())), max(map(max, lines.values()))
    top += (top == bottom) * 1.0

    def across(x: float) -> float:
        share = (math.log10(x) - low) / (high - low)
        return _LEFT + share * (_WIDTH - _LEFT - _RIGHT)

    def up(y: float) -> float:
        share = (y - bottom) / (top - bottom)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    def text(x: float, y: float, words: str, more: str = "") -> str:
        return (
            f'<text x="{x:.1f}" y="{y:.1f}" {_FONT} {more}>{html.escape(words)}</text>'
        )

    middle, floor = 'text-anchor="middle"', _HEIGHT - _BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="white"/>',
        text(_WIDTH / 2, 24, title, middle),
        text(_WIDTH / 2, _HEIGHT - 12, labels[0], middle),
        text(16, _HEIGHT / 2, labels[1], f'{middle} transform="rotate(-90 16 200)"'),
    ]
    for power in range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1):
        x = across(10.0**power)
        parts.append(
            f'<path d="M{x:.1f} {_TOP}V{floor}" stroke="#ddd"/>'
            + text(x, floor + 18, f"1e{power}", middle)
        )
    for number in range(_TICKS):
        value = bottom + (top - bottom) * number / (_TICKS - 1)
        y = up(value)
        parts.append(
            f'<path d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}" stroke="#ddd"/>'
            + text(_LEFT - 6, y + 4, f"{value:.3g}", 'text-anchor="end"')
        )
    if mark is not None:
        x = across(mark)
        parts.append(
            f'<path d="M{x:.1f} {_TOP}V{floor}" stroke="#c33" stroke-dasharray="4"/>'
            + text(x, _TOP - 4, f"{mark:.3g}", f'{middle} fill="#c33"')
        )
    for number, (name, line) in enumerate(lines.items()):
        colour = _COLOURS[number % len(_COLOURS)]
        points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(xs, line))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}"/>')
        y = floor - 8 - 18 * (len(lines) - 1 - number)  # in the lower left corner
        parts.append(text(_LEFT + 8, y, name, f'fill="{colour}"'))
    return "\n".join([*parts, "</svg>\n"])
