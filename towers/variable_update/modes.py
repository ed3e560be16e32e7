"""How variables and gradients meet: the table of modes.

`--variable_update` names a row.  A new mode is one class, derived from
`base.VariableUpdate`, and one row: which flags go with it follows from its attributes.
"""

from towers.variable_update.base import VariableUpdate
from towers.variable_update.stale_updates import Asynchronous, Relaxed, Staged
from towers.variable_update.synchronous import (
    DistributedReplicated,
    Independent,
    ParameterServer,
    Replicated,
)

VARIABLE_UPDATES: dict[str, type[VariableUpdate]] = {
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
