"""The table of variable update modes; `--variable_update` names a row.

To add a mode, derive a class from `base.VariableUpdate` and add a row.  Which flags go
with it is derived from the attributes of the class.
"""

from flags.variables import VariablesFlags
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


def mode_of(flags: VariablesFlags) -> str:
    """The row of `VARIABLE_UPDATES` that the flags of tf_cnn_benchmarks choose."""
    for name, mode in VARIABLE_UPDATES.items():
        if mode.switch and getattr(flags, mode.switch.flag) == mode.switch.value:
            return name
    return flags.variable_update


def towers_per_step(variable_update: str, num_towers: int) -> int:
    """How many of the towers take a step together."""
    return num_towers if VARIABLE_UPDATES[variable_update].together else 1
