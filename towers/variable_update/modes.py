"""The table of variable update modes; `--variable_update` names a row.

To add a mode, derive a class from `base.VariableUpdate` and add a row.  Which flags go
with it is derived from the attributes of the class.
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

# The row of a run that does not name one.
DEFAULT = "parameter_server"
