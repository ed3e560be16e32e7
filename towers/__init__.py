"""In-graph multi-GPU training: one client, one `tf.Graph`, one tower per GPU.

The words, and the module where each lives:

* tower: one copy of the model's operations on one device (`compute.tower`);
* stage, micro-batch: a piece of a tower on a device of its own, and of its batch
  (`pipelines.pipeline`);
* replica: one copy of a variable (`variable_update.synchronous`);
* shard: a part of a layer's variables and work on another device (`layout.shards`);
* task, cluster: a process with a server, and all that train together
  (`layout.cluster_spec`);
* placement: which device holds what (`layout.placement`);
* reduction: the towers' gradients become their mean (`gradients.mean`);
* variable update: where variables live and how gradients reach them
  (`variable_update.modes`);
* position: how many examples of the input stream were consumed (`data.inputs`).

To read on from: `train` (the main), `planning` (flags become the plan of a run), `run`
(a whole run), `graph` (the parts become one `tf.Graph`), `session.loop` (the steps).

From Python, `towers.fit`, `towers.evaluate` and `towers.predict` do it in one call.
"""

import importlib
from typing import Any

_CALLS = ("fit", "evaluate", "predict")


def __getattr__(name: str) -> Any:
    """The calls of `towers.api`, which TensorFlow is not imported for before."""
    if name in _CALLS:
        return getattr(importlib.import_module("towers.api"), name)
    raise AttributeError(f"module 'towers' has no attribute {name!r}")
