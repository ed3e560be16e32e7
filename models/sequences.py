"""The layers of networks that read sequences.

A model with `layers=SequenceLayers` has them in addition to those of `models.layers`.
Sequences are [batch, length, units], of static shape.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from models.layers import Initializer, Layers
from models.logits import Product

v1 = tf.compat.v1

# The score of a masked token: large, but far from the limits of float32.
_MASKED = -1e9


def gelu(x: tf.Tensor) -> tf.Tensor:
    """The Gaussian error linear unit by tanh (Hendrycks & Gimpel 2016).

    `tf.nn.gelu` computes the cube by `pow`, which takes two thirds of a training step
    of a small transformer on a CPU.
    """
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + tf.tanh(inner))


class SequenceLayers(Layers):
    """`Layers`, with tied weights, layer normalisation, attention and LSTM cells."""

    def shared(
        self, name: str, shape: Sequence[int], initializer: Initializer = None
    ) -> tf.Tensor:
        """A trainable variable that several blocks share: tied weights.

        Args:
          name: the full name, such as `embedding/tokens`, without the block's scope.
          shape: the same in every block.
          initializer: that of the first block is used.
        """
        scope = v1.VariableScope(
            v1.AUTO_REUSE,
            custom_getter=v1.get_variable_scope().custom_getter,
            use_resource=True,
        )
        with v1.variable_scope(scope, auxiliary_name_scope=False):
            return self.variable(name, shape, initializer)

    def unembed(self, x: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
        """Each row's product with x: a classifier whose weights are an embedding's.

        Args:
          x: [batch, ..., units].
          table: [rows, units].

        Returns:
          [batch, ..., rows].
        """
        *outer, units = x.shape
        flat = tf.reshape(x, [math.prod(outer), units])
        y = tf.matmul(flat, table, transpose_b=True)
        y = tf.reshape(y, [*outer, table.shape[0]])
        self.products.append(Product(y, flat, table, transposed=True))
        return y

    def layer_norm(self, x: tf.Tensor, epsilon: float = 1e-5) -> tf.Tensor:
        """Normalises each token by its own mean and variance (Ba et al. 2016).

        Statistics and parameters are float32 whatever `dtype` is; x keeps its dtype.
        """
        shape = x.shape[-1:]
        with v1.variable_scope(None, default_name="layer_norm"):
            beta = self.variable("beta", shape, v1.zeros_initializer(), tf.float32)
            gamma = self.variable("gamma", shape, v1.ones_initializer(), tf.float32)
        wide = tf.cast(x, tf.float32)
        mean, variance = tf.nn.moments(wide, -1, keepdims=True)
        y = (wide - mean) * tf.math.rsqrt(variance + epsilon) * gamma + beta
        return tf.cast(y, x.dtype)

    def causal_attention(
        self,
        x: tf.Tensor,
        heads: int,
        *,
        dropout: float = 0.0,
        initializer: Initializer = None,
        output_initializer: Initializer = None,
    ) -> tf.Tensor:
        """Self-attention without attention to later tokens (Vaswani et al. 2017).

        The softmax is always in float32.

        Args:
          x: [batch, length, units].
          heads: divides units.
          dropout: of the attention's weights.
          initializer: of the kernel that makes queries, keys and values.
          output_initializer: of the kernel that joins the heads.
        """
        batch, length, units = x.shape
        with v1.variable_scope(None, default_name="attention"):
            joined = self.dense(x, 3 * units, use_bias=False, initializer=initializer)
            bias = self.variable("bias", [3 * units], v1.zeros_initializer())
            # A bias of the keys adds the same to all scores of a query, which does not
            # change the softmax.  Its gradient would be only rounding, from which Adam
            # makes full-size steps.
            seen = tf.constant(np.repeat([1, 0, 1], units), bias.dtype)
            joined = tf.nn.bias_add(joined, bias * seen)
            joined = tf.reshape(joined, [batch, length, 3, heads, units // heads])
            query, key, value = tf.unstack(tf.transpose(joined, [2, 0, 3, 1, 4]))
            scores = tf.matmul(query, key, transpose_b=True)
            scores = tf.cast(scores, tf.float32) / math.sqrt(units // heads)
            order = tf.range(length)
            hidden = tf.where(order[:, None] < order, _MASKED, 0.0)
            weights = tf.cast(tf.nn.softmax(scores + hidden), x.dtype)
            y = tf.matmul(self.dropout(weights, dropout), value)
            y = tf.reshape(tf.transpose(y, [0, 2, 1, 3]), [batch, length, units])
            return self.dense(y, units, initializer=output_initializer)

    def lstm(
        self,
        x: tf.Tensor,
        units: int,
        *,
        initializer: Initializer = None,
        forget_bias: float = 0.0,
        stateful: bool = False,
    ) -> tf.Tensor:
        """A layer of LSTM cells over the sequence, unrolled.

        The gates are, in the order of the kernels' columns, those of input, candidate,
        forgetting and output.  There are no peepholes.  Gates and state are float32
        whatever `dtype` is; the products are not.

        Args:
          x: [batch, length, features].
          units: of the cell.
          initializer: of both kernels.
          forget_bias: added to the bias of the forget gate.
          stateful: whether the cells begin with the state at the end of the step
            before, as `initial_state` has it; if not, with zeros.

        Returns:
          [batch, length, units].
        """
        batch, length, features = x.shape
        with v1.variable_scope(None, default_name="lstm") as scope:
            kernel = self.variable("kernel", [features, 4 * units], initializer)
            recurrent = self.variable("recurrent", [units, 4 * units], initializer)
            bias = self.variable(
                "bias", [4 * units], v1.zeros_initializer(), tf.float32
            )
            state, output, outputs = None, None, []
            if stateful:
                state = self.initial_state("state", [batch, units])
                output = self.initial_state("output", [batch, units])
                output = tf.cast(output, x.dtype)
        # The product with the inputs does not depend on the step before, so it is one
        # product for all steps.
        rows = tf.reshape(x, [batch * length, features])
        inputs = tf.cast(tf.matmul(rows, kernel), tf.float32) + bias
        inputs = tf.unstack(tf.reshape(inputs, [batch, length, 4 * units]), axis=1)
        for gates in inputs:
            if output is not None:
                gates += tf.cast(tf.matmul(output, recurrent), tf.float32)
            enter, new, keep, leave = tf.split(gates, 4, axis=1)
            fresh = tf.sigmoid(enter) * tf.tanh(new)
            if state is not None:
                fresh += tf.sigmoid(keep + forget_bias) * state
            state = fresh
            output = tf.cast(tf.sigmoid(leave) * tf.tanh(state), x.dtype)
            outputs.append(output)
        if stateful:
            with v1.variable_scope(scope, auxiliary_name_scope=False):
                self.final_state("state", state)
                self.final_state("output", output)
        return tf.stack(outputs, axis=1)
