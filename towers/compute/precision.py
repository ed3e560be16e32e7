"""16-bit compute on float32 variables.

Variables, optimizer slots and moving averages are always float32.  The dtypes:

| in the compute dtype                    | in float32, whatever it is              |
|-----------------------------------------|-----------------------------------------|
| activations, convolutions, products     | statistics, parameters of normalisation |
| weights, as the layers read them        | gates and state of LSTM cells           |
| gradients, until they leave the tower   | softmax, loss, metrics                  |
|                                         | mean over towers, weight decay, clipping|
|                                         | the update, moving averages             |

bfloat16 has float32's range, so its gradients need no loss scaling; those of float16
do (`loss_scale`).
"""

from typing import Any

import tensorflow as tf

from flags.sections import ModelFlags
from towers.layout import parts

# --compute_dtype -> dtype.
COMPUTE_DTYPES: dict[str, tf.DType] = {
    "float32": tf.float32,
    "bfloat16": tf.bfloat16,
    "float16": tf.float16,
}


def compute_dtype(flags: ModelFlags) -> tf.DType:
    """The dtype that settings ask for."""
    return tf.float16 if flags.use_fp16 else COMPUTE_DTYPES[flags.compute_dtype]


class PrecisionCasts:
    """Casts that are made once, on the tensor's device, and shared by all towers."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, tf.DType], tf.Tensor] = {}

    def __call__(self, value: Any, dtype: tf.DType) -> Any:
        """Casts a tensor, or each of `parts.Parts`, unless it has the dtype."""
        return parts.apply(lambda tensor: self._cast(tensor, dtype), value)

    def _cast(self, tensor: tf.Tensor, dtype: tf.DType) -> tf.Tensor:
        if tensor.dtype == dtype:
            return tensor
        key = (tensor.name, dtype)
        if key not in self._made:
            with tf.device(tensor.device):
                self._made[key] = tf.cast(tensor, dtype)
        return self._made[key]
