"""The files of evaluations.

| file | of | what |
|---|---|---|
| `events.out.tfevents.*` | all evaluations | means and pictures for TensorBoard |
| `<picture>-<step>.png` | each | a picture |
| `sums-<step>.npz` | each | the sums of metrics that are wider than a number, if any |
"""

import io
import os
from collections.abc import Callable

import numpy as np

from models import pictures
from towers.errors.side_outputs import SideOutputs
from towers.evaluation.eval_graph import EvalResult
from towers.session import summary


class EvalFiles:
    """Writes the files of evaluations.

    Args:
      directory: made if there is none.
      side: takes what cannot be written.
    """

    def __init__(self, directory: str, side: SideOutputs):
        self._directory = directory
        self._side = side
        self._events = summary.EventFile("summaries of evaluations", directory, side)

    def write(
        self,
        result: EvalResult,
        means: dict[str, float],
        derived: dict[str, np.ndarray],
        encode: Callable[[np.ndarray], bytes],
    ) -> None:
        """Writes the files of one evaluation.

        Args:
          result: of the evaluation.
          means: name -> mean or derived number.
          derived: name -> derived picture, uint8 [height, width, 1 or 3].
          encode: picture -> PNG.
        """
        shown = {name: pictures.grid(x) for name, x in result.pictures.items()}
        images = {
            name: (encode(image), image.shape)
            for name, image in (shown | derived).items()
        }
        self._events.add_evaluation(means, images, result.step)
        for name, (png, _) in images.items():
            self._write("pictures of evaluations", f"{name}-{result.step}.png", png)
        if result.sums:
            file = io.BytesIO()
            np.savez(file, **result.sums)  # type: ignore[arg-type]
            name = f"sums-{result.step}.npz"
            self._write("sums of evaluations", name, file.getvalue())

    def _write(self, what: str, name: str, data: bytes) -> None:
        path = os.path.join(self._directory, name.replace("/", "_"))
        self._side.write(what, path, data)
