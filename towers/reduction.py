"""From the towers' gradients to their mean.

Each tower differentiates its share of the mean loss (see `tower`), so the mean of the
joined batch is the plain sum of what the towers deliver: no algorithm here divides,
and none can turn a mean into a sum or back.

A reduction works on one variable at a time:

    reduce(shares, destinations) -> one tensor per destination

with `shares[k]` the gradient from tower k, on its device, and `destinations` the
devices where the mean is wanted.  `mean` handles `None` and `IndexedSlices` once, for
all of them.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from towers.tower import Gradient

Reduce = Callable[[Sequence[tf.Tensor], Sequence[str]], list[tf.Tensor]]


def gather_to_one(
    shares: Sequence[tf.Tensor], destinations: Sequence[str]
) -> list[tf.Tensor]:
    """Adds all shares on the first destination, in tower order.

    One `AddN`: it runs at memory speed, and chains, trees and stacks of the same
    tensors were measured slower.
    """
    with tf.device(destinations[0]):
        total = tf.add_n(list(shares)) if len(shares) > 1 else tf.identity(shares[0])
    return [total] * len(destinations)


# name -> reduction.  A new algorithm is one function and one row.
REDUCTIONS: dict[str, Reduce] = {"pscpu": gather_to_one}


def mean(
    tower_gradients: Sequence[Sequence[Gradient]],
    destinations: Sequence[Sequence[str]],
    *,
    reduce: Reduce = gather_to_one,
) -> list[list[Gradient]]:
    """The mean gradient of every variable, on every device that wants it.

    Args:
      tower_gradients: [towers][variables], shares as `tower.Tower` has them.
      destinations: [variables][copies] devices.
      reduce: a row of `REDUCTIONS`, for dense gradients.

    Returns:
      [variables][copies] gradients; None for a variable that no tower uses.

    Raises:
      ValueError: a variable has a gradient in some towers only.
    """
    means = []
    for shares, devices in zip(zip(*tower_gradients, strict=True), destinations):
        present = [share is not None for share in shares]
        if not any(present):
            means.append([None] * len(devices))
        elif not all(present):
            raise ValueError(
                f"a gradient is missing in tower {present.index(False)} only"
            )
        elif any(isinstance(share, tf.IndexedSlices) for share in shares):
            means.append(_join_rows(shares, devices))
        else:
            means.append(reduce(shares, devices))
    return means


def _join_rows(
    shares: Sequence[Gradient], destinations: Sequence[str]
) -> list[tf.IndexedSlices]:
    """Sparse gradients stay sparse: rows side by side; the update adds equal rows."""
    with tf.device(destinations[0]):
        slices = [tf.convert_to_tensor(s) if s is None else s for s in shares]
        joined = tf.IndexedSlices(
            values=tf.concat([s.values for s in slices], 0),
            indices=tf.concat([s.indices for s in slices], 0),
            dense_shape=slices[0].dense_shape,
        )
    return [joined] * len(destinations)
