"""Examples by number: the user's data before a run reads them.

    examples = from_arrays(features, labels)  # or another of this package's functions
    source = ExampleSource(examples, request, training=True)

`Examples` has the number of examples, their shapes, and a function that reads some by
their numbers.  Seeds, epochs and towers are handled by `example_source.ExampleSource`.
"""

import contextlib
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from models import user_errors
from towers.data.reading_session import reading_session
from towers.errors.explain import cause

v1 = tf.compat.v1

# (features, labels), or (features, labels, weights): nests of [count, ...].
Parts = tuple[Any, ...]

# Random numbers that an example's augmentation gets.
AUGMENT_DRAWS = 8

# TensorFlow's error about a dataset whose length is not the given one.
_LENGTH = re.compile(
    r"expected to contain (\d+) elements? but contained\D* (\d+) elements?"
)

# What tf.data puts before the words of a function that it calls.
_CALLER = re.compile(r"Error in user-defined function passed to .+? iterator: \S+: ")

_NAMES = ("features", "labels", "weights")

# Operations that call Python, which only the process that built the graph can.
_CALLS = ("EagerPyFunc", "PyFunc", "PyFuncStateless")

# Of a sentence in an assertion's message, which has it in brackets.
ENDING = ".]"


class ExampleError(Exception):
    """An example cannot be had; the message is the sentence for the user."""


@dataclasses.dataclass(frozen=True)
class Examples:
    """The examples of one split, addressed by their numbers.

    Attributes:
      name: of the kind of data, as `arrays`.
      num_examples: in the split.
      specs: of one example: (features, labels), or (features, labels, weight); nests
        (dicts, tuples) of `tf.TensorSpec`s, without the batch dimension.
      read: (numbers int64 [count]) -> the examples' `Parts`; if `single`, (number int64
        scalar) -> the parts of one example.  None if examples have no numbers.
      open: instead of `read`: (seed int64 [2], or None) -> a dataset of the number
        and the parts of every example, in an order that depends on the seed, or is
        always the same.
      single: whether `read` reads one example at a time.
      calls: number of calls of `read` at the same time.
      threads: of the input pipeline, if `read` waits for other processes; None to share
        those of the session.
      augment: (parts of one example, draws float32 [8]) -> its parts for training.
      weights: (numbers int64 [...]) -> float32 [...], if the weights of examples are
        known without reading them.
      arrays: the leaves of all examples' parts, if they are in memory.
      labels: the labels of the first examples, or of all, if they are known before any
        is read: a nest of arrays [examples, ...].
      num_classes: number of classes; None if the model's inputs have it.
      in_python: whether `read` calls Python, which works in this process only.
      vocabulary: the categories, or words, of the numbers in the data; it is saved in
        checkpoints.
      by_vocabulary: (vocabulary of the training) -> these examples, numbered by it;
        None if there are no categories.
      explain: () -> which example cannot be read, and why; "" if all can be read.  None
        if errors say that themselves.
    """

    name: str
    num_examples: int
    specs: Parts
    read: Callable[[tf.Tensor], Parts] | None
    open: Callable[[tf.Tensor | None], tf.data.Dataset] | None = None
    single: bool = False
    calls: int | None = None
    threads: int | None = None
    augment: Callable[[Parts, tf.Tensor], Parts] | None = None
    weights: Callable[[tf.Tensor], tf.Tensor] | None = None
    arrays: tuple[np.ndarray, ...] = ()
    labels: Any = ()
    num_classes: int | None = None
    in_python: bool = True
    explain: Callable[[], str] | None = None
    vocabulary: tuple[bytes, ...] = ()
    by_vocabulary: Callable[[tuple[bytes, ...]], "Examples"] | None = None


def leaves(parts: Parts) -> list[tuple[str, Any]]:
    """(name, value) of each tensor, array or spec of an example, in `tf.nest`'s order.

    The names are written as in Python, such as `features['table']`.
    """
    return [leaf for n, part in zip(_NAMES, parts) for leaf in named(n, part)]


def named(name: str, nest: Any) -> Iterator[tuple[str, Any]]:
    """(name, value) of each leaf of a nest of dicts and tuples with this name."""
    if isinstance(nest, Mapping):
        for key in sorted(nest):
            yield from named(f"{name}[{key!r}]", nest[key])
    elif isinstance(nest, tuple):
        for index, part in enumerate(nest):
            yield from named(f"{name}[{index}]", part)
    else:
        yield name, nest


def map_nest(function: Callable[[str, Any], Any], name: str, nest: Any) -> Any:
    """Applies `function` to the name and value of each leaf of a nest."""
    if isinstance(nest, Mapping):
        return {
            key: map_nest(function, f"{name}[{key!r}]", part)
            for key, part in nest.items()
        }
    if isinstance(nest, tuple):
        return tuple(
            map_nest(function, f"{name}[{index}]", part)
            for index, part in enumerate(nest)
        )
    return function(name, nest)


def map_parts(function: Callable[[str, Any], Any], parts: Parts) -> Parts:
    """Applies `map_nest` to each part of an example, with the part's name."""
    return tuple(map_nest(function, name, part) for name, part in zip(_NAMES, parts))


def as_array(name: str, value: Any) -> np.ndarray:
    """A value as an array of a dtype that TensorFlow has.

    Args:
      name: for errors.
      value: anything that numpy makes an array of.  Python's numbers become int32 and
        float32, as in `tf.constant`.

    Raises:
      ValueError: it is ragged, or TensorFlow does not have its dtype.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:  # inhomogeneous
        raise ValueError(
            f"{name} is ragged: its rows differ in shape; pad them to one"
        ) from error
    if type(value) in (int, float):
        array = array.astype(np.int32 if isinstance(value, int) else np.float32)
    with contextlib.suppress(TypeError):
        if tf.as_dtype(array.dtype) != tf.string:  # also the dtype of Python objects
            return array
    raise ValueError(
        f"{name} is of dtype {array.dtype}; make it numbers of one dtype and shape"
    )


def first_not_finite(array: np.ndarray) -> int | None:
    """The index of the first row with a number that is not finite, or None."""
    if array.dtype.kind not in "fc":
        return None
    finite = np.isfinite(array)
    if np.all(finite):
        return None
    return int(np.argmin(finite) // max(1, finite[0].size))


def call(
    function: Callable[[np.ndarray], list[np.ndarray]],
    numbers: tf.Tensor,
    specs: Parts,
) -> Parts:
    """Adds a call of Python to the current graph; only this process can run it.

    Args:
      function: (numbers int64 [count]) -> the leaves of the examples' parts, arrays
        [count, ...].
      numbers: int64 [count].
      specs: of one example.
    """
    flat = tf.nest.flatten(specs)
    read = tf.numpy_function(
        function, [numbers], [spec.dtype for spec in flat], stateful=False
    )
    for tensor, spec in zip(read, flat):
        tensor.set_shape([*numbers.shape, *spec.shape])
    return tf.nest.pack_sequence_as(specs, read)


def calls_python(graph: tf.Graph) -> bool:
    """Whether operations of a graph, or of its functions, call Python."""
    definition = graph.as_graph_def()
    functions = definition.library.function
    nodes = [*definition.node, *(node for f in functions for node in f.node_def)]
    return any(node.op in _CALLS for node in nodes)


def required(
    tensor: tf.Tensor, fine: tf.Tensor, words: str, *values: tf.Tensor
) -> tf.Tensor:
    """The tensor, whose reading fails with a sentence unless all is fine.

    Args:
      tensor: of any dtype.
      fine: bool scalar.
      words: the sentence; `{}` stands for a value.
      *values: scalars.
    """
    text = tf.strings.format(f"{ExampleError.__name__}: {words}.", values)
    with tf.control_dependencies([tf.raw_ops.Assert(condition=fine, data=[text])]):
        return tf.identity(tensor)


def first_unreadable(
    make: Callable[[], tf.data.Dataset], place: Callable[[int], str]
) -> str:
    """The first element of a dataset that cannot be read, and why; "" if all can be.

    Args:
      make: makes the dataset in the current graph.
      place: number of an element -> where it is, in words.
    """
    with reading_session() as session:
        following = v1.data.make_one_shot_iterator(make()).get_next()
        read = session.make_callable(tf.nest.flatten(following)[0].op)
        for number in itertools.count():
            try:
                read()
            except tf.errors.OutOfRangeError:
                return ""
            except tf.errors.OpError as error:
                words = _CALLER.sub("", cause(error))
                where = user_errors.place_in(str(error))
                words += f" ({where})" if where else ""
                return f"{place(number)} cannot be read: {words}"
    return ""


def spec_of(array: np.ndarray) -> tf.TensorSpec:
    """The spec of one row of an array."""
    return tf.TensorSpec(array.shape[1:], tf.as_dtype(array.dtype))


def explain_example(error: BaseException, *data: Examples) -> str | None:
    """The sentence about an example that a session call failed to read, or None.

    Args:
      error: from the call.
      data: the examples that it may have read.
    """
    if match := re.search(rf"{ExampleError.__name__}: (.*)", str(error)):
        return match[1].removesuffix(ENDING)
    match = _LENGTH.search(str(error))
    if match and any(examples.open for examples in data):
        promised, held = match.groups()
        has = f"more than {promised}" if int(held) > int(promised) else held
        return f"from_dataset: num_examples={promised}, and the dataset has {has}"
    if isinstance(error, tf.errors.OpError) and "IteratorGetNext" in str(error):
        for examples in data:
            if examples.explain and (sentence := examples.explain()):
                return sentence
    return None
