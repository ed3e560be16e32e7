"""Examples of any `tf.data.Dataset`, read in sequence."""

from collections.abc import Callable

import tensorflow as tf

from models import user_errors
from towers.data import examples, source_worker
from towers.data.examples import Examples, Parts
from towers.data.reading_session import reading_session

_plain = tf.autograph.experimental.do_not_convert


def from_dataset(
    make: Callable[[], tf.data.Dataset],
    *,
    num_examples: int,
    shuffle_buffer: int = 0,
    num_classes: int | None = None,
) -> Examples:
    """The examples of a dataset of features, (features, labels) or (..., weight).

    For a repeatable run the dataset must have the same order each time it is made.  To
    resume, each host reads an epoch from its beginning up to the position.  Each host
    reads all examples, not only those that it trains on.

    Args:
      make: makes the dataset, not batched, in the current graph; elements are tensors
        or nests (dicts, tuples) of them, of static shapes.
      num_examples: number of examples; reading fails if the dataset has another number.
      shuffle_buffer: number of training examples that are shuffled at a time, in
        another order in each epoch; 0 for the dataset's own order.
      num_classes: labels are in [0, num_classes); if None, the model's inputs have the
        number.

    Raises:
      ValueError: `make` fails, or the dataset has other elements or another number.
    """
    if num_examples < 1:
        raise ValueError(
            f"from_dataset: num_examples={num_examples}; it must be 1 or more"
        )

    def opened(seed: tf.Tensor | None) -> tf.data.Dataset:
        dataset = make().map(_plain(_parts)).enumerate()
        if shuffle_buffer and seed is not None:
            number = tf.random.stateless_uniform([], seed, minval=None, dtype=tf.int64)
            dataset = dataset.shuffle(
                shuffle_buffer, seed=number, reshuffle_each_iteration=False
            )
        return dataset

    with reading_session() as session:
        with user_errors.blamed(lambda: "from_dataset: make failed", make):
            count = session.run(make().cardinality())
            _, specs = opened(None).element_spec
    _check(specs, count, num_examples)
    return Examples(
        name="dataset",
        num_examples=num_examples,
        num_classes=num_classes,
        specs=specs,
        read=None,
        open=opened,
        in_python=examples.calls_python(session.graph),
        explain=lambda: examples.first_unreadable(
            lambda: opened(None).take(num_examples),
            lambda number: f"from_dataset: element {number}",
        ),
    )


def _parts(*element: examples.Parts) -> Parts:
    """The parts of an element; tf.data passes a tuple as arguments."""
    parts = source_worker.parts_of(element)
    if len(parts) == 3:
        weight = tf.ensure_shape(tf.cast(parts[2], tf.float32), [])
        parts = (*parts[:2], weight)
    return parts


def _check(specs: Parts, count: int, num_examples: int) -> None:
    """Refuses elements that are not examples, and a known length that is different.

    Raises:
      ValueError: the sentence names the tensor.
    """
    for name, spec in examples.leaves(specs):
        known = isinstance(spec, tf.TensorSpec) and spec.shape.is_fully_defined()
        if not known or spec.dtype == tf.string:
            raise ValueError(
                f"from_dataset: {name} is {spec}; it must be numbers of a known shape, "
                "which tf.ensure_shape gives it"
            )
    if count == tf.data.INFINITE_CARDINALITY:
        raise ValueError(
            "from_dataset: the dataset is endless; leave out its repeat(), or write "
            f"take({num_examples})"
        )
    if count not in (tf.data.UNKNOWN_CARDINALITY, num_examples):
        raise ValueError(
            f"from_dataset: num_examples={num_examples}, and the dataset has {count}"
        )
