"""Checks that a model's blocks are a chain, so that it can be cut between them."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from models.layers import Layers
from models.model import Block

# The end of an error; the block's name comes before it.
_NOT_A_CHAIN = (
    "it reads a tensor of an earlier block that is not among its inputs, so the model "
    "cannot be cut between the two; return the tensor from every block in between, or "
    "train without stages, micro-batches and recomputation"
)

# Words in TensorFlow's errors about tensors of another graph.
_OF_ANOTHER_GRAPH = ("same graph", "out of scope", "not an element of this graph")

Blocks = Sequence[tuple[str, Block]]


def guarded(blocks: Blocks) -> Blocks:
    """Blocks that raise an error if they read a tensor of an earlier segment's graph.

    Args:
      blocks: of a model.
    """
    return tuple((name, functools.partial(_run, block)) for name, block in blocks)


def _run(block: Block, x: Any, nn: Layers) -> Any:
    """The block's outputs.

    Raises:
      ValueError: its operations or outputs use other tensors than its inputs.
    """
    here = tf.compat.v1.get_default_graph()
    num_before = len(here.get_operations())
    with guard():
        outputs = block(x, nn)
    try:
        for op in here.get_operations()[num_before:]:
            _ = op.inputs
    except KeyError as error:  # a tensor that a tf.function captured
        raise ValueError(_NOT_A_CHAIN) from error
    tensors = [y for y in tf.nest.flatten(outputs) if isinstance(y, tf.Tensor)]
    if any(y.graph is not here for y in tensors):
        raise ValueError(_NOT_A_CHAIN)
    return outputs


def hand_on(before: tf.Graph, after: tf.Graph) -> None:
    """Copies tensors in collections of earlier blocks' graph to that of later ones.

    So a later block, or the loss, that reads such a tensor gets the error of `guard`.
    Otherwise it would find an empty collection.

    Args:
      before: the graph of the earlier blocks.
      after: the graph of the later blocks.
    """
    for name in before.get_all_collection_keys():
        for item in before.get_collection(name):
            if tf.is_tensor(item):
                after.add_to_collection(name, item)


@contextlib.contextmanager
def guard(what: str = "") -> Iterator[None]:
    """In this block, reading a tensor of another graph is an error in one sentence.

    Args:
      what: the reader, with which the sentence begins.

    Raises:
      ValueError: a tensor of another graph was read.
    """
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        text = f"{error} {error.__cause__}"  # the error may be wrapped already
        if not any(words in text for words in _OF_ANOTHER_GRAPH):
            raise
        raise ValueError(f"{what}: {_NOT_A_CHAIN}" if what else _NOT_A_CHAIN) from error
