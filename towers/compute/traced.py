"""The graph in which a model is traced.

It differs from a graph of TensorFlow 1 in two ways: collections of variables list the
placeholders that stand for them, and the model cannot choose devices.
"""

import contextlib
import os
import re
import traceback
from typing import Any

import tensorflow as tf

from towers.compute.variable_getter import VariablePlaceholders
from towers.layout import placeholders

v1 = tf.compat.v1

_TRAINABLE = v1.GraphKeys.TRAINABLE_VARIABLES
_VARIABLES = (_TRAINABLE, v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.MODEL_VARIABLES)

# Files of the frames between `tf.device(...)` and the graph's method.
_BETWEEN = (
    __file__,
    contextlib.__file__,
    *(
        function.__code__.co_filename
        for function in (tf.device, v1.get_variable_scope, v1.trainable_variables)
    ),
)

_TENSORFLOW = os.path.join(os.path.dirname(tf.__file__), "")


class TracedGraph(tf.Graph):
    """A graph whose collections of variables list what the tower reads.

    Args:
      variables: of the model.
    """

    def __init__(self, variables: VariablePlaceholders):
        super().__init__()
        self._listed = variables.listed

    def get_collection(self, name: str, scope: str | None = None) -> list[Any]:
        """As in `tf.Graph`; a collection of variables has the tensors read so far.

        Their names are those of the variables after `read/`, which `scope` leaves out.
        """
        if name not in _VARIABLES or _is_asked_by_tensorflow():
            return super().get_collection(name, scope)
        wanted = re.compile(scope or "")
        return [
            value
            for own_name, value in self._listed(trainable=name == _TRAINABLE)
            if wanted.match(own_name)
        ]

    def get_collection_ref(self, name: str) -> list[Any]:
        """As `get_collection`, with the variables read in this graph only.

        TensorFlow calls it for each branch and each function.
        """
        if name not in _VARIABLES:
            return super().get_collection_ref(name)
        listed = self._listed(trainable=name == _TRAINABLE, known=False)
        return [value for _, value in listed]

    def device(self, device_name_or_function: Any) -> Any:
        """As in `tf.Graph`.

        Raises:
          ValueError: the model sets a device.
        """
        device = device_name_or_function
        ours = isinstance(device, str) and placeholders.is_one(device)
        if device and not ours and not _is_asked_by_tensorflow():
            raise ValueError(
                f"tf.device({device!r}) would put these operations of all towers on "
                "one device; leave it out: each tower, or stage, gets its own device"
            )
        return super().device(device)


def _is_asked_by_tensorflow() -> bool:
    """Whether the caller is TensorFlow's own code, such as that of a gradient."""
    for frame, _ in traceback.walk_stack(None):
        if (file := frame.f_code.co_filename) not in _BETWEEN:
            return file.startswith(_TENSORFLOW)
    return False
