"""A bare TensorFlow graph of the same operations, as a reference for speed.

    python -m benchmarks.peers.bare_peer --model=resnet50 --num_devices=4 --batch_size=4

The simplest code for one model and one machine: variables on the first device, a tower
per device, the mean by `add_n`, plain SGD, one callable.  It has no template, modes,
input pipeline or hooks.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import numpy as np
import tensorflow as tf

from benchmarks.peers import peer

v1 = tf.compat.v1


class Net:
    """Layers that share their variables between towers.

    Args:
      dtype: of activations and of weights as they are read.
      device: of the variables.
    """

    def __init__(self, dtype: tf.DType, device: str = "/device:CPU:0"):
        self.dtype = dtype
        self._device = device
        self.variables: list[tf.Variable] = []
        self._casts: list[tf.Tensor] = []
        self._next = 0

    def begin(self) -> None:
        """Begins a tower: the next variable is again the first."""
        self._next = 0

    def _variable(self, shape, start: float | None = None, *, narrow=True):
        """The next variable's value, made for the first tower and shared by the others.

        Args:
          shape: of the variable.
          start: its initial value; None for He's normal initializer.
          narrow: whether it is read in `dtype`, and not in float32.
        """
        if self._next == len(self.variables):
            with tf.device(self._device):
                fan_in = int(np.prod(shape[:-1])) or 1
                initial = v1.random_normal_initializer(stddev=(2.0 / fan_in) ** 0.5)
                if start is not None:
                    initial = v1.constant_initializer(start)
                name = f"v{len(self.variables)}"
                weight = v1.get_variable(name, shape, None, initial, use_resource=True)
                value = weight.read_value()
                self._casts.append(tf.cast(value, self.dtype) if narrow else value)
            self.variables.append(weight)
        self._next += 1
        return self._casts[self._next - 1]

    @property
    def reads(self) -> list[tf.Tensor]:
        """What towers read, one per variable."""
        return self._casts

    def conv(self, x, filters: int, size: int, strides: int = 1, *, relu=True):
        """Convolution without bias, batch norm, and ReLU if `relu`."""
        padding = "SAME"
        if strides > 1 and size > 1:
            before = (size - 1) // 2
            pads = [before, size - 1 - before]
            x, padding = tf.pad(x, [[0, 0], pads, pads, [0, 0]]), "VALID"
        kernel = self._variable([size, size, x.shape[-1], filters])
        x = tf.nn.conv2d(x, kernel, strides, padding)
        beta = self._variable([filters], 0.0, narrow=False)
        gamma = self._variable([filters], 1.0, narrow=False)
        x, _, _ = v1.nn.fused_batch_norm(x, gamma, beta, epsilon=1e-5)
        return tf.nn.relu(x) if relu else x

    def conv_bias(self, x, filters: int, size: int):
        """Convolution with bias, and ReLU."""
        x = tf.nn.conv2d(
            x, self._variable([size, size, x.shape[-1], filters]), 1, "SAME"
        )
        return tf.nn.relu(tf.nn.bias_add(x, self._variable([filters], 0.0)))

    def dense(self, x, units: int, *, relu=False):
        """Fully connected layer, and ReLU if `relu`."""
        x = tf.matmul(x, self._variable([x.shape[-1], units]))
        x = tf.nn.bias_add(x, self._variable([units], 0.0))
        return tf.nn.relu(x) if relu else x


def lenet(x: tf.Tensor, net: Net, num_classes: int = 1001) -> tf.Tensor:
    """Two convolutions and a dense layer."""
    for filters in (32, 64):
        x = tf.nn.max_pool2d(net.conv_bias(x, filters, 5), 2, 2, "SAME")
    x = tf.reshape(x, [x.shape[0], -1])
    return net.dense(net.dense(x, 512, relu=True), num_classes)


def lenet_digits(x: tf.Tensor, net: Net) -> tf.Tensor:
    """The same, for the digits that ship with this project."""
    return lenet(x, net, 10)


def resnet50(x: tf.Tensor, net: Net) -> tf.Tensor:
    """He et al.'s for ImageNet, version 1: strides in the 1 x 1 convolutions."""
    x = tf.nn.max_pool2d(net.conv(x, 64, 7, 2), 3, 2, "SAME")
    for filters, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for unit in range(units):
            strides = 2 if filters > 64 and unit == 0 else 1
            shortcut = x
            if unit == 0:
                shortcut = net.conv(x, 4 * filters, 1, strides, relu=False)
            x = net.conv(net.conv(x, filters, 1, strides), filters, 3)
            x = tf.nn.relu(net.conv(x, 4 * filters, 1, relu=False) + shortcut)
    return net.dense(tf.reduce_mean(x, [1, 2]), 1001)


class BareModel(NamedTuple):
    """A model."""

    network: Callable[[tf.Tensor, Net], tf.Tensor]  # images -> logits
    shape: tuple[int, int, int]  # of an image


MODELS = {
    "lenet": BareModel(lenet, (28, 28, 3)),
    "lenet_digits": BareModel(lenet_digits, (8, 8, 1)),
    "resnet50": BareModel(resnet50, (224, 224, 3)),
}


def build(
    row: BareModel,
    num_devices: int,
    batch_size: int,
    *,
    dtype: tf.DType,
    rate: float,
    kind: str = "CPU",
) -> tuple[tf.Operation, Net]:
    """Adds a step of towers on logical CPU devices, or on GPUs, to the current graph.

    Args:
      row: the model.
      num_devices: with one tower on each.
      batch_size: per tower.
      dtype: of activations.
      rate: the learning rate.
      kind: of the devices, the first of which has the variables.

    Returns:
      The step, and the net with its variables.
    """
    net = Net(dtype, f"/device:{kind}:0")
    towers = []
    for index in range(num_devices):
        with tf.device(f"/device:{kind}:{index}"):
            images = v1.get_local_variable(
                f"images{index}",
                [batch_size, *row.shape],
                initializer=v1.random_uniform_initializer(),
                use_resource=True,
            ).read_value()
            net.begin()
            logits = row.network(tf.cast(images, dtype), net)
            classes = np.arange(batch_size) % logits.shape[-1]
            labels = tf.constant(classes, tf.int32)
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=labels, logits=tf.cast(logits, tf.float32)
                )
            )
            towers.append(tf.gradients(loss / num_devices, net.reads))
    changes = []
    with tf.device(f"/device:{kind}:0"):
        for variable, gradients in zip(net.variables, zip(*towers)):
            mean = tf.add_n([tf.cast(g, tf.float32) for g in gradients])
            changes.append(
                tf.raw_ops.ResourceApplyGradientDescent(
                    var=variable.handle, alpha=rate, delta=mean
                )
            )
        return tf.group(*changes), net


def main(argv: Sequence[str] | None = None) -> None:
    """Trains as the flags say and prints the total line."""
    flags = peer.parser("peers.bare_peer", __doc__, MODELS)
    flags.add_argument(
        "--compute_dtype", choices=("float32", "bfloat16"), default="float32"
    )
    options = flags.parse_args(argv)
    cores = len(os.sched_getaffinity(0))
    config = v1.ConfigProto(
        device_count={"CPU": options.num_devices},
        # As this project does it: a core works on a tower of its own.
        intra_op_parallelism_threads=1 if options.num_devices >= cores > 1 else 0,
    )
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    config.graph_options.optimizer_options.opt_level = v1.OptimizerOptions.L0
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        step, _ = build(
            MODELS[options.model],
            options.num_devices,
            options.batch_size,
            dtype=tf.as_dtype(options.compute_dtype),
            rate=options.learning_rate,
        )
        session.run(
            [v1.global_variables_initializer(), v1.local_variables_initializer()]
        )
        run = session.make_callable(step)
        for _ in range(options.num_warmup_batches):
            run()
        begun = time.perf_counter()
        for _ in range(options.num_batches):
            run()
        print(peer.total_line(options, time.perf_counter() - begun), flush=True)


if __name__ == "__main__":
    main()
