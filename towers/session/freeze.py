"""A train graph with constants in place of variables, for the forward pass alone."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flags.problem import wrong_setting
from towers import graph
from towers.checkpoints import warm_start
from towers.cluster.sessions import Local, session_config
from towers.graph import TrainGraph
from towers.planning import Plan
from towers.variable_update.base import VariableUpdate
from towers.variable_update.modes import VARIABLE_UPDATES

# TensorFlow's graphs are protocol buffers of at most 2 GB.
_MOST_BYTES = 2**31 - 2**24


def freeze(plan: Plan, built: TrainGraph, log: Callable[[str], None]) -> TrainGraph:
    """Builds the graph of a run again, with the variables' first values as constants.

    A constant is where its variable would be, so replicated variables become a constant
    on each tower's device.

    Args:
      plan: of a run of the forward pass alone.
      built: its graph with variables.
      log: takes lines for the user.

    Raises:
      ValueError: the constants do not fit into a graph.
    """
    mode = built.mode
    copies = max(1, len(mode.replica_stores))
    sizes = [4 * v.shape.num_elements() for v in mode.variables.values()]
    if (needed := copies * sum(sizes)) > _MOST_BYTES:
        raise wrong_setting(
            "freeze_when_forward_only",
            True,
            f"the constants take {needed / 1e9:.1f} GB, and a graph holds at most 2 GB",
            "leave it out, or lower `num_gpus`",
        )
    given = plan.config.training.init_checkpoint
    start = warm_start.of(given, mode.whole_variables, built.averages)
    with built.graph.as_default():
        reads = {name: v.read_value() for name, v in mode.variables.items()}
    config = session_config(plan.placement, plan.config.devices)
    with Local().open(built.graph, config) as session:
        session.run(built.initializer)
        if start:
            start.load(session, log)
        values = session.run(reads)
    return with_constants(plan.parts, values)


def with_constants(
    arguments: Mapping[str, Any], values: Mapping[str, np.ndarray]
) -> TrainGraph:
    """The graph of `graph.build` with constants in place of variables.

    Args:
      arguments: of `graph.build`.
      values: name -> value of every variable, of parts by their own names.
    """
    name = arguments["options"].variable_update

    def frozen(*positional: Any, **options: Any) -> VariableUpdate:
        mode = VARIABLE_UPDATES[name](*positional, **options)
        mode.freeze(values)
        return mode

    return graph.build(**arguments, modes={name: frozen})
