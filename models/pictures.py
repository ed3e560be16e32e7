"""Pictures of the results of an evaluation, as uint8 arrays [height, width, 3].

`Model.derived` may return them beside numbers:

    derived=lambda values: {"confusion": pictures.confusion(values["matrix"])}

They have axes only if matplotlib is installed (`pip install 'towers[plot]'`).
"""

import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from models import metrics

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError:
    Figure = FigureCanvasAgg = None

_SIZE = 480  # pixels of a plot's sides
_GAP = 2  # pixels between the pictures of a grid
_LEAST = 32  # pixels of a side of a picture in a grid


def confusion(matrix: np.ndarray) -> np.ndarray:
    """A heat map of a confusion matrix; darker is a larger share of the label.

    Args:
      matrix: the sums of `metrics.confusion_matrix`, [classes, classes]: a row for each
        label, a column for each predicted class.
    """
    totals = matrix.sum(1, keepdims=True)
    shares = matrix / np.where(totals, totals, 1)
    if Figure is None:
        cells = enlarged(1 - shares[..., None], _SIZE // 2)
        return _pixels(np.repeat(cells, 3, 2))

    def draw(axes: Any) -> None:
        axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        axes.set(xlabel="predicted class", ylabel="label")
        axes.set_title("number, and share of the label")
        if len(matrix) <= 20:
            for (row, column), count in np.ndenumerate(matrix):
                color = "white" if shares[row, column] > 0.5 else "black"
                text = f"{count:.4g}" if count else ""
                axes.text(column, row, text, color=color, ha="center", va="center")

    return _drawn(draw)


def roc(histogram: np.ndarray) -> np.ndarray:
    """The ROC curve; with matplotlib, also the area under it.

    Args:
      histogram: the sums of `metrics.score_histogram`, [2, bins].
    """
    false, true = metrics.roc(histogram)
    if Figure is None:
        canvas = np.ones((_SIZE, _SIZE, 3))
        along = np.linspace(0, 1, 4 * _SIZE)
        # Points at equal distances along the curve, which may have vertical parts.
        length = np.concatenate([[0], np.cumsum(np.abs(np.diff(false + true)))]) / 2
        curve = np.interp(along, length, false), np.interp(along, length, true)
        for (x, y), color in (((along, along), 0.8), (curve, (0, 0, 0.8))):
            column, row = (np.round(v * (_SIZE - 3)).astype(int) for v in (x, 1 - y))
            for shift in range(3):  # the width of the line
                canvas[row + shift, column] = canvas[row, column + shift] = color
        return _pixels(canvas)

    def draw(axes: Any) -> None:
        axes.plot([0, 1], [0, 1], color="lightgray")
        axes.plot(false, true)
        title = f"area {metrics.auc(histogram):.4f}"
        axes.set(xlabel="false positives", ylabel="true positives", title=title)

    return _drawn(draw)


def grid(images: np.ndarray) -> np.ndarray:
    """Pictures side by side, row by row.

    Args:
      images: float [pictures, height, width, 1 or 3], from 0 (black) to 1; NaN is
        black.
    """
    tiles = [enlarged(image, _LEAST) for image in np.nan_to_num(images)]
    columns = int(np.ceil(np.sqrt(len(tiles))))
    height, width, _ = tiles[0].shape
    rows = -(-len(tiles) // columns)
    whole = np.ones((rows * (height + _GAP), columns * (width + _GAP), 3))
    for index, tile in enumerate(tiles):
        row, column = divmod(index, columns)
        y, x = row * (height + _GAP), column * (width + _GAP)
        whole[y : y + height, x : x + width] = tile
    return _pixels(whole[:-_GAP, :-_GAP])


def enlarged(image: np.ndarray, least: int) -> np.ndarray:
    """An image [height, width, channels] of larger pixels, of `least` or more rows."""
    factor = -(-least // image.shape[0])
    return image.repeat(factor, 0).repeat(factor, 1)


def has_matplotlib() -> bool:
    """Whether `line_chart_png` can draw."""
    return Figure is not None


def line_chart_png(
    xs: Sequence[float],
    ys: Sequence[float],
    *,
    title: str,
    labels: tuple[str, str],
    mark: float | None = None,
) -> bytes:
    """A line over a logarithmic horizontal axis as a PNG file, drawn by matplotlib.

    Args:
      xs: above 0, ascending.
      ys: finite, one for each.
      title: above the chart.
      labels: of the horizontal and the vertical axis.
      mark: an x at which a vertical line is drawn.
    """
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.subplots()
    axes.plot(xs, ys)
    axes.set(xscale="log", title=title, xlabel=labels[0], ylabel=labels[1])
    if mark is not None:
        axes.axvline(mark, color="red", linestyle="dashed", label=f"{mark:.3g}")
        axes.legend()
    axes.grid(alpha=0.3)
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=100)
    return file.getvalue()


def _pixels(image: np.ndarray) -> np.ndarray:
    return np.round(np.clip(image, 0, 1) * 255).astype(np.uint8)


def _drawn(draw: Callable[[Any], None]) -> np.ndarray:
    """The picture that a function draws with matplotlib; the figure is closed."""
    figure = Figure(figsize=(_SIZE / 100, _SIZE / 100), dpi=100, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    draw(figure.subplots())
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
