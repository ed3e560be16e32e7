"""Whether a model's blocks are a chain, which alone can be cut between them."""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

from models.layers import Layers
from models.model import Block

# What `models` puts the block's name before, and `guard` other names.
_NOT_A_CHAIN = (
    "it reads a tensor of an earlier block that is not among its inputs, so the model "
    "cannot be cut between the two; return the tensor from every block in between, or "
    "train without stages, micro-batches and recomputation"
)

# TensorFlow's words.
_OF_ANOTHER_GRAPH = ("same graph", "out of scope", "not an element of this graph")

Blocks = Sequence[tuple[str, Block]]


def guarded(blocks: Blocks) -> Blocks:
    """Blocks that say so when they read a tensor of a graph that they are cut from.

    Args:
      blocks: of a model.
    """
    return tuple((name, functools.partial(_run, block)) for name, block in blocks)


def _run(block: Block, x: Any, nn: Layers) -> Any:
    """The block's outputs.

    Raises:
      ValueError: it, or what it returns, is not made from what enters it alone.
    """
    here = tf.compat.v1.get_default_graph()
    num_before = len(here.get_operations())
    with guard():
        outputs = block(x, nn)
    try:
        for op in here.get_operations()[num_before:]:
            _ = op.inputs
    except KeyError as error:  # what a tf.function captured was not looked at before
        raise ValueError(_NOT_A_CHAIN) from error
    tensors = [y for y in tf.nest.flatten(outputs) if isinstance(y, tf.Tensor)]
    if any(y.graph is not here for y in tensors):
        raise ValueError(_NOT_A_CHAIN)
    return outputs


def hand_on(before: tf.Graph, after: tf.Graph) -> None:
    """Shows later blocks the tensors that earlier ones put into collections.

    A later block, or the loss, that reads such a tensor then says so, as `guard` has
    it: it would not miss a collection that is empty.

    Args:
      before: the graph of the earlier blocks.
      after: that of the later ones.
    """
    for name in before.get_all_collection_keys():
        for item in before.get_collection(name):
            if tf.is_tensor(item):
                after.add_to_collection(name, item)


@contextlib.contextmanager
def guard(what: str = "") -> Iterator[None]:
    """Says so where a tensor of another graph than the current one is read.

    Args:
      what: reads; the sentence begins with it.

    Raises:
      ValueError: something did.
    """
    try:
        yield
    except (ValueError, TypeError, RuntimeError) as error:
        text = f"{error} {error.__cause__}"  # it may be wrapped in a sentence already
        if not any(words in text for words in _OF_ANOTHER_GRAPH):
            raise
        raise ValueError(f"{what}: {_NOT_A_CHAIN}" if what else _NOT_A_CHAIN) from error
