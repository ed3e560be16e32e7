"""A tower's outputs besides gradients: shares of loss and metrics, or predictions."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def shares_of(
    task: Any, outputs: Any, batch: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """A batch's shares of the mean `loss` and metrics, float32 scalars by name.

    Args:
      task: a `tower.TowerSpec` with the model that has the loss and metrics.
      outputs: of the last block.
      batch: `labels`, `weights`, `total_weight`.
    """
    values = task.model.measure(
        outputs,
        batch["labels"],
        num_classes=task.num_classes,
        batch_size=batch["weights"].shape[0],
    )
    share_of = batch["weights"] / batch["total_weight"]
    return {
        name: tf.reduce_sum(value * share_of, name=name)
        for name, value in values.items()
    }


def predicted(outputs: Any, names: Any) -> dict[str, tf.Tensor]:
    """The last block's outputs by name, from a nest of names; and a `loss` of 0."""
    tensors = {
        name: tf.cast(x, tf.float32) if x.dtype.is_floating else tf.identity(x)
        for name, x in zip(tf.nest.flatten(names), tf.nest.flatten(outputs))
    }
    return {"loss": tf.constant(0.0), **tensors}
