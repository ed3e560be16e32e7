"""A getter of placeholders in the place of variables, as towers are traced."""

from typing import Any

import tensorflow as tf

v1 = tf.compat.v1


class PlaceholderGetter:
    """A custom getter of `tf.compat.v1.variable_scope`.

    Attributes:
      all: variable -> its placeholder, in order of creation.
      trainable: the same of those that are trained.
    """

    def __init__(self) -> None:
        self.all: dict[str, tf.Tensor] = {}
        self.trainable: dict[str, tf.Tensor] = {}

    def __call__(
        self,
        getter: Any,
        name: str,
        *,
        shape: Any,
        dtype: Any,
        trainable: bool | None = True,
        **options: Any,
    ) -> tf.Tensor:
        """The placeholder of a variable; that of before if it is shared on purpose."""
        if options.get("reuse") is v1.AUTO_REUSE and name in self.all:
            return self.all[name]
        assert name not in self.all, name
        read = v1.placeholder(dtype, shape)
        self.all[name] = read
        if trainable is not False:
            self.trainable[name] = read
        return read
