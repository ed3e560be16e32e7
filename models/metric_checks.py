"""What a model's loss, metrics, pictures and derived values may be.

Each check raises a ValueError whose sentence names the model and the value.
"""

import re
from typing import Any

import numpy as np
import tensorflow as tf

# Of blocks and metrics: TensorFlow prefixes the names of operations with them.
NAME = re.compile(r"[A-Za-z0-9.][A-Za-z0-9_.\-/]*")


def check_name(model: str, name: object) -> None:
    """Checks that a metric or a picture of a model can have a name."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(
            f"{name} of model {model!r}: no such name; write letters, digits and _, "
            "and begin with no _"
        )


def check_value(model: str, name: str, value: Any, batch_size: int) -> None:
    """Checks a loss, float32 [batch], or a metric, which may be wider.

    Args:
      model: name of the model.
      name: `loss`, or of the metric.
      value: that the model's function returned.
      batch_size: examples in the batch.
    """
    check_name(model, name)
    actual, wanted = _kind(value), f"float32 ({batch_size},)"
    if actual == wanted or (name != "loss" and _is_wide(value, batch_size)):
        return
    words = f"{wanted}, one number for each example of a batch"
    if name != "loss":
        words += f", or wider: float32 ({batch_size}, ...)"
    raise ValueError(f"{name} of model {model!r} is {actual}, and must be {words}")


def check_picture(model: str, name: str, images: Any, batch_size: int) -> None:
    """Checks pictures, uint8 or float [batch, height, width, 1 or 3].

    Args:
      model: name of the model.
      name: of the pictures.
      images: that the model's function returned.
      batch_size: examples in the batch.
    """
    check_name(model, name)
    if isinstance(images, tf.Tensor):
        shape, dtype = images.shape, images.dtype
        whole = shape.rank == 4 and shape.is_fully_defined()
        if whole and shape[0] == batch_size and shape[3] in (1, 3):
            if dtype.is_floating or dtype == tf.uint8:
                return
    raise ValueError(
        f"picture {name} of model {model!r} is {_kind(images)}, and must be uint8 or "
        f"float ({batch_size}, height, width, 1 or 3)"
    )


def number_or_picture(name: Any, value: Any) -> Any:
    """A derived value as a float, or as an array uint8 [height, width, 1 or 3].

    Raises:
      ValueError: it is another array.
      TypeError: it is no number.
    """
    array = np.asarray(value)
    if array.ndim == 0:
        return float(value)
    if array.dtype == np.uint8 and array.ndim == 3 and array.shape[2] in (1, 3):
        return array
    raise ValueError(
        f"{name!r} is {array.dtype} {array.shape}; return a number, or a picture: "
        "uint8 (height, width, 1 or 3)"
    )


def _kind(value: Any) -> str:
    """Dtype and shape of a tensor, or the type of what is none."""
    if isinstance(value, tf.Tensor):
        return f"{value.dtype.name} {value.shape}"
    return type(value).__name__


def _is_wide(value: Any, batch_size: int) -> bool:
    """Whether a metric has more than one number for each example."""
    return (
        isinstance(value, tf.Tensor)
        and value.dtype in (tf.float32, tf.float64)
        and value.shape.is_fully_defined()
        and value.shape.rank > 1
        and value.shape[0] == batch_size
    )
