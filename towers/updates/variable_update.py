"""How variables and gradients meet: the table of modes.

`--variable_update` names a row.  A new mode is one class, derived from
`mode.Mode`, and one row.
"""

from collections.abc import Callable

from towers.updates.late_update import Asynchronous, Relaxed, Staged
from towers.updates.mode import Mode
from towers.updates.synchronous import (
    DistributedReplicated,
    Independent,
    ParameterServer,
    Replicated,
)

VARIABLE_UPDATES: dict[str, Callable[..., Mode]] = {
    "parameter_server": ParameterServer,
    "replicated": Replicated,
    "distributed_replicated": DistributedReplicated,
    "independent": Independent,
    "asynchronous": Asynchronous,
    "staged": Staged,
    "relaxed": Relaxed,
}

# The row of a run that names none.
DEFAULT = "parameter_server"
