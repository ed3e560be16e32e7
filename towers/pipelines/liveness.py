"""Peak memory of a part of a graph, estimated by liveness analysis of its tensors.

Operations run one by one, in the order in which their inputs become ready, as in
TensorFlow's executor with one thread.  A tensor is live from the operation that
computes it to the last operation that reads it.  As in TensorFlow's kernels, reshapes
take no memory, and an element-wise operation overwrites an input of its size that is
not read again.
"""

import collections
from collections.abc import Iterable, Sequence

import tensorflow as tf

from towers.pipelines.piece import Leg

# Operations whose output is in the memory of their first input.
_SAME_MEMORY = frozenset(
    "ExpandDims Identity PreventGradient Reshape Squeeze StopGradient".split()
)

# Operations whose kernels overwrite an input if possible.
_IN_PLACE = frozenset(
    """
    Abs Add AddN AddV2 BiasAdd Cos Elu EluGrad Erf Exp Log Maximum Minimum Mul Neg Pow
    RealDiv Reciprocal Relu Relu6 Relu6Grad ReluGrad Rsqrt RsqrtGrad SelectV2 Selu
    SeluGrad Sigmoid SigmoidGrad Sign Sin Softmax Softplus SoftplusGrad Sqrt SqrtGrad
    Square SquaredDifference Sub Tanh TanhGrad
    """.split()
)


def size(tensor: tf.Tensor) -> int:
    """Bytes of a tensor; 0 if its shape is not static."""
    if not tensor.shape.is_fully_defined() or tensor.dtype == tf.resource:
        return 0
    return tensor.shape.num_elements() * tensor.dtype.size


def peak(
    operations: Iterable[tf.Operation],
    outputs: Iterable[tf.Tensor],
    apart: Iterable[tf.Tensor] = (),
) -> int:
    """Peak of the bytes that operations have allocated.

    Their inputs from other operations are not counted.

    Args:
      operations: of one graph; constants among them are not counted.
      outputs: tensors that are still live after the last operation.
      apart: outputs that are counted elsewhere.
    """
    return _Run(operations, outputs, apart).peak()


def in_legs(
    legs: Sequence[Leg],
    meeting: int,
    entered: int = 0,
    *,
    apart: Iterable[tf.Tensor] = (),
) -> int:
    """Peak bytes of several micro-batches that pass each leg together.

    While one micro-batch is in a leg, memory also has the tensors that the others pass
    between legs: those behind it from the leg before, those ahead of it from this leg.

    Args:
      legs: of a subgraph.
      meeting: number of micro-batches.
      entered: bytes of the first leg's inputs, of each micro-batch.
      apart: tensors between legs, or outputs of the last, that are counted elsewhere.
    """
    elsewhere = {tensor.name for tensor in apart}
    most, before = 0, entered
    produced: dict[str, tf.Tensor] = {}
    for k, leg in enumerate(legs):
        outputs = {tensor.name: tensor for tensor in leg.outputs.values()}
        produced |= outputs
        later = {t.name for other in legs[k + 1 :] for t in other.inputs.values()}
        along = (later if later else set(outputs)) - elsewhere
        after = sum(size(tensor) for name, tensor in produced.items() if name in along)
        gone = [tensor for name, tensor in outputs.items() if name in elsewhere]
        taken = peak(leg.operations, outputs.values(), apart=gone)
        waiting_bytes = max(meeting * before, before + (meeting - 1) * after)
        most, before = max(most, waiting_bytes + taken), after
    return most


class _Run:
    """A simulated run of operations."""

    def __init__(
        self,
        operations: Iterable[tf.Operation],
        outputs: Iterable[tf.Tensor],
        apart: Iterable[tf.Tensor],
    ):
        self._left = {
            op: sum(1 for t in op.inputs) for op in operations if op.type != "Const"
        }
        self._readers: dict[str, list[tf.Operation]] = collections.defaultdict(list)
        for op in self._left:
            for tensor in op.inputs:
                if tensor.op in self._left:
                    self._readers[tensor.name].append(op)
                else:
                    self._left[op] -= 1
        self._outputs = {tensor.name for tensor in outputs}
        self._apart = {tensor.name for tensor in apart}
        # Tensor -> the tensor whose memory it uses; and the readers left of that.
        self._memory: dict[str, str] = {}
        self._users: dict[str, int] = {}
        self._bytes: dict[str, int] = {}

    def peak(self) -> int:
        """Runs the operations."""
        now = most = 0
        ready = collections.deque(op for op, left in self._left.items() if not left)
        while ready:
            op = ready.popleft()
            now += self._allocate(op)
            most = max(most, now)
            now -= self._free(op)
            for output in op.outputs:
                for reader in self._readers[output.name]:
                    self._left[reader] -= 1
                    if not self._left[reader]:
                        ready.append(reader)
        return most

    def _allocate(self, op: tf.Operation) -> int:
        """Allocates the outputs of an operation; returns their bytes."""
        taken = 0
        for output in op.outputs:
            memory = self._reused(op, output) or output.name
            if memory == output.name:
                self._bytes[memory] = size(output)
                taken += self._bytes[memory]
            if output.name in self._apart:
                taken -= self._bytes[memory]
                self._bytes[memory] = 0
            self._memory[output.name] = memory
            users = len(self._readers[output.name]) + (output.name in self._outputs)
            self._users[memory] = self._users.get(memory, 0) + users
        return taken

    def _reused(self, op: tf.Operation, output: tf.Tensor) -> str | None:
        """The input whose memory the output uses, or None."""
        if op.type in _SAME_MEMORY:
            return self._memory.get(op.inputs[0].name)
        for tensor in op.inputs if op.type in _IN_PLACE else ():
            memory = self._memory.get(tensor.name)
            # No other operation will read it.
            if memory and self._users[memory] == 1 and size(tensor) == size(output):
                return memory
        return None

    def _free(self, op: tf.Operation) -> int:
        """Frees tensors that are not read after the operation; returns their bytes."""
        freed = 0
        names = [tensor.name for tensor in op.inputs]
        for memory in [self._memory[name] for name in names if name in self._memory]:
            self._users[memory] -= 1
            if not self._users[memory]:
                freed += self._bytes.pop(memory)
        for output in op.outputs:
            memory = self._memory[output.name]
            if not self._users[memory]:
                freed += self._bytes.pop(memory, 0)
        return freed
