"""The chart of docs/performance.md, drawn from the first table of that page.

python -m benchmarks.lib.speed_chart > docs/images/speed.svg
"""

import re
import sys

_PEERS = {"tf_cnn_benchmarks": "#4878cf", "PyTorch 2.13": "#e08b3e"}
_LEFT, _UNIT, _BAR = 170, 300, 15  # pixels: left of the bars, of a ratio of 1, high
_TOP = 56


def ratios(page: str) -> dict[str, dict[str, tuple[float, float, float]]]:
    """Case -> peer -> (median, least, most) of the first table of a page.

    Args:
      page: Markdown with cells like `1.39 [1.33, 1.44]`.
    """
    table = page[page.index("\n| |") :].strip().split("\n\n")[0].splitlines()
    _, *peers = (cell.strip() for cell in table[0].strip("|").split("|"))
    rows = {}
    for line in table[2:]:
        case, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        numbers = [tuple(map(float, re.findall(r"[\d.]+", cell))) for cell in cells]
        rows[case] = {peer: ratio for peer, ratio in zip(peers, numbers) if ratio}
    return rows


def draw(rows: dict[str, dict[str, tuple[float, float, float]]]) -> str:
    """The text of an SVG file: a bar for each case and peer, with least and most."""
    shapes, y = [], _TOP
    for case, by_peer in rows.items():
        peers = [peer for peer in _PEERS if peer in by_peer]
        for peer in peers:
            median, least, most = by_peer[peer]
            left, right = _LEFT + _UNIT * least, _LEFT + _UNIT * most
            middle = y + _BAR / 2
            shapes += [
                f'<rect x="{_LEFT}" y="{y}" width="{_UNIT * median:.0f}" '
                f'height="{_BAR - 2}" fill="{_PEERS[peer]}"/>',
                f'<path d="M{left:.0f},{middle - 1} H{right:.0f}" stroke="black"/>',
                f'<text x="{right + 8:.0f}" y="{y + 11}">{median:.2f}</text>',
            ]
            if peer == peers[0]:
                place = f'x="{_LEFT - 8}" y="{y + 11}" text-anchor="end"'
                shapes.append(f"<text {place}>{case}</text>")
            y += _BAR
        y += 8 * bool(peers)
    width = _LEFT + 2 * _UNIT + 60
    equal = _LEFT + _UNIT  # where a ratio is 1
    legend = [
        f'<rect x="{_LEFT + 190 * k}" y="32" width="12" height="12" fill="{colour}"/>'
        f'<text x="{_LEFT + 190 * k + 18}" y="42">over {peer}</text>'
        for k, (peer, colour) in enumerate(_PEERS.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
            f'height="{y + 10}" viewBox="0 0 {width} {y + 10}" '
            'font-family="sans-serif" font-size="12">',
            '<rect width="100%" height="100%" fill="white"/>',
            f'<text x="{_LEFT}" y="20" font-weight="bold">Images per second, over '
            "those of a peer on the same machine</text>",
            *legend,
            *shapes,
            f'<path d="M{equal},{_TOP - 4} V{y}" stroke="black" stroke-dasharray="3"/>',
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    sys.stdout.write(draw(ratios(sys.stdin.read())))
