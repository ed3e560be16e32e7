"""Refuses `==` and `!=` of tensors in a model's code.

In a graph they compare Python objects, so `labels == 3` is False for any labels.
"""

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

# What a user compares with a tensor's values.
_VALUES = (bool, int, float, complex, list, np.ndarray, np.generic, tf.Tensor)

# Packages whose own comparisons are of objects.
_LIBRARIES = {"keras", "numpy", "tensorflow", "tf_keras", *sys.stdlib_module_names}

# Held while the operators of `tf.Tensor` are replaced.
_LOCK = threading.RLock()


@contextlib.contextmanager
def comparisons_refused() -> Iterator[None]:
    """Raises ValueError where this thread compares tensors by == or != in a graph.

    The operators of `tf.Tensor` are replaced in the `with` block, and do in other
    threads what they did before.
    """
    here = threading.get_ident()

    def refusing(
        compare: Callable[[Any, Any], Any], sign: str, name: str
    ) -> Callable[[Any, Any], Any]:
        def checked(self: Any, other: Any) -> Any:
            result = compare(self, other)
            if threading.get_ident() != here or not isinstance(result, bool):
                return result
            package = sys._getframe(1).f_globals.get("__name__", "").split(".")[0]
            if isinstance(other, _VALUES) and package not in _LIBRARIES:
                raise ValueError(
                    f"a tensor is compared by {sign}, which in a graph compares Python "
                    f"objects and is always {result}; write tf.{name}"
                )
            return result

        return checked

    with _LOCK:
        before = tf.Tensor.__eq__, tf.Tensor.__ne__
        tf.Tensor.__eq__ = refusing(before[0], "==", "equal")
        tf.Tensor.__ne__ = refusing(before[1], "!=", "not_equal")
        try:
            yield
        finally:
            tf.Tensor.__eq__, tf.Tensor.__ne__ = before
