"""Reads the JSON lines of a run and draws the loss and the speed.

    python examples/plot_metrics.py [FOLDER]

A run with `--benchmark_log_dir=FOLDER` writes `metric.log` there, a JSON object per
line. Without FOLDER the example trains first. It writes `metrics.svg` beside the log,
with no package beyond Python's own.
"""

import json
import pathlib
import sys
import tempfile

from flags import config
from models import get
from towers import planning, run
from towers.session.progress import Console

WIDTH, HEIGHT, MARGIN = 640, 220, 50


def read(path: pathlib.Path) -> dict[str, list[tuple[int, float]]]:
    """Metric -> its (global step, value) pairs."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for line in path.read_text().splitlines():
        metric = json.loads(line)
        point = (metric["global_step"], metric["value"])
        curves.setdefault(metric["name"], []).append(point)
    return curves


def panel(title: str, points: list[tuple[int, float]], top: int) -> str:
    """One curve as SVG."""
    steps, values = zip(*points)
    low, high = min(values), max(values)
    across = (WIDTH - 2 * MARGIN) / max(1, steps[-1] - steps[0])
    up = (HEIGHT - 2 * MARGIN) / ((high - low) or 1)
    line = " ".join(
        f"{MARGIN + (step - steps[0]) * across:.1f},"
        f"{top + HEIGHT - MARGIN - (value - low) * up:.1f}"
        for step, value in points
    )
    return (
        f'<text x="{MARGIN}" y="{top + 30}">{title}: {low:.4g} to {high:.4g}</text>'
        f'<polyline points="{line}" fill="none" stroke="steelblue" stroke-width="2"/>'
    )


def draw(curves: dict[str, list[tuple[int, float]]], names: list[str]) -> str:
    """The curves of these names, one below the other, as the text of an SVG file."""
    panels = [panel(name, curves[name], k * HEIGHT) for k, name in enumerate(names)]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" '
        f'width="{WIDTH}" height="{HEIGHT * len(names)}">{"".join(panels)}</svg>'
    )


def train(folder: str) -> None:
    """A short run that writes its metrics to the folder."""
    settings = config.make(
        num_gpus=2, device="cpu", num_epochs=3.0, benchmark_log_dir=folder
    )
    run.train(planning.make(settings, get), Console(sys.stdout))


def main() -> None:
    """Draws the curves of a run."""
    if len(sys.argv) > 1:
        folder = sys.argv[1]
    else:
        folder = tempfile.mkdtemp()
        train(folder)
    curves = read(pathlib.Path(folder, "metric.log"))
    chosen = ["current_examples_per_sec", "loss"]
    names = [name for name in chosen if len(curves.get(name, [])) > 1] or [*curves][:2]
    picture = pathlib.Path(folder, "metrics.svg")
    picture.write_text(draw(curves, names))
    print(f"{', '.join(names)} of {len(curves)} metrics are drawn in {picture}")


if __name__ == "__main__":
    main()
