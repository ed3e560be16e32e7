"""Settings of a `trainer.Trainer` that take the steps of one tower."""

from typing import Any

from towers.layout.stages import Pipeline
from towers.variable_update.modes import VARIABLE_UPDATES


def of_batch(batch_size: int) -> dict[str, dict[str, Any]]:
    """Name -> settings.

    Args:
      batch_size: of the one tower, a multiple of 8.
    """
    modes = [name for name, update in VARIABLE_UPDATES.items() if update.exact]
    return {
        **{mode: dict(towers=4, variable_update=mode) for mode in modes},
        "rounds": dict(towers=4, batch_size=batch_size // 8, accumulate_steps=2),
        "stages": dict(towers=2, pipeline=Pipeline(2, 4)),
        "recomputed": dict(towers=2, pipeline=Pipeline(2, 4, recompute="block")),
        "balanced": dict(pipeline=Pipeline(2, 4, balance="time")),
        "compiled": dict(towers=2, xla_compile=True),
    }
