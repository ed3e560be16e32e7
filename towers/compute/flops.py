"""Model FLOP/s utilization: FLOP/s of the towers divided by the devices' peak.

The multiplications and additions of the towers' convolutions and matrix products are
counted, forward and backward; element-wise operations are not.  The peak is measured:
the better of one large matrix product and one 3x3 convolution on the same devices.
"""

import math
import time
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from towers.cluster.sessions import Local, Sessions
from towers.layout.placement import (
    Placement,
    cores,
    gpus_of,
    session_config,
    threads_in_operation,
)

v1 = tf.compat.v1


def of_graph(graph: tf.Graph, prefix: str = "") -> int:
    """Floating point operations in one run of the operations under a prefix.

    Args:
      graph: operations without static shapes, as after `tf.boolean_mask`, are not
        counted.
      prefix: of the operations' names.
    """
    return of_operations(
        op for op in graph.get_operations() if op.name.startswith(prefix)
    )


def of_operations(operations: Iterable[tf.Operation]) -> int:
    """Floating point operations in one run of those that have static shapes."""
    return sum(_COUNTS[op.type](op) for op in operations if op.type in _COUNTS)


def of_nodes(graph_def: v1.GraphDef) -> int:
    """Floating point operations in one run of a tower's template."""
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(graph_def, name="")
    return of_graph(graph)


def _size(tensor: tf.Tensor) -> int:
    return tensor.shape.num_elements() or 0


def _product(op: tf.Operation, length: int | None) -> int:
    """Each output element takes `length` multiplications and additions."""
    return 2 * _size(op.outputs[0]) * (length or 0)


def _matmul(op: tf.Operation) -> int:
    if _adds_rows(op.inputs[0]) or _adds_neighbours(op.inputs[1]):
        return 0
    return _product(op, op.inputs[0].shape[0 if op.get_attr("transpose_a") else 1])


def _adds_rows(left: tf.Tensor) -> bool:
    """Whether a product is a sum of rows, as the gradient of a bias is."""
    if left.shape.rank != 2 or left.shape[0] != 1:
        return False
    ones = tf.get_static_value(left)
    return ones is not None and bool(np.all(ones == 1))


def _adds_neighbours(right: tf.Tensor) -> bool:
    """Whether a product is of sums, as in the gradient of local response norm."""
    if right.shape.rank != 2 or right.shape[0] != right.shape[1]:
        return False
    band = tf.get_static_value(right)
    return band is not None and bool(
        band[0, 0] and np.isin(band, (0, band[0, 0])).all()
    )


def _batch_matmul(op: tf.Operation) -> int:
    return _product(op, op.inputs[0].shape[-2 if op.get_attr("adj_x") else -1])


def _conv(output: tf.Tensor, kernel: tf.TensorShape) -> int:
    """Each output element takes one product per filter element and input channel."""
    return 2 * _size(output) * int(np.prod(kernel[:3]))


def _depthwise(output: tf.Tensor, kernel: tf.TensorShape) -> int:
    """Each output element takes one product per filter element."""
    return 2 * _size(output) * int(np.prod(kernel[:2]))


def _conv_forward(op: tf.Operation) -> int:
    return _conv(op.outputs[0], op.inputs[1].shape)


def _conv_input(op: tf.Operation) -> int:
    return _conv(op.inputs[2], op.inputs[1].shape)


def _conv_filter(op: tf.Operation) -> int:
    return _conv(op.inputs[2], op.outputs[0].shape)


_COUNTS = {
    "MatMul": _matmul,
    "BatchMatMulV2": _batch_matmul,
    "Conv2D": _conv_forward,
    "Conv2DBackpropInput": _conv_input,
    "Conv2DBackpropFilter": _conv_filter,
    "DepthwiseConv2dNative": lambda op: _depthwise(op.outputs[0], op.inputs[1].shape),
    "DepthwiseConv2dNativeBackpropInput": lambda op: _depthwise(
        op.inputs[2], op.inputs[1].shape
    ),
    "DepthwiseConv2dNativeBackpropFilter": lambda op: _depthwise(
        op.inputs[2], op.outputs[0].shape
    ),
}


def measure_peak(
    placement: Placement,
    dtype: tf.DType = tf.float32,
    sessions: Sessions = Local(),  # noqa: B008 - it holds nothing
    *,
    seconds: float = 0.15,
    at_least: float = 0.0,
) -> float:
    """FLOP/s that the placement's devices reach together.

    The logical CPU devices of a host share its cores, so one of them is measured, with
    enough kernels for all cores.  Of several GPUs the first is measured.  All hosts
    compute at the same time; those of other clients are assumed to be like this one's.

    Args:
      placement: of the towers.
      dtype: in which they compute.
      sessions: opens sessions.
      seconds: how long each of the two kernels is measured.
      at_least: FLOP/s that the devices have reached before.  If less is measured,
        something else uses them, and they are measured again, for ten times as long.
    """
    gpu = placement.kind == "gpu"
    threads = threads_in_operation(placement) or cores()
    # As many kernels as cores, if each runs in one thread.
    copies = cores() if threads == 1 else 1
    with tf.Graph().as_default() as graph:
        kernels, counts = [], []
        for number, (host, devices) in enumerate(placement.groups):
            for copy in range(copies):
                scope = v1.variable_scope(f"host_{number}_{copy}")
                with tf.device(devices[0]), scope:
                    kernels.append(_kernels(dtype, 0 if gpu else threads))
                count = gpus_of(host, placement) if gpu else 1
                counts.append(count * placement.clients)
        with sessions.open(graph, session_config(placement)) as session:
            session.run(v1.local_variables_initializer())
            measured = []
            for same in zip(*kernels):
                work = [of_graph(graph, kernel.op.name) for kernel in same]
                # Fetching a number waits for the GPU; running an operation does not.
                ends = session.make_callable([_last_number(kernel) for kernel in same])
                total = sum(flops * count for flops, count in zip(work, counts))
                measured.append((total, ends))
            best, rounds = 0.0, 0
            while not rounds or (best < at_least and rounds < 10):
                rates = (total / _fastest(ends, seconds) for total, ends in measured)
                best, rounds = max(best, *rates), rounds + 1
    return best


def _kernels(dtype: tf.DType, threads: int) -> list[tf.Tensor]:
    """The kernels that are timed: a matrix product and a convolution.

    Args:
      dtype: in which they compute.
      threads: CPU threads that share one of them, 0 on a GPU.  A core is as fast with
        matrices that fit into its cache as with larger ones, for which memory may be
        missing: with two threads, 1024 x 1024 in float32 takes 67 to 81 MiB, and
        768 x 768 takes 19.
    """
    size, batch, image, depth = 8192, 32, 64, 256
    if threads:
        size, image, depth = 384 * math.ceil(threads**0.5), 28, 128
        batch = 2 * threads
    a = _numbers("a", [size, size], dtype)
    x = _numbers("x", [batch, image, image, depth], dtype)
    w = _numbers("w", [3, 3, depth, depth], dtype)
    return [tf.matmul(a, a), tf.nn.conv2d(x, w, 1, "SAME")]


def _last_number(kernel: tf.Tensor) -> tf.Tensor:
    with tf.device(kernel.device):
        return tf.reshape(kernel, [-1])[-1]


def _numbers(name: str, shape: list[int], dtype: tf.DType) -> tf.Tensor:
    """Numbers in the device's memory that TensorFlow cannot fold into constants."""
    start = v1.random_uniform_initializer(-1.0, 1.0, seed=1)
    variable = v1.get_local_variable(
        name, shape, dtype, initializer=start, use_resource=True
    )
    return variable.read_value()


def _fastest(run: Callable[[], object], seconds: float) -> float:
    run()
    begun = time.perf_counter()
    best = float("inf")
    while time.perf_counter() - begun < seconds:
        before = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - before)
    return best
