"""Whether a model's blocks are a chain, which alone can be cut between them."""

import functools
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

# What `models` puts the block's name before.
_NOT_A_CHAIN = (
    "it reads a tensor of an earlier block that was not handed to it, so the model is "
    "no chain and cannot be cut between them; return the tensor from every block "
    "between, or leave out --num_stages, --num_micro_batches and --recompute"
)

Blocks = tuple[tuple[str, Callable[..., Any]], ...]


def guarded(blocks: Iterable[tuple[str, Callable[..., Any]]]) -> Blocks:
    """Blocks that say so when they read a tensor of a graph that they are cut from.

    Args:
      blocks: of a model.
    """
    return tuple((name, functools.partial(_run, block)) for name, block in blocks)


def _run(block: Callable[..., Any], x: Any, nn: Any) -> Any:
    """The block's outputs.

    Raises:
      ValueError: it, or what it returns, is not made from what enters it alone.
    """
    here = tf.compat.v1.get_default_graph()
    try:
        outputs = block(x, nn)
    except (ValueError, TypeError, RuntimeError) as error:
        if "same graph" in str(error) or "out of scope" in str(error):
            raise ValueError(_NOT_A_CHAIN) from error
        raise
    found = [y for y in tf.nest.flatten(outputs) if tf.is_tensor(y)]
    if any(y.graph is not here for y in found):
        raise ValueError(_NOT_A_CHAIN)
    return outputs
