"""Towers of workers that are not there, on those that are.

The graph stays that of all workers, so a step has the same bits.  A worker that has the
towers of several workers keeps them apart: the towers of each have a logical CPU device
of their own as their host, on which their gradients are added first, as before.
"""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf

from towers.layout import placement
from towers.layout.cluster_spec import Task
from towers.layout.placement import Placement

# Most workers whose towers a worker may have.
SHARES = 16


def make_room(config: tf.compat.v1.ConfigProto) -> None:
    """Gives a worker's server the logical CPU devices for other workers' towers.

    Args:
      config: of the server.
    """
    config.device_count["CPU"] = SHARES * config.device_count.get("CPU", 1)


def on_members(where: Placement, members: Sequence[Task]) -> Placement | None:
    """The placement with all towers on the workers that are there.

    The towers of each absent worker move to the worker with the fewest.

    Args:
      where: on all workers, numbered from 0.
      members: the workers that are there; those that `where` does not know take the
        towers of an absent one.

    Returns:
      The placement; None if there are more members than workers in `where`, or a member
      would need the towers of more than `SHARES` workers.
    """
    workers = {tf.DeviceSpec.from_string(host).task for host in where.hosts}
    if len(members) > len(workers):
        return None
    counts = {task.index: int(task.index in workers) for task in members}
    homes = {index: (index, 0) for index in workers.intersection(counts)}
    for absent in sorted(workers.difference(counts)):
        index = min(counts, key=lambda index: (counts[index], index))
        homes[absent] = (index, counts[index])
        counts[index] += 1
    if max(counts.values()) > SHARES:
        return None
    # Of one worker's share.
    num_cpus = where.per_task if where.kind == "cpu" else 1

    def moved(name: str) -> str:
        device = tf.DeviceSpec.from_string(name)
        index, share = homes[device.task]
        first = share * num_cpus if device.device_type == "CPU" else 0
        return placement.device(
            device.device_type, first + device.device_index, Task("worker", index)
        )

    return dataclasses.replace(
        where,
        towers=tuple(map(moved, where.towers)),
        hosts=tuple(map(moved, where.hosts)),
        stages=tuple(tuple(map(moved, devices)) for devices in where.stages),
    )
