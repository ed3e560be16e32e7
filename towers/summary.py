"""TensorBoard summaries by verbosity."""

import tensorflow as tf

from towers.graph import TrainGraph

v1 = tf.compat.v1


def build(train: TrainGraph, verbosity: int) -> tf.Tensor | None:
    """One summary of a step, in the current graph.

    Args:
      train: the graph.
      verbosity: 0 nothing; 1 loss, accuracies, learning rate; 2 also a histogram of
        all gradients of tower 0; 3 also images of tower 0 and a histogram of each
        gradient and variable.

    Returns:
      string scalar, a serialised summary, or None.
    """
    if not verbosity:
        return None
    tower = train.towers[0]
    with tf.device(train.placement.master), tf.name_scope("summary"):
        scalars = {
            "loss": train.loss,
            "total_loss": train.total_loss,
            "learning_rate": train.learning_rate,
            **train.metrics,
        }
        parts = [tf.raw_ops.ScalarSummary(tags=k, values=v) for k, v in scalars.items()]
        dense = {
            name: tf.convert_to_tensor(gradient)
            for name, gradient in zip(train.template.trainable, tower.gradients)
            if gradient is not None
        }
        if verbosity >= 2:
            joined = tf.concat([tf.reshape(g, [-1]) for g in dense.values()], 0)
            parts.append(_histogram("gradients", joined))
        if verbosity >= 3:
            for name, gradient in dense.items():
                parts.append(_histogram(f"gradients/{name}", gradient))
                value = train.mode.variables[name].read_value()
                parts.append(_histogram(f"variables/{name}", value))
            images = train.feed.batches[0].features
            if images.shape[-1] in (1, 3, 4):
                parts.append(tf.raw_ops.ImageSummary(tag="images", tensor=images))
        return tf.raw_ops.MergeSummary(inputs=parts)


def _histogram(tag: str, values: tf.Tensor) -> tf.Tensor:
    # `tf.compat.v1.summary` would number a tag that is also an operation's name.
    return tf.raw_ops.HistogramSummary(tag=tag, values=values)


def write_scalars(directory: str, values: dict[str, float], step: int) -> None:
    """Appends scalars at a step to a directory's event files."""
    # A file is named after the second; without the step a later one would replace it.
    suffix = f".{step:012d}"
    with (
        tf.Graph().as_default(),
        v1.summary.FileWriter(directory, filename_suffix=suffix) as writer,
    ):
        summary = v1.Summary(
            value=[v1.Summary.Value(tag=k, simple_value=v) for k, v in values.items()]
        )
        writer.add_summary(summary, step)
