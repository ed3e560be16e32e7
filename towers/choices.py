"""The tables of names that flags and settings choose from."""

from collections.abc import Collection, Mapping
from typing import Any

import models
from models.initial_values import CONV_INITIALIZERS, DENSE_INITIALIZERS
from towers.compute.precision import COMPUTE_DTYPES
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import RECOMPUTE
from towers.optimizers import learning_rate
from towers.optimizers.optimizer import OPTIMIZERS
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.variable_update.variable_store import VARIABLE_PLACEMENTS

# Flag -> the table that its values are names in.
CHOICES: dict[str, Mapping[str, Any] | Collection[str]] = {
    "compute_dtype": COMPUTE_DTYPES,
    "conv_initializer": CONV_INITIALIZERS,
    "dense_initializer": DENSE_INITIALIZERS,
    "learning_rate_schedule": learning_rate.SCHEDULES,
    "model": models.MODELS,
    "optimizer": OPTIMIZERS,
    "recompute": RECOMPUTE,
    "schedule": SCHEDULES,
    "variable_placement": VARIABLE_PLACEMENTS,
    "variable_update": VARIABLE_UPDATES,
}
