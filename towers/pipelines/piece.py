"""Pieces: subgraphs of a traced graph with named inputs and outputs.

A piece is a function from named values to named values.  If it exchanges values with
other batches (see `sync_batch_norm`), it cannot run in one call.  It is then cut into
legs, and all batches exchange values between two legs.  A leg returns the values to
send, and those that later legs read.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import tensorflow as tf

from towers.compute import graph_rewrite

v1 = tf.compat.v1


class Leg(NamedTuple):
    """Operations between named values."""

    graph_def: v1.GraphDef
    inputs: dict[str, tf.Tensor]  # value -> its placeholder in the traced graph
    outputs: dict[str, tf.Tensor]  # value -> its tensor there

    @property
    def operations(self) -> list[tf.Operation]:
        """The operations of the traced graph, in its order."""
        return Subgraph((self,), {}).operations

    def __call__(self, values: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Copies the operations into the current graph; returns the outputs."""
        inputs = {tensor.name: values[name] for name, tensor in self.inputs.items()}
        read = {_tensor(name) for node in self.graph_def.node for name in node.input}
        # An input may also be an output as it is.
        wanted = list({tensor.name for tensor in self.outputs.values()} - set(inputs))
        computed = tf.import_graph_def(
            self.graph_def,
            {name: tensor for name, tensor in inputs.items() if name in read},
            return_elements=wanted,
        )
        of = inputs | dict(zip(wanted, computed))
        return {name: of[tensor.name] for name, tensor in self.outputs.items()}


class Barrier(NamedTuple):
    """An exchange between batches: the value that each sends, and their join."""

    sent: str  # a value
    spec: tf.TensorSpec  # of it
    join: str  # a row of `sync_batch_norm.JOINS`


class Subgraph(NamedTuple):
    """A sequence of legs.

    Attributes:
      legs: at least one.
      meetings: name of a value that is received -> its exchange.
    """

    legs: tuple[Leg, ...]
    meetings: dict[str, Barrier]

    @property
    def outputs(self) -> dict[str, tf.Tensor]:
        """The outputs of all legs."""
        return {name: t for leg in self.legs for name, t in leg.outputs.items()}

    @property
    def inputs(self) -> dict[str, tf.Tensor]:
        """The inputs that are not outputs of a leg and are not received."""
        internal = self.outputs.keys() | self.meetings.keys()
        return {
            name: tensor
            for leg in self.legs
            for name, tensor in leg.inputs.items()
            if name not in internal
        }

    @property
    def operations(self) -> list[tf.Operation]:
        """The operations of the traced graph, in its order."""
        graph = next(iter(self.legs[-1].outputs.values())).graph
        names = {node.name for leg in self.legs for node in leg.graph_def.node}
        return [op for op in graph.get_operations() if op.name in names]


class BatchNormExchange(NamedTuple):
    """A tensor that is sent, and the placeholder that receives, in a traced graph."""

    value: str  # that is received
    received: tf.Tensor  # placeholder
    sent: tf.Tensor
    meeting: Barrier


class NeededTensors(NamedTuple):
    """The operations and inputs that tensors of a traced graph need.

    Attributes:
      operations: that compute them.
      cut: inputs, from operations that ran before.
      met: exchanges whose values they receive; the operations also compute what is
        sent.
    """

    operations: set[tf.Operation]
    cut: list[tf.Tensor]
    met: list[BatchNormExchange]


class SubgraphCutter:
    """Cuts pieces out of a traced graph.

    Args:
      graph: a complete graph.
      varying: tensors that differ between batches; operations that do not depend on
        them are in every leg that reads them.
      exchanges: in the graph.
    """

    def __init__(
        self,
        graph: tf.Graph,
        varying: Iterable[tf.Tensor],
        exchanges: Iterable[BatchNormExchange],
    ):
        self._exchanges = list(exchanges)
        self._graph, self._whole = graph, graph.as_graph_def()
        self._operations = graph.get_operations()
        received = [exchange.received for exchange in self._exchanges]
        self.varying = _descendants([*varying, *received])

    def needed(
        self,
        tensors: Iterable[tf.Tensor],
        given: Collection[str] = (),
        stop: Collection[tf.Operation] = (),
    ) -> NeededTensors:
        """The operations and inputs that tensors need.

        Args:
          tensors: of the graph.
          given: values that are available; received ones among them were sent before.
          stop: operations that ran before.
        """
        wanted = list(tensors)
        met: dict[tf.Tensor, tf.Tensor] = {}
        while True:
            ops, cut = _back_to(wanted, stop)
            new = [
                exchange
                for exchange in self._exchanges
                if exchange.received.op in ops and exchange.value not in {*met, *given}
            ]
            if not new:
                return NeededTensors(ops, cut, list(met.values()))
            met |= {exchange.value: exchange for exchange in new}
            wanted += [exchange.sent for exchange in new]

    def piece(
        self,
        outputs: Mapping[str, tf.Tensor],
        given: Mapping[str, tf.Tensor],
        *,
        stop: Collection[tf.Operation] = (),
        carried: str,
    ) -> Subgraph:
        """The operations that some outputs need.

        Args:
          outputs: name -> tensor.
          given: name -> tensor of possible inputs; not all of them need be used.
          stop: operations that ran before, whose tensors are given.
          carried: prefix of the names of values that are passed from leg to leg.
        """
        ops, _, met = self.needed(outputs.values(), given, stop)
        given = {**given, **{exchange.value: exchange.received for exchange in met}}
        names = {t.name: name for name, t in {**outputs, **given}.items()}
        leg = self._legs(ops, met)
        targets: list[dict[str, tf.Tensor]] = [{} for _ in range(1 + max(leg.values()))]
        for name, tensor in outputs.items():
            targets[leg.get(tensor.op, 0)][name] = tensor
        for exchange in met:
            targets[leg[exchange.sent.op]][exchange.meeting.sent] = exchange.sent
        legs = []
        for k in reversed(range(len(targets))):
            before = {op for op in ops if leg[op] < k} & self.varying
            leg_ops, cut = _back_to(targets[k].values(), {*stop, *before})
            inputs = dict(given)
            for tensor in cut:
                if tensor.op in before:
                    name = names.setdefault(tensor.name, f"{carried}/{tensor.name}")
                    targets[leg[tensor.op]][name] = inputs[name] = tensor
            legs.append(self._leg(leg_ops, inputs, targets[k]))
        return Subgraph(
            tuple(legs[::-1]), {exchange.value: exchange.meeting for exchange in met}
        )

    def _legs(
        self, ops: Collection[tf.Operation], met: Iterable[BatchNormExchange]
    ) -> dict[tf.Operation, int]:
        """For each operation, the number of exchanges before it."""
        sent = {operation.received.op: operation.sent.op for operation in met}
        leg: dict[tf.Operation, int] = {}
        for op in self._operations:
            if op in sent:
                leg[op] = leg[sent[op]] + 1
            elif op in ops:
                before = [tensor.op for tensor in op.inputs] + list(op.control_inputs)
                leg[op] = max(
                    (leg.get(operation, 0) for operation in before), default=0
                )
        return leg

    def _leg(
        self,
        kept: set[tf.Operation],
        available: Mapping[str, tf.Tensor],
        outputs: Mapping[str, tf.Tensor],
    ) -> Leg:
        """A leg of the kept operations, without placeholders and given tensors."""
        placeholders = {t.op for t in available.values() if not _computed(t)}
        names = {op.name for op in kept - placeholders}
        ends = [tensor.name for tensor in outputs.values()]
        part = graph_rewrite.simplify(self._graph, names, ends, self._whole)
        for node in part.node:
            # The operations of a tower's stage are on one device.
            node.attr.pop("_class", None)
            node.input[:] = [n for n in node.input if n[0] != "^" or n[1:] in names]
        read = {_tensor(name) for node in part.node for name in node.input} | {*ends}
        inputs = {
            name: tensor
            for name, tensor in available.items()
            if tensor.name in read and tensor.op.name not in names
        }
        return Leg(part, inputs, dict(outputs))


def _tensor(name: str) -> str:
    """The name of a tensor out of a node's input."""
    return name if ":" in name else f"{name}:0"


def _computed(tensor: tf.Tensor) -> bool:
    return tensor.op.type != "Placeholder"


def _back_to(
    tensors: Iterable[tf.Tensor], stop: Collection[tf.Operation]
) -> tuple[set[tf.Operation], list[tf.Tensor]]:
    """The operations that tensors need, and the tensors at which the search stops."""
    operations: set[tf.Operation] = set()
    cut: dict[str, tf.Tensor] = {}
    left = list(tensors)
    controls: list[tf.Operation] = []
    while left or controls:
        if left:
            tensor = left.pop()
            op = tensor.op
            if op in stop and _computed(tensor):
                cut[tensor.name] = tensor
                continue
        else:
            op = controls.pop()
            if op in stop:
                continue
        if op not in operations:
            operations.add(op)
            left += op.inputs
            controls += op.control_inputs
    return operations, list(cut.values())


def _descendants(tensors: Iterable[tf.Tensor]) -> set[tf.Operation]:
    """The operations of these tensors, and all operations that depend on them."""
    left = [tensor.op for tensor in tensors]
    operations = set(left)
    while left:
        for output in left.pop().outputs:
            for op in output.consumers():
                if op not in operations:
                    operations.add(op)
                    left.append(op)
    return operations
