"""In-graph multi-GPU training: one client, one `tf.Graph`, one tower per GPU.

Terms, and the module that defines each:

* tower: one copy of the model's operations, on one device (`compute.tower`);
* stage, micro-batch: a part of a tower on its own device, a part of the tower's batch
  (`pipelines.pipeline`);
* replica: one copy of a variable (`variable_update.synchronous`);
* shard: a part of a layer's variables and work on another device (`layout.shards`);
* task, cluster: a process with a server, and all tasks that train together
  (`layout.cluster_spec`);
* placement: which device holds what (`layout.placement`);
* reduction: the mean of the towers' gradients (`gradients.reduction`);
* variable update: where variables are and how gradients update them
  (`variable_update.modes`);
* position: how many examples of the input stream were consumed (`data.inputs`).

Where to start reading: `train` (the main), `planning` (flags -> the plan of a run),
`run` (a whole run), `graph` (a plan -> one `tf.Graph`), `session.loop` (the steps).

From Python call `towers.fit`, `towers.evaluate` and `towers.predict`.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_CALLS = ("fit", "evaluate", "predict")
_PACKAGES = ("callbacks", "data")  # for models and data of the user's


def __getattr__(name: str) -> Any:
    """The functions of `towers.api`; TensorFlow is imported at the first access."""
    if name in _CALLS:
        return getattr(importlib.import_module("towers.api"), name)
    if name in _PACKAGES:
        return importlib.import_module(f"towers.{name}")
    raise AttributeError(f"module 'towers' has no attribute {name!r}")
