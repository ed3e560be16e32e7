"""TensorFlow's errors in a sentence that says what to do."""

import re

import tensorflow as tf


def operation_error(error: tf.errors.OpError, source) -> str | None:
    """What went wrong and what to do, or None when it is nobody's mistake.

    Args:
      error: from a session call.
      source: of the batches, of `inputs`.
    """
    text = error.message or ""
    placed = re.search(
        r"Cannot assign a device for operation ([\w./-]+):?(.*)", text, re.DOTALL
    )
    if placed:
        name, rest = placed.group(1), placed.group(2).strip().splitlines()
        tower, _, inner = name.partition("/")
        reason = rest[0][:160] if rest else ""
        where = f"{tower}, block {inner.partition('/')[0]}" if inner else name
        return (
            f"operation {name} ({where}) has no kernel for its device: {reason} "
            "Write the block with operations that the device has, or run with "
            "--device=cpu."
        )
    if isinstance(error, tf.errors.ResourceExhaustedError):
        return (
            "out of memory: lower --batch_size"
            f" ({text.strip().splitlines()[0][:160] if text else ''})"
        )
    return source.explain(error)
