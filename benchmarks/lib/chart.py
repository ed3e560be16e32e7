"""Plots of ratios; without matplotlib there are none, and a line says why."""

from collections.abc import Mapping

from benchmarks.lib.results import Results

try:
    from matplotlib import ticker
    from matplotlib.figure import Figure
except ImportError:
    Figure = None

MISSING = "no plot: there is no matplotlib; pip install 'towers[plot]'"


def write(results: Results, path: str) -> str | None:
    """Draws ours / peer of every case as bars, with the spread over the rounds.

    Args:
      results: what was measured.
      path: of the PNG file.

    Returns:
      None, or why nothing was drawn, in a line.
    """
    if Figure is None:
        return MISSING
    peers = [p for p in results.peers if results.over_cases(p) is not None]
    if not peers:
        return "no plot: nothing to compare with"
    figure = Figure(figsize=(1.5 + 1.2 * len(results.cases), 4.5), layout="constrained")
    axes = figure.add_subplot()
    width = 0.8 / len(peers)
    for index, peer in enumerate(peers):
        bars = [(i, results.against(c, peer)) for i, c in enumerate(results.cases)]
        bars = [(i, spread) for i, spread in bars if spread]
        spreads = [spread for _, spread in bars]
        axes.bar(
            [i + (index - (len(peers) - 1) / 2) * width for i, _ in bars],
            [s.median - 1 for s in spreads],
            width,
            bottom=1,
            yerr=[
                [s.median - s.least for s in spreads],
                [s.most - s.median for s in spreads],
            ],
            capsize=2,
            label=f"{peer} (mean {results.over_cases(peer):.2f})",
        )
    axes.axhline(1.0, color="black", linewidth=0.8)
    # Half as fast and twice as fast are equally far from 1.
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(ticker.NullLocator())
    axes.set_xticks(
        range(len(results.cases)), [str(case) for case in results.cases], rotation=30
    )
    axes.set_ylabel(f"{results.systems[0]} / peer, images per second")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    return None


def curves(
    lines: Mapping[str, Mapping[str, float]], path: str, labels: tuple[str, str]
) -> str | None:
    """Draws lines over powers of two, both axes logarithmic.

    Args:
      lines: name -> {x as text: y}.
      path: of the PNG file.
      labels: of the axes.

    Returns:
      None, or why nothing was drawn, in a line.
    """
    if Figure is None:
        return MISSING
    figure = Figure(figsize=(6.5, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for name, points in lines.items():
        curve = sorted((float(x), y) for x, y in points.items())
        axes.plot([x for x, _ in curve], [y for _, y in curve], marker="o", label=name)
    axes.axhline(1.0, color="black", linewidth=0.8)
    for axis, set_scale in (
        (axes.xaxis, axes.set_xscale),
        (axes.yaxis, axes.set_yscale),
    ):
        set_scale("log", base=2)
        axis.set_major_formatter("{x:g}")
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)
    return None
