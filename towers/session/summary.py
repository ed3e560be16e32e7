"""TensorBoard summaries, by `--summary_verbosity`."""

import contextlib
import errno
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import tensorflow as tf

from towers.callbacks.base import RunArgs, RunContext, RunValues
from towers.callbacks.every import Every
from towers.compute import sufficient_factors, summaries
from towers.compute.summaries import Made
from towers.data import nests
from towers.errors.side_outputs import SideOutputs
from towers.graph import TrainGraph
from towers.layout import graph_names
from towers.layout.parts import join, read

v1 = tf.compat.v1


def build(train: TrainGraph, verbosity: int) -> tf.Tensor | None:
    """One summary of a step, in the current graph.

    Args:
      train: the graph.
      verbosity: 0 nothing; 1 loss, accuracies, learning rate, and the model's own
        summaries in tower 0; 2 also a histogram of all gradients of tower 0; 3 also
        images of tower 0 and a histogram of each gradient and variable.  Histograms
        leave out values that are not finite.

    Returns:
      string scalar, a serialized summary, or None.
    """
    if not verbosity:
        return None
    tower = train.towers[0]
    with tf.device(train.placement.master), v1.name_scope(graph_names.SUMMARIES):
        scalars = {
            "loss": train.loss,
            "total_loss": train.total_loss,
            "learning_rate": train.learning_rate,
            **train.metrics,
        }
        parts = [tf.raw_ops.ScalarSummary(tags=k, values=v) for k, v in scalars.items()]
        dense = {
            name: tf.convert_to_tensor(sufficient_factors.dense(gradient))
            for name, gradient in zip(train.template.trainable, tower.gradients)
            if gradient is not None
        }
        if verbosity >= 2:
            # Gradients of normalization layers are float32 even if others are not.
            flat = [tf.reshape(tf.cast(g, tf.float32), [-1]) for g in dense.values()]
            joined = tf.concat(flat, 0)
            parts.append(_histogram("gradients", joined))
        if verbosity >= 3:
            for name, gradient in dense.items():
                parts.append(_histogram(f"gradients/{name}", gradient))
                value = join(read(train.mode.held(name)))
                parts.append(_histogram(f"variables/{name}", value))
            features = train.feed.batches[0].features
            parts += [
                tf.raw_ops.ImageSummary(tag=tag, tensor=images)
                for tag, images in nests.named("images", features).items()
                if images.shape.rank == 4 and images.shape[-1] in (1, 3, 4)
                if images.dtype in (tf.float32, tf.float16, tf.uint8)
            ]
        parts += [
            _of_model(shown, tag) for tag, shown in _tagged(tower.summaries, scalars)
        ]
        return tf.raw_ops.MergeSummary(inputs=parts)


def _tagged(shown: Sequence[Made], taken: Iterable[str]) -> Iterator[tuple[str, Made]]:
    """Each summary with a unique tag; TensorFlow does not merge equal tags."""
    tags = set(taken)
    for summary in shown:
        tag, number = summary.tag, 0
        while tag in tags:
            number += 1
            tag = f"{summary.tag}_{number}"
        tags.add(tag)
        yield tag, summary


def _of_model(summary: Made, tag: str) -> tf.Tensor:
    if summary.node.op == "HistogramSummary":
        return _histogram(tag, summary.inputs[0])
    return summaries.again(summary, tag)


def _histogram(tag: str, values: tf.Tensor) -> tf.Tensor:
    """A histogram of the finite values.

    The operation would fail on the others, but a summary must not end the run.
    """
    values = tf.reshape(values, [-1])  # a mask cannot be a scalar
    finite = tf.boolean_mask(values, tf.math.is_finite(values))
    # `tf.compat.v1.summary` would number a tag that is also an operation's name.
    return tf.raw_ops.HistogramSummary(tag=tag, values=finite)


class EventFile:
    """Events for TensorBoard, flushed after each; the file is made for the first one.

    TensorFlow's `FileWriter` names files by the second, so a later file may replace an
    earlier one, and it fails in a background thread.  Here a new file is begun after an
    event that could not be written, and when the file is gone.

    Args:
      what: the contents of the file, in the plural, for messages.
      directory: made if there is none.
      side: notes events that cannot be written.
      graph: is written to the file, too.
    """

    def __init__(
        self,
        what: str,
        directory: str,
        side: SideOutputs,
        graph: tf.Graph | None = None,
    ):
        self._what = what
        self._directory = directory
        self._side = side
        self._graph = graph
        self._path = ""
        self._whole = 0  # bytes of the file up to its last whole summary
        self._writer: tf.io.TFRecordWriter | None = None

    def open(self, step: int) -> None:
        """Begins the file, for summaries from a step on."""
        with self._side.writing(self._what, self._directory):
            self._open(step)

    def add(self, summary: v1.Summary, step: int) -> None:
        """Appends the summary of a step."""
        with self._side.writing(self._what, self._directory):
            if self._writer is None or not os.path.exists(self._path):
                self._open(step)
            self._add(summary=summary, step=step)
            self._whole = os.path.getsize(self._path)

    def add_evaluation(
        self,
        values: Mapping[str, float],
        images: Mapping[str, tuple[bytes, Sequence[int]]],
        step: int,
    ) -> None:
        """Appends scalars and pictures of a step, by name.

        Args:
          values: the scalars.
          images: of each its PNG and its (height, width, channels).
          step: they belong to.
        """
        parts = [v1.Summary.Value(tag=k, simple_value=v) for k, v in values.items()]
        for tag, (png, (height, width, channels)) in images.items():
            image = v1.Summary.Image(
                height=height,
                width=width,
                colorspace=channels,
                encoded_image_string=png,
            )
            parts.append(v1.Summary.Value(tag=tag, image=image))
        self.add(v1.Summary(value=parts), step)

    def close(self) -> None:
        """Ends the file."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _open(self, step: int) -> None:
        second, host = int(time.time()), socket.gethostname()
        name = f"events.out.tfevents.{second:010d}.{host}.{os.getpid()}.{step:012d}"
        os.makedirs(self._directory, exist_ok=True)
        self._path = os.path.join(self._directory, name)
        self._whole = 0
        self._writer = tf.io.TFRecordWriter(self._path)
        self._add(file_version="brain.Event:2")
        if self._graph is not None:
            nodes = self._graph.as_graph_def(add_shapes=True)
            self._add(graph_def=nodes.SerializeToString())
        self._whole = os.path.getsize(self._path)

    def _add(self, **event: object) -> None:
        text = v1.Event(wall_time=time.time(), **event).SerializeToString()
        assert self._writer is not None  # opened
        try:
            self._writer.write(text)
            self._writer.flush()
        except (tf.errors.OpError, IndexError) as error:
            self._cut()
            if isinstance(error, IndexError):  # TensorFlow's, of a file too large
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG)) from error
            raise

    def _cut(self) -> None:
        """Cuts the file after its last whole event; readers stop at half an event."""
        assert self._writer is not None
        with contextlib.suppress(tf.errors.OpError, IndexError):
            self._writer.close()
        self._writer = None
        with contextlib.suppress(OSError):
            if self._whole:
                os.truncate(self._path, self._whole)
            else:
                os.remove(self._path)


class WriteSummaries(Every):
    """Writes TensorBoard summaries."""

    def __init__(
        self,
        train: TrainGraph,
        text: tf.Tensor,
        file: EventFile,
        *,
        steps: int,
    ):
        super().__init__(train, steps=steps)
        self._file = file
        self._fetch = (train.step, text)
        self._global_step = train.global_step
        self._step = 0

    def after_create_session(self, session: v1.Session, coord: object) -> None:
        """Opens the file, notes where the loop starts."""
        self._step = int(session.run(self._global_step))
        self._file.open(self._step)

    def before_run(self, run_context: RunContext) -> RunArgs | None:
        """Asks for the summary when this step is due."""
        due = self.next_due(self._step) == self._step + 1
        return v1.train.SessionRunArgs(self._fetch) if due else None

    def after_run(self, run_context: RunContext, run_values: RunValues) -> None:
        """Writes it."""
        self._step += 1
        if run_values.results is not None:
            step, text = run_values.results
            self._file.add(v1.Summary.FromString(text), step)

    def after_steps(self, step: int, losses: np.ndarray, seconds: float) -> None:
        """Notes where the loop is."""
        self._step = step

    def end(self, session: v1.Session) -> None:
        """Closes the file."""
        self._file.close()
