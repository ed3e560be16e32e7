"""Placeholders for devices in a tower's template."""

from collections.abc import Sequence

import tensorflow as tf


def shard(index: int) -> str:
    """Placeholder, in a tower's template, for one of the tower's devices."""
    return f"/job:shard/task:{index}"


def owner(index: int) -> str:
    """Placeholder, in a tower's template, for the device of a variable it reads."""
    return f"/job:owner/task:{index}"


def is_one(device: str) -> bool:
    """Whether a device is such a placeholder."""
    return device.startswith(("/job:shard/", "/job:owner/"))


def of_node(device: str, devices: Sequence[str], owners: Sequence[str]) -> str:
    """The device of a template's node in a tower.

    Args:
      device: the node's device in the template: empty, a `shard` or an `owner`, perhaps
        with a device type.
      devices: of the tower.
      owners: devices of the variables that it reads.
    """
    if not device:
        return devices[0]
    said = tf.DeviceSpec.from_string(device)
    where = {"shard": devices, "owner": owners}.get(said.job, devices[:1])
    spec = tf.DeviceSpec.from_string(where[said.task or 0])
    return spec.make_merged_spec(said.replace(job=None, task=None)).to_string()
