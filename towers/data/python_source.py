"""Examples from a Python object with a length and an index."""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from towers.data import examples, source_worker
from towers.data.examples import ExampleError, Examples
from towers.data.source_worker import Leaf, SourceError
from towers.data.worker_pool import WorkerPool


def from_source(
    source: Any, workers: int = 0, *, num_classes: int | None = None
) -> Examples:
    """The examples `source[0]`, ..., `source[len(source) - 1]`.

    Data sets of PyTorch and grain's `MapDataset` are such sources.  An example is its
    features, (features, labels) or (features, labels, weight).  Features and labels are
    arrays or nests (dicts, tuples) of them, of the same structure in all examples.
    Python's numbers are int32 and float32, as in `tf.constant`.  For a repeatable run,
    an example must depend on its number alone.

    Args:
      source: the object; with `workers` it must be picklable.
      workers: processes that read examples during training, each with its own copy of
        the source; they end with the run.  With 0 this process reads them, one at a
        time.  Each process imports the module of the source, which is faster if that
        does not import TensorFlow.
      num_classes: labels are in [0, num_classes); None: the number of the model's
        inputs.

    Raises:
      ValueError: it has no length or index, is empty, or its first two examples cannot
        be read or differ.
    """
    if workers < 0:
        raise ValueError(f"from_source: workers={workers}; it must be 0 or more")
    parts, length = _first(source), len(source)
    leaves, specs = [], {}
    for name, value in examples.leaves(parts):
        array = examples.as_array(f"source[0]: {name}", value)
        if name == "weights":
            array = array.astype(np.float32)
        leaves.append(Leaf(name, array.dtype, array.shape))
        specs[name] = tf.TensorSpec(array.shape, tf.as_dtype(array.dtype))
    nest = examples.map_parts(lambda name, _: specs[name], parts)
    try:
        known = source_worker.rows(source, range(min(2, length)), leaves, length)
    except SourceError as error:
        raise ValueError(f"from_source: {error}") from error
    if workers:
        pool = WorkerPool(source, leaves, workers)
        read = pool.rows
    else:
        alone = threading.Lock()  # a source may not be thread-safe

        def read(numbers: np.ndarray) -> list[np.ndarray]:
            with alone:
                return source_worker.rows(source, numbers.tolist(), leaves, length)

    def call(numbers: np.ndarray) -> list[np.ndarray]:
        try:
            return read(numbers)
        except SourceError as error:
            raise ExampleError(f"from_source: {error}") from None

    return Examples(
        name="source",
        num_examples=length,
        num_classes=num_classes,
        specs=nest,
        read=lambda numbers: examples.call(call, numbers, nest),
        labels=tf.nest.pack_sequence_as(nest, known)[1],
        calls=2 * workers or None,
        # The session has a thread for each core.  Calls that wait would take them from
        # the step, and with few cores would be too few to keep all workers busy.
        threads=2 * workers + 1 if workers else None,
    )


def _first(source: Any) -> examples.Parts:
    """The parts of the first example.

    Raises:
      ValueError: it cannot be read.
    """
    what = f"from_source: a {type(source).__name__}"
    if not hasattr(source, "__len__") or not hasattr(source, "__getitem__"):
        raise ValueError(
            f"{what} has no length or no index; len(source) and source[i] are needed, "
            "and what can only be iterated over is for from_dataset"
        )
    try:
        if not len(source):
            raise SourceError("is empty")
        parts = source_worker.parts_of(source[0])
    except SourceError as error:
        raise ValueError(f"{what}: source[0] {error}") from error
    except (Exception, SystemExit) as error:  # the user's code may raise anything
        raise ValueError(
            f"{what}: source[0] failed: {source_worker.told(error)}"
        ) from error
    if not examples.leaves(parts[:1]):
        raise ValueError(f"{what}: source[0] has no features")
    return parts
