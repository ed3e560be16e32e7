"""The flags of `towers.predict` alone; it shares its other sections with a run."""

import dataclasses
from typing import ClassVar

from flags.field import BELOW_1, field


@dataclasses.dataclass(frozen=True)
class PredictFlags:
    """Which checkpoint is used, and where the predictions are written."""

    common: ClassVar[tuple[str, ...]] = ("train_dir", "out", "eval_split")

    train_dir: str | None = field(
        None,
        "folder of the run whose newest checkpoint is used",
        unset="none; it is needed",
    )
    out: str | None = field(
        None,
        "file to write: FILE.npz holds arrays, FILE.csv and FILE.parquet tables",
        unset="none; it is needed",
    )
    eval_split: str | None = field(
        None, "split to predict", unset="validation, or test where there is none"
    )
    ema_decay: float | None = field(
        None,
        "decay of the moving averages that the run kept, to predict with them; 0 "
        "predicts with the variables themselves",
        unset="the recipe's",
        must=BELOW_1,
    )
