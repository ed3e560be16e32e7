"""Nests of tensors: the features or the labels of a batch, in dicts and tuples.

A tower's inputs are tensors by name.  A single tensor is `features`; those of a nest
are `features/0`, `features/1`, ... in the order of `tf.nest.flatten`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

# The inputs that are divided among towers, rounds or micro-batches.
BATCH = ("features", "labels", "weights")


def numbered(kind: str, nest: Any) -> Any:
    """A nest of the same structure that holds the names that `named` gives."""
    return tf.nest.pack_sequence_as(nest, list(named(kind, nest)))


def named(kind: str, nest: Any) -> dict[str, Any]:
    """Name of a tower's input -> its tensor or spec.

    Args:
      kind: `features` or `labels`.
      nest: of tensors or specs; an empty one has no names.
    """
    if not tf.nest.is_nested(nest):
        return {kind: nest}
    return {f"{kind}/{i}": leaf for i, leaf in enumerate(tf.nest.flatten(nest))}


def flat(batch: Mapping[str, Any]) -> dict[str, Any]:
    """A tower's inputs by name; nests become the names of `named`."""
    return {
        name: leaf
        for kind, nest in batch.items()
        for name, leaf in named(kind, nest).items()
    }


def of_batch(name: str) -> str:
    """The entry of `BATCH` that a tower's input belongs to; "" for a scalar."""
    kind = name.partition("/")[0]
    return kind if kind in BATCH else ""


def placeholders(kind: str, specs: Any) -> Any:
    """A nest of placeholders, each with its name of `named`."""
    leaves = [
        v1.placeholder(spec.dtype, spec.shape, name)
        for name, spec in named(kind, specs).items()
    ]
    return tf.nest.pack_sequence_as(specs, leaves)


def batch_placeholders(features: Any, labels: Any) -> dict[str, Any]:
    """The placeholders of a tower's inputs, but for `loss_scale`, in the current graph.

    Args:
      features: nest of `tf.TensorSpec`s [batch, ...].
      labels: nest of `tf.TensorSpec`s [batch, ...].

    Returns:
      nests `features` and `labels`; float32 `weights` [batch], `total_weight` [] and
      `progress` [], as `nn.progress` has it; int64 `first` [], the index of the first
      example.
    """
    return {
        "features": placeholders("features", features),
        "labels": placeholders("labels", labels),
        "weights": v1.placeholder(tf.float32, [batch_size(features)], "weights"),
        "total_weight": v1.placeholder(tf.float32, [], "total_weight"),
        "progress": v1.placeholder(tf.float32, [], "progress"),
        "first": v1.placeholder(tf.int64, [], "first"),
    }


def batch_size(features: Any) -> int:
    """Examples of a batch: the first dimension of its tensors or specs."""
    return tf.nest.flatten(features)[0].shape[0]


def batch_of(specs: Any, size: int) -> Any:
    """The specs of a batch of `size` examples, from those of one example."""
    return tf.nest.map_structure(
        lambda spec: tf.TensorSpec([size, *spec.shape], spec.dtype), specs
    )


def num_bytes(specs: Any) -> int:
    """Bytes of all tensors of a nest, whose shapes are static."""
    leaves = tf.nest.flatten(specs)
    return sum(leaf.shape.num_elements() * leaf.dtype.size for leaf in leaves)


def piece(batch: Any, count: int) -> Any:
    """The specs of one of `count` equal parts of a batch.

    Args:
      batch: nest of tensors or specs [batch, ...].
      count: divides the batch.
    """

    def of(leaf: Any) -> tf.TensorSpec:
        size, *rest = leaf.shape
        assert size % count == 0, (leaf, count)
        return tf.TensorSpec([size // count, *rest], leaf.dtype)

    return tf.nest.map_structure(of, batch)


def split(batch: Any, sizes: Sequence[int]) -> list[Any]:
    """Splits a nest of tensors [batch, ...] into nests of parts of these sizes."""
    parts = sizes if len(set(sizes)) > 1 else len(sizes)
    leaves = [tf.split(leaf, parts) for leaf in tf.nest.flatten(batch)]
    flat = zip(*leaves) if leaves else [()] * len(sizes)
    return [tf.nest.pack_sequence_as(batch, list(pieces)) for pieces in flat]
