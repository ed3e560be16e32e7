"""Examples from whatever has a length and an index, read by Python."""

import threading
from typing import Any

import numpy as np
import tensorflow as tf

from towers.data import examples, source_worker
from towers.data.examples import ExampleError, Examples
from towers.data.source_worker import Leaf, SourceError
from towers.data.worker_pool import WorkerPool


def from_source(source: Any, workers: int = 0) -> Examples:
    """The examples `source[0]`, ..., `source[len(source) - 1]`.

    Data sets of PyTorch and grain's `MapDataset` are such sources.  An example is its
    features, (features, labels) or (features, labels, weight), where features and
    labels are arrays or nests (dicts, tuples) of them: the same for all examples.
    Numbers of Python's are int32 and float32, as `tf.constant` has it.  An example must
    be a function of its number alone for a run to be repeatable.

    Args:
      source: with `workers`, it can be pickled.
      workers: processes that read examples beside the training, each with its own copy
        of the source; they end with the run.  0: this process reads them, one at a
        time.  Each process imports the module of the source: it starts fast if that
        does not import TensorFlow.

    Raises:
      ValueError: it is no such source, or is empty; or its first example cannot be had.
    """
    if workers < 0:
        raise ValueError(f"from_source: workers={workers}; it must be 0 or more")
    parts = _first(source)
    leaves, specs = [], []
    for name, value in examples.leaves(parts):
        array = examples.as_array(f"source[0]: {name}", value)
        if name == "weights":
            array = array.astype(np.float32)
        leaves.append(Leaf(name, array.dtype, array.shape))
        specs.append(tf.TensorSpec(array.shape, tf.as_dtype(array.dtype)))
    if workers:
        pool = WorkerPool(source, leaves, workers)
        read = pool.rows
    else:
        alone = threading.Lock()  # a source need not bear several threads

        def read(numbers: np.ndarray) -> list[np.ndarray]:
            with alone:
                return source_worker.rows(source, numbers.tolist(), leaves)

    def call(numbers: np.ndarray) -> list[np.ndarray]:
        try:
            return read(numbers)
        except SourceError as error:
            raise ExampleError(f"from_source: {error}") from None

    nest = tf.nest.pack_sequence_as(parts, specs)
    return Examples(
        name="source",
        num_examples=len(source),
        specs=nest,
        read=lambda numbers: examples.call(call, numbers, nest),
        calls=2 * workers or None,
    )


def _first(source: Any) -> examples.Parts:
    """The parts of the first example.

    Raises:
      ValueError: it cannot be had.
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
    except Exception as error:  # the user's code may raise anything
        raise ValueError(
            f"{what}: source[0] failed: {source_worker.told(error)}"
        ) from error
    if not examples.leaves(parts[:1]):
        raise ValueError(f"{what}: source[0] has no features")
    return parts
