"""A classifier whose classes are sharded over a tower's devices.

Each device holds the weights and the logits of its own classes; no device holds all.
Loss and metrics are computed from a few numbers per example and device:

  * the largest logit and the sum of exp(logit - largest), for the softmax;
  * the label's logit, from the device that has it, and 0 from the others;
  * how many logits are larger than the label's, for the accuracy.

So cross-entropy and its gradient are exact without gathering the logits.  The layer's
input rows are sent to each device, and each returns its part of their gradient.  Only
these and the numbers above are sent between devices.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import tensorflow as tf

from flags.problem import wrong_setting
from models.layers import Layers
from models.logits import Product
from towers.compute import deterministic_sum, kernels
from towers.compute.own_gradient import with_gradient
from towers.layout.parts import Split
from towers.layout.placeholders import shard
from towers.layout.shards import Shards, classifiers


class ClassifierShard(NamedTuple):
    """The weights of one device's classes.

    Attributes:
      begin: index of the first class.
      kernel: [features, classes]; [classes, features] if `transposed`.
      bias: [classes], or None.
    """

    begin: int
    kernel: tf.Tensor
    bias: tf.Tensor | None


def shard_logits(
    outputs: Any,
    nn: Layers,
    parts: Mapping[str, Sequence[tf.Tensor]],
    shards: Shards | None,
) -> Any:
    """Shards the logits of a model's last block as their weights are sharded.

    Args:
      outputs: of the block.
      nn: its layers, which have noted the last one.
      parts: name of a tensor that the model got -> its parts.
      shards: which layers are sharded; None if none is.
    """
    if shards is None or shards.devices == 1:
        return outputs
    last_layers = classifiers(nn.products, outputs)
    if len(last_layers) != 1 or not _by_classes(last := last_layers[0], parts):
        return outputs
    kernels = parts[last.kernel.name]
    biases = [None] * len(kernels) if last.bias is None else parts[last.bias.name]
    ranges = Split(len(kernels)).ranges(last.y.shape[-1])
    weights = [
        ClassifierShard(b, k, v) for (b, _), k, v in zip(ranges, kernels, biases)
    ]
    logits = ShardedLogits(last.x, weights, last.y.shape, transposed=last.transposed)
    return tf.nest.map_structure(lambda y: logits if y is last.y else y, outputs)


def _by_classes(last: Product, parts: Mapping[str, Sequence[tf.Tensor]]) -> bool:
    """Whether a layer's weights are sharded by classes."""
    axis = 1 if last.transposed else 0
    kernels = parts.get(last.kernel.name, [last.kernel])
    whole = kernels[0].shape[axis] == last.kernel.shape[axis]
    return len(kernels) > 1 and whole and (last.bias is None or last.bias.name in parts)


class ShardedLogits:
    """Sharded logits, as `models.logits` defines them.

    Args:
      rows: [rows, features], the layer's input.
      weights: of each device.
      shape: of the logits, [batch, ..., classes].
      transposed: whether the kernels are transposed.

    Attributes:
      shape: of the logits.
    """

    def __init__(
        self,
        rows: tf.Tensor,
        weights: Sequence[ClassifierShard],
        shape: tf.TensorShape,
        *,
        transposed: bool,
    ):
        self.shape = shape
        self._rows = rows
        self._weights = weights
        self._transposed = transposed
        self._pieces: list[tf.Tensor] = []

    def _refuse(self, *args: object, **options: object) -> NoReturn:
        """Raises, since the logits must not be gathered."""
        del args, options
        raise wrong_setting(
            "shard_classifier",
            None,
            "a loss or metric of the model reads its logits as one tensor",
            "let it ask models.logits, which takes them in pieces, or leave the flag "
            "out",
        )

    __tf_tensor__ = __getitem__ = __neg__ = __abs__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _refuse
    __truediv__ = __rtruediv__ = __pow__ = __rpow__ = __matmul__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = _refuse

    def cross_entropy(self, labels: tf.Tensor, smoothing: float = 0.0) -> tf.Tensor:
        """As `models.logits.cross_entropy`."""
        flat = tf.reshape(labels, [-1])
        pieces = [
            self._softmax(index, flat, smoothing) for index in range(len(self._weights))
        ]
        top = tf.reduce_max([piece.top for piece in pieces], 0)
        total = deterministic_sum.sum_in_order(
            [piece.total * tf.exp(piece.top - top) for piece in pieces]
        )
        label = tf.add_n([piece.label for piece in pieces])
        return tf.reshape(tf.math.log(total) + (top - label), labels.shape)

    def in_top_k(self, labels: tf.Tensor, k: int) -> tf.Tensor:
        """As `models.logits.in_top_k`."""
        flat = tf.reshape(labels, [-1])
        label = self._label(flat)
        larger, finite = [], [tf.math.is_finite(label)]
        for index, logits in enumerate(self._logits()):
            with tf.device(shard(index)):
                more = tf.cast(logits > label[:, None], tf.int32)
                larger.append(tf.reduce_sum(more, 1))
                finite.append(tf.reduce_all(tf.math.is_finite(logits), 1))
        hits = tf.logical_and(tf.add_n(larger) < k, tf.reduce_all(finite, 0))
        return tf.reshape(hits, labels.shape)

    def gathered(self) -> tf.Tensor:
        """As `models.logits.Logits` has it."""
        return tf.reshape(tf.concat(self._logits(), 1), self.shape)

    def argmax(self) -> tf.Tensor:
        """As `models.logits.argmax`."""
        largest, classes = [], []
        for index, logits in enumerate(self._logits()):
            with tf.device(shard(index)):
                largest.append(tf.reduce_max(logits, 1))
                classes.append(tf.argmax(logits, 1) + self._weights[index].begin)
        device = tf.argmax(largest)
        best = tf.gather(tf.stack(classes, 1), device, batch_dims=1)
        return tf.reshape(best, self.shape[:-1])

    def _logits(self) -> list[tf.Tensor]:
        """The logits of each device's classes, float32."""
        if not self._pieces:
            for index, piece in enumerate(self._weights):
                with tf.device(shard(index)):
                    y = tf.matmul(
                        self._rows, piece.kernel, transpose_b=self._transposed
                    )
                    if piece.bias is not None:
                        y = tf.nn.bias_add(y, piece.bias)
                    self._pieces.append(tf.cast(y, tf.float32))
        return self._pieces

    def _label(self, labels: tf.Tensor) -> tf.Tensor:
        """The label's logit: float32 [rows], from the device that has it."""
        label_logits = []
        for index, logits in enumerate(self._logits()):
            with tf.device(shard(index)):
                column, is_here = self._column(labels, index, logits)
                value = tf.gather(logits, column, batch_dims=1)
                label_logits.append(tf.where(is_here, value, 0.0))
        return tf.add_n(label_logits)

    def _column(
        self, labels: tf.Tensor, index: int, logits: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The column of the label's class on a device, and whether it is there."""
        column = tf.cast(labels, tf.int32) - self._weights[index].begin
        is_here = tf.logical_and(column >= 0, column < logits.shape[1])
        return tf.where(is_here, column, 0), is_here

    def _softmax(self, index: int, labels: tf.Tensor, smoothing: float) -> "_Softmax":
        """A device's share of the softmax.

        With smoothing, a share of the label's logit is that of the mean of all.  The
        largest logits only keep sums in range; the cross-entropy does not depend on
        them, so they are constants for the gradient.
        """
        logits, weights = self._logits()[index], self._weights[index]
        smoothed = smoothing / self.shape[-1]
        column, is_here = self._column(labels, index, logits)
        inputs = [self._rows, weights.kernel]
        inputs += [] if weights.bias is None else [weights.bias]

        def backward(of_total: tf.Tensor, of_label: tf.Tensor) -> list[tf.Tensor]:
            with tf.device(shard(index)):
                error = tf.exp(logits - top[:, None]) * of_total[:, None]
                places = tf.stack([tf.range(tf.size(column)), column], 1)
                label_gradient = tf.where(is_here, of_label, 0.0)
                if smoothing:
                    error += smoothed * of_label[:, None]
                    label_gradient *= 1.0 - smoothing
                error = tf.tensor_scatter_nd_add(error, places, label_gradient)
                return self._gradients(index, tf.cast(error, self._rows.dtype))

        with tf.device(shard(index)):
            top = tf.stop_gradient(tf.reduce_max(logits, 1))
            total = tf.reduce_sum(tf.exp(logits - top[:, None]), 1)
            label = tf.where(is_here, tf.gather(logits, column, batch_dims=1), 0.0)
            if smoothing:
                label += smoothed * tf.reduce_sum(logits, 1) - smoothing * label
            return _Softmax(top, *with_gradient([total, label], inputs, backward))

    def _gradients(self, index: int, error: tf.Tensor) -> list[tf.Tensor]:
        """The gradients of the rows and a device's weights, from that of its logits."""
        rows, weights = self._rows, self._weights[index]
        if self._transposed:
            of_rows = tf.matmul(error, weights.kernel)
            of_kernel = tf.matmul(error, rows, transpose_a=True)
        else:
            of_rows = tf.matmul(error, weights.kernel, transpose_b=True)
            of_kernel = tf.matmul(rows, error, transpose_a=True)
        if weights.bias is None:
            return [of_rows, of_kernel]
        return [of_rows, of_kernel, kernels.sum_of_rows(error)]


class _Softmax(NamedTuple):
    """A device's share of the softmax of all rows, float32 [rows] each.

    Attributes:
      top: the largest logit.
      total: sum of exp(logit - top).
      label: the label's logit, or 0 where another device has it.
    """

    top: tf.Tensor
    total: tf.Tensor
    label: tf.Tensor
