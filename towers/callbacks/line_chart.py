"""A line chart as SVG, without a library."""

import html
import math
from collections.abc import Sequence

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 80, 20, 40, 50  # margins
_FONT = 'font-family="sans-serif" font-size="13"'
_TICKS = 5  # on the vertical axis


def line_chart(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    title: str,
    labels: tuple[str, str],
    mark: float | None = None,
) -> str:
    """The SVG text of a line over a logarithmic horizontal axis.

    Args:
      xs: above 0, ascending, not all equal.
      ys: finite, one for each.
      title: above the chart.
      labels: of the horizontal and the vertical axis.
      mark: an x at which a vertical line is drawn.
    """
    low, high = math.log10(xs[0]), math.log10(xs[-1])
    bottom, top = min(ys), max(ys)
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
    points = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in zip(xs, ys))
    parts.append(f'<polyline points="{points}" fill="none" stroke="#36c"/>')
    return "\n".join([*parts, "</svg>\n"])
