"""The contents of each device, and the bytes sent between devices and scopes in a step.

They are computed from the graph; nothing is run.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import tensorflow as tf

from towers.graph import TrainGraph

_MOST_SCOPES = 4  # most scopes of a device that are named


class Transfer(NamedTuple):
    """The tensors that one device sends to another in a step."""

    tensors: int
    bytes: int  # of tensors whose shapes the graph knows
    unknown: int  # tensors whose shapes it does not know


class Traffic(NamedTuple):
    """The devices of a step, and what they exchange."""

    devices: list[str]
    holds: dict[str, list[str]]  # device -> lines about its contents
    sent: dict[tuple[str, str], Transfer]  # (from, to) -> tensors sent in a step

    @property
    def bytes(self) -> int:
        """The bytes sent between devices."""
        return sum(sent.bytes for sent in self.sent.values())


class Scope(NamedTuple):
    """A name scope at the top level of the graph, such as `tower_0`."""

    devices: list[str]  # first the one with most of its operations
    operations: int
    variable_bytes: int
    parts: dict[str, str]  # name scopes in it -> the device of their first operation


class Scopes(NamedTuple):
    """The name scopes of a step, and the tensors that they read from one another."""

    by_name: dict[str, Scope]  # in the order in which the graph was built
    sent: dict[tuple[str, str], Transfer]  # (from, to) -> the tensors that are read


def of(train: TrainGraph) -> Traffic:
    """The traffic of one step; of asynchronous towers, of one step of each."""
    master = train.placement.master

    def device(op: tf.Operation) -> str:
        return device_of(op, master)

    held = _by_place(train, device)
    sent = _all_sent(train, device)
    # First the devices that the placement names, in its order.
    named = [stage for stages in train.placement.stages for stage in stages]
    devices = list(dict.fromkeys([master, *named, *sorted(held)]))
    return Traffic(
        [device for device in devices if device in held],
        {device: _holds(operations) for device, operations in held.items()},
        sent,
    )


def of_scopes(train: TrainGraph) -> Scopes:
    """The name scopes of the operations of `of`."""
    master, scopes = train.placement.master, {}
    for name, operations in _by_place(train, _scope).items():
        devices = Counter(device_of(op, master) for op in operations)
        names = {op.name for op in operations}
        parts: dict[str, str] = {}
        for op in operations:
            part = op.name.split("/")[1] if op.name.count("/") > 1 else ""
            if part and f"{name}/{part}" not in names:
                parts.setdefault(part, device_of(op, master))
        scopes[name] = Scope(
            [device for device, _ in devices.most_common()],
            len(operations),
            _variable_bytes(operations),
            parts,
        )
    return Scopes(scopes, _all_sent(train, _scope))


def crossing(
    step: tf.Operation, place: Callable[[tf.Operation], str]
) -> dict[tuple[str, str], list[tf.Tensor]]:
    """(from, to) -> the tensors that a step sends from one place to another.

    A tensor that several operations of a place read is sent to it once.  The body of a
    loop is counted once.

    Args:
      step: the operation that a session runs.
      place: returns the device of an operation, or its scope.
    """
    by_pair: dict[tuple[str, str], dict[str, tf.Tensor]] = defaultdict(dict)
    for op in reached(step):
        here = place(op)
        for tensor in op.inputs:
            there = place(tensor.op)
            if there != here and tensor.dtype != tf.resource:
                by_pair[there, here][tensor.name] = tensor
    return {pair: list(tensors.values()) for pair, tensors in by_pair.items()}


def reached(step: tf.Operation) -> list[tf.Operation]:
    """The operations that a session runs for a step."""
    waiting, operations = [step], {}
    while waiting:
        op = waiting.pop()
        if op.name not in operations:
            operations[op.name] = op
            waiting += [tensor.op for tensor in op.inputs]
            waiting += op.control_inputs
    return list(operations.values())


def _by_place(
    train: TrainGraph, place: Callable[[tf.Operation], str]
) -> dict[str, list[tf.Operation]]:
    """Place -> the operations of all steps there, in the order of the graph."""
    names = {op.name for step in train.steps for op in reached(step.train_op)}
    held = defaultdict(list)
    for op in train.graph.get_operations():
        if op.name in names:
            held[place(op)].append(op)
    return held


def _all_sent(
    train: TrainGraph, place: Callable[[tf.Operation], str]
) -> dict[tuple[str, str], Transfer]:
    """(from, to) -> tensors sent in the steps of all towers."""
    sent: dict[tuple[str, str], Transfer] = {}
    for step in train.steps:
        for pair, tensors in crossing(step.train_op, place).items():
            sent[pair] = _sent(tensors, sent.get(pair, Transfer(0, 0, 0)))
    return sent


def _scope(op: tf.Operation) -> str:
    return op.name.split("/")[0]


def device_of(op: tf.Operation, master: str) -> str:
    """The device of an operation; if it has none, that of the variable it changes."""
    handles = [t.op.device for t in op.inputs if t.dtype == tf.resource]
    return op.device or next(filter(None, handles), master)


def _holds(operations: Sequence[tf.Operation]) -> list[str]:
    """`variables 1.1 MB` and the scopes with most operations, with their numbers."""
    scopes = Counter(
        _scope(op) for op in operations if op.type != "VarHandleOp" and "/" in op.name
    )
    counts = [f"{scope} {count}" for scope, count in scopes.most_common(_MOST_SCOPES)]
    size = _variable_bytes(operations)
    lines = [f"variables {in_bytes(size)}"] if size else []
    return lines + [f"operations of {', '.join(counts)}"] * bool(counts)


def _variable_bytes(operations: Iterable[tf.Operation]) -> int:
    """The bytes of the variables among operations, as far as their shapes are known."""
    handles = [op for op in operations if op.type == "VarHandleOp"]
    shapes = [(tf.TensorShape(op.get_attr("shape")), op) for op in handles]
    return sum(
        shape.num_elements() * op.get_attr("dtype").size
        for shape, op in shapes
        if shape.is_fully_defined()
    )


def _sent(tensors: Sequence[tf.Tensor], before: Transfer) -> Transfer:
    """A transfer with further tensors."""
    sizes = [
        tensor.shape.num_elements() * tensor.dtype.size
        for tensor in tensors
        if tensor.shape.is_fully_defined() and tensor.dtype != tf.variant
    ]
    return Transfer(
        before.tensors + len(tensors),
        before.bytes + sum(sizes),
        before.unknown + len(tensors) - len(sizes),
    )


def in_bytes(count: float) -> str:
    """A number of bytes, written as `12 B`, `3.4 kB`, `56 MB`."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"
