"""TensorFlow's optimizers, with better updates for sparse gradients.

TensorFlow has kernels for Momentum's and RMSProp's sparse updates on CPUs only.  On any
other device the rows with gradients are gathered, updated as these kernels do, and
scattered back; other rows, and their slots, stay unchanged.

Adam's moments decay in every row, with a gradient or without, so every row changes in
every step.  TensorFlow computes that in about twenty passes over the table and copies
of it.  Here the gradient is made dense on the table's device, so that the single kernel
of a dense update can be used.
"""

import tensorflow as tf

from towers.optimizers import adamw_lars_lamb
from towers.optimizers.copy_optimizer import Rate, RatesOfTensorFlow

v1 = tf.compat.v1


class GradientDescent(RatesOfTensorFlow, v1.train.GradientDescentOptimizer):
    """TensorFlow's gradient descent, with a rate for each variable."""

    def __init__(self, rate: Rate):
        super().__init__(self.current_rate)
        self.rate = rate


class Momentum(RatesOfTensorFlow, v1.train.MomentumOptimizer):
    """TensorFlow's Momentum, with sparse updates on any device."""

    def __init__(self, rate: Rate, momentum: float, *, nesterov: bool):
        super().__init__(self.current_rate, momentum, use_nesterov=nesterov)
        self.rate = rate
        self._own = (momentum, nesterov)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        """Updates rows; `indices` are int32 or int64 and unique."""
        if _has_kernel(handle):
            return super()._resource_apply_sparse(grad, handle, indices)
        (momentum, nesterov), rate = self._own, self.rate_of(handle)
        slot = self.get_slot(handle, "momentum")
        moved = slot.sparse_read(indices) * momentum + grad
        step = grad * rate + moved * momentum * rate if nesterov else moved * rate
        return tf.group(_put(slot, indices, moved), _take(handle, indices, step))


class RmsProp(RatesOfTensorFlow, v1.train.RMSPropOptimizer):
    """TensorFlow's RMSProp, with sparse updates on any device."""

    def __init__(self, rate: Rate, decay: float, *, momentum: float, epsilon: float):
        super().__init__(self.current_rate, decay, momentum=momentum, epsilon=epsilon)
        self.rate = rate
        self._own = (decay, momentum, epsilon)

    def _resource_apply_sparse(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        """Updates rows; `indices` are int32 or int64 and unique."""
        if _has_kernel(handle):
            return super()._resource_apply_sparse(grad, handle, indices)
        (decay, momentum, epsilon), rate = self._own, self.rate_of(handle)
        square, slot = self.get_slot(handle, "rms"), self.get_slot(handle, "momentum")
        mean = square.sparse_read(indices) * decay + tf.square(grad) * (1.0 - decay)
        step = slot.sparse_read(indices) * momentum
        step += tf.math.rsqrt(mean + epsilon) * rate * grad
        return tf.group(
            _put(square, indices, mean),
            _put(slot, indices, step),
            _take(handle, indices, step),
        )


class Adam(RatesOfTensorFlow, v1.train.AdamOptimizer):
    """TensorFlow's Adam, with sparse gradients made dense where they are applied."""

    def __init__(self, rate: Rate, *settings: float):
        super().__init__(self.current_rate, *settings)
        self.rate = rate

    def _resource_apply_sparse_duplicate_indices(
        self, grad: tf.Tensor, handle: tf.Variable, indices: tf.Tensor
    ) -> tf.Operation:
        """Updates all rows; `indices` may name a row more than once."""
        slices = tf.IndexedSlices(grad, indices)
        return self._resource_apply_dense(adamw_lars_lamb.dense(slices, handle), handle)


def _has_kernel(variable: tf.Variable) -> bool:
    return tf.DeviceSpec.from_string(variable.device).device_type in (None, "CPU")


def _put(variable: tf.Variable, indices: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterUpdate(
        resource=variable.handle, indices=indices, updates=rows
    )


def _take(variable: tf.Variable, indices: tf.Tensor, rows: tf.Tensor) -> tf.Operation:
    return tf.raw_ops.ResourceScatterSub(
        resource=variable.handle, indices=indices, updates=rows
    )
