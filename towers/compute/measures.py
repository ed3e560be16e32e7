"""A tower's outputs besides gradients: shares of loss and metrics, or predictions."""

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from models.logits import Logits
from towers.data import nests

# Begins the names of pictures among a tower's metrics.
PICTURES = "pictures/"
# An evaluation shows so many of its first examples.
NUM_PICTURES = 64


def measured(
    task: Any, outputs: Any, batch: Mapping[str, Any]
) -> tuple[dict[str, tf.Tensor], Any]:
    """As `predicted` if the task predicts; else `shares_of`, and ().

    The arguments are those of `shares_of`.
    """
    if task.predicts:
        return predicted(outputs, batch["weights"].shape[0])
    return shares_of(task, outputs, batch), ()


def shares_of(
    task: Any, outputs: Any, batch: Mapping[str, Any]
) -> dict[str, tf.Tensor]:
    """A batch's shares of the mean `loss` and metrics, float32 scalars by name.

    In evaluation also the sums of wider metrics, float64 [...], and by names that begin
    with `PICTURES` the pictures of the evaluation's first examples, float32
    [NUM_PICTURES, height, width, 1 or 3], black where another batch has the example:
    all are added to those of other batches.

    Args:
      task: a `tower.TowerSpec` with the model that has the loss and metrics.
      outputs: of the last block.
      batch: `labels`, `weights`, `total_weight`, `first`.
    """
    batch_size = batch["weights"].shape[0]
    values = task.model.measure(
        outputs,
        batch["labels"],
        num_classes=task.num_classes,
        batch_size=batch_size,
    )
    share_of = batch["weights"] / batch["total_weight"]
    shares = {
        name: tf.reduce_sum(value * share_of, name=name)
        for name, value in values.items()
        if value.shape.rank == 1
    }
    if task.training:
        return shares
    weights = tf.cast(share_of, tf.float64)
    for name, value in values.items():
        if name not in shares:
            shares[name] = tf.tensordot(weights, tf.cast(value, tf.float64), 1)
    # Of later examples none is kept.
    number = batch["first"] + tf.range(batch_size, dtype=tf.int64)
    place = tf.where(number < NUM_PICTURES, number, -1)
    pictures = task.model.show(outputs, batch["labels"], batch_size=batch_size)
    for name, images in pictures.items():
        placed = tf.math.unsorted_segment_sum(images, place, NUM_PICTURES)
        shares[f"{PICTURES}{name}"] = placed
    return shares


def predicted(outputs: Any, batch_size: int) -> tuple[dict[str, tf.Tensor], Any]:
    """The last block's outputs by name and a `loss` of 0; and the nest of the names.

    Raises:
      ValueError: an output does not have a row for each example.
    """
    outputs = tf.nest.map_structure(
        lambda x: x.gathered() if isinstance(x, Logits) else x, outputs
    )
    names = nests.numbered("predictions", outputs)
    for name, x in zip(tf.nest.flatten(names), tf.nest.flatten(outputs)):
        if not x.shape.rank or x.shape[0] != batch_size:
            raise ValueError(
                f"the last block returned {name} of shape {x.shape}, of which no row "
                f"belongs to each of {batch_size} examples; return [batch, ...]"
            )
    tensors = {
        name: tf.cast(x, tf.float32) if x.dtype.is_floating else tf.identity(x)
        for name, x in zip(tf.nest.flatten(names), tf.nest.flatten(outputs))
    }
    return {"loss": tf.constant(0.0), **tensors}, names
