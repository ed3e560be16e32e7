"""TensorFlow's own collective operations, inside one graph and one session.

A collective has one operation per device, its members, and none ends before all run.  A
step that fetched the sum of one tower only would hang.  So each result here depends on
all members, and fetching one result runs them all.

When a step fails, TensorFlow cancels the waiting members, and the next step works
again.  Only if the session's first step fails, the device group stays cancelled, and a
new session is needed.

Collectives need no order among each other while all members are in one process: NCCL's
kernels are launched once all members of a collective have arrived.
"""

import zlib
from collections.abc import Sequence

import tensorflow as tf

from towers.gradients import all_reduce
from towers.gradients.transfer import Wire


def collective_reduce(
    shares: Sequence[tf.Tensor],
    devices: Sequence[str],
    num_shards: int,
    wire: Wire,
    *,
    hint: str,
) -> list[tf.Tensor]:
    """All-reduce by `CollectiveReduceV2`: the sum of the shares on every device.

    Args:
      shares: float32, of each tower, on its device.
      devices: of the towers, each once.
      num_shards: number of collectives among which the tensor is split.
      wire: has the dtype in which tensors are sent and added; a collective adds in the
        dtype of its input.
      hint: `nccl`, `ring`, or `auto`: TensorFlow's choice, which is its ring.
    """

    def reduce_shard(
        pieces: Sequence[tf.Tensor], shard: int, num_shards: int
    ) -> list[tf.Tensor]:
        del shard, num_shards
        # Unique in the graph, and the same whenever the same graph is built.
        instance_key = tf.compat.v1.get_default_graph().version
        members = []
        for piece, device in zip(pieces, devices):
            with tf.device(device):
                members.append(
                    tf.raw_ops.CollectiveReduceV2(
                        input=tf.cast(piece, wire.dtype),
                        group_size=len(devices),
                        group_key=group_key,
                        instance_key=instance_key,
                        ordering_token=[],
                        merge_op="Add",
                        final_op="Id",
                        communication_hint=hint,
                    )
                )
        results = []
        for member, device in zip(members, devices):
            other_ops = [m.op for m in members if m is not member]
            with tf.device(device), tf.control_dependencies(other_ops):
                results.append(tf.cast(tf.identity(member), tf.float32))
        return results

    # A group of devices has one key for as long as the process lives.
    group_key = zlib.crc32("|".join(devices).encode()) & 0x7FFFFFFF
    return all_reduce.sharded(reduce_shard, shares, devices, num_shards)
