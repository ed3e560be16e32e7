"""TensorBoard summaries by verbosity."""

import os
import socket
import time

import tensorflow as tf

from towers.compute import factors
from towers.errors import folders
from towers.graph import TrainGraph
from towers.layout.parts import join, read

v1 = tf.compat.v1


def build(train: TrainGraph, verbosity: int) -> tf.Tensor | None:
    """One summary of a step, in the current graph.

    Args:
      train: the graph.
      verbosity: 0 nothing; 1 loss, accuracies, learning rate; 2 also a histogram of
        all gradients of tower 0; 3 also images of tower 0 and a histogram of each
        gradient and variable.  Histograms are of what is finite.

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
            name: tf.convert_to_tensor(factors.dense(gradient))
            for name, gradient in zip(train.template.trainable, tower.gradients)
            if gradient is not None
        }
        if verbosity >= 2:
            # Those of normalisation layers are float32 whatever the others are.
            flat = [tf.reshape(tf.cast(g, tf.float32), [-1]) for g in dense.values()]
            joined = tf.concat(flat, 0)
            parts.append(_histogram("gradients", joined))
        if verbosity >= 3:
            for name, gradient in dense.items():
                parts.append(_histogram(f"gradients/{name}", gradient))
                value = join(read(train.mode.held(name)))
                parts.append(_histogram(f"variables/{name}", value))
            images = train.feed.batches[0].features
            if images.shape.rank == 4 and images.shape[-1] in (1, 3, 4):
                parts.append(tf.raw_ops.ImageSummary(tag="images", tensor=images))
        return tf.raw_ops.MergeSummary(inputs=parts)


def _histogram(tag: str, values: tf.Tensor) -> tf.Tensor:
    """A histogram of the finite values.

    The operation fails on others, and whether these skip the step or stop the run is
    not for a summary to decide.
    """
    values = tf.reshape(values, [-1])  # a mask cannot be a scalar
    finite = tf.boolean_mask(values, tf.math.is_finite(values))
    # `tf.compat.v1.summary` would number a tag that is also an operation's name.
    return tf.raw_ops.HistogramSummary(tag=tag, values=finite)


class EventFile:
    """An event file for TensorBoard, flushed after each event.

    TensorFlow's `FileWriter` names files by the second, so that a later file may
    replace an earlier one, and it fails in a background thread.

    Args:
      directory: made if there is none.
      step: the first that summaries are added for.
      graph: to be shown beside them.

    Raises:
      folders.OutputError: from any method, when the disk is full.
    """

    def __init__(self, directory: str, step: int, graph: tf.Graph | None = None):
        self._directory = directory
        second, host = int(time.time()), socket.gethostname()
        name = f"events.out.tfevents.{second:010d}.{host}.{os.getpid()}.{step:012d}"
        with folders.writing("summaries", directory):
            os.makedirs(directory, exist_ok=True)
            self._writer = tf.io.TFRecordWriter(os.path.join(directory, name))
        self._add(file_version="brain.Event:2")
        if graph is not None:
            nodes = graph.as_graph_def(add_shapes=True)
            self._add(graph_def=nodes.SerializeToString())

    def add(self, summary: v1.Summary, step: int) -> None:
        """Appends the summary of a step."""
        self._add(summary=summary, step=step)

    def close(self) -> None:
        """Closes the file."""
        self._writer.close()

    def _add(self, **event) -> None:
        text = v1.Event(wall_time=time.time(), **event).SerializeToString()
        with folders.writing("summaries", self._directory):
            self._writer.write(text)
            self._writer.flush()


def write_scalars(directory: str, values: dict[str, float], step: int) -> None:
    """Writes scalars of a step to a new event file."""
    file = EventFile(directory, step)
    parts = [v1.Summary.Value(tag=k, simple_value=v) for k, v in values.items()]
    file.add(v1.Summary(value=parts), step)
    file.close()
