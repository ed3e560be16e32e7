"""A reduction of your own: one function and one row.

    python examples/own_reduction.py

A chain adds the gradients from the first tower to the last and sends the sum back the
same way. It takes twice as many transfers as there are towers, and all towers get the
same bits.
"""

import sys

import tensorflow as tf

from flags import config
from models import get
from towers import planning, run
from towers.gradients.reduction import REDUCTIONS, AllReduceRow
from towers.session.progress import Console


def chain(shares, devices, *, num_shards, hosts, wire):
    """All-reduces along a chain of the towers.

    Args:
      shares: [towers] float32 tensors, each on its tower's device.
      devices: [towers].
      num_shards: the number behind `#` in the spec; a chain has no shards.
      hosts: the CPU device beside each tower; a chain ignores them.
      wire: carries tensors between devices, in 16 bits if that was asked for.

    Returns:
      [towers] tensors: the sum, on each device.
    """
    del num_shards, hosts
    total = shares[0]
    for k in range(1, len(devices)):
        arrived = wire.carry(total, devices[k - 1], devices[k])
        with tf.device(devices[k]):
            total = arrived + shares[k]
    sums = [wire.rounded(total, devices[-1])]
    for k in reversed(range(1, len(devices))):
        sums.append(wire.copy(sums[-1], devices[k], devices[k - 1]))
    return sums[::-1]


def main() -> int:
    """Trains with the chain, and checks at every step that the replicas are equal."""
    REDUCTIONS["chain"] = AllReduceRow(chain)
    settings = config.make(
        num_gpus=4,
        device="cpu",
        num_batches=40,
        variable_update="replicated",
        all_reduce_spec="chain",
        check_replicas_every=1,
    )
    return run.train(planning.make(settings, get), Console(sys.stdout))


if __name__ == "__main__":
    sys.exit(main())
