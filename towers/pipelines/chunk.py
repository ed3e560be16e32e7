"""Chunks: what one stage does with one micro-batch, as two functions of the graph.

A chunk is some segments of the model, one after another.  Its forward pass and its
backward pass are each one `tf.function` that is kept as a call (`_noinline`): all
towers and micro-batches call the same two, so the graph has one node per pass, however
large the model, and a control dependency between two calls orders all they do.

The backward function also adds the micro-batch's gradients to those of the ones before,
in float32, under the value `sum<chunk>/<variable>`; gradients of a gather stay sparse,
under `sparse<chunk>/<variable>/<i>`, and are joined at the end of the step.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.compute import addition, division
from towers.layout import parts as parts_lib
from towers.pipelines import calls
from towers.pipelines.calls import Function, Functions
from towers.pipelines.segment import Segment

Values = Mapping[str, tf.Tensor]


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The passes of some segments.

    Attributes:
      number: of it in the model.
      segments: in order; where something of them is spread over devices, a pass is
        several calls.
      forward: values of a micro-batch -> more of them.
      first: the backward pass of the first micro-batch, or None without gradients.
      later: of those after it, which adds to the sums; None when there are none.
      dense: the variables whose gradients are summed.
      sparse: those whose gradients are `IndexedSlices`.
    """

    number: int
    segments: tuple[Segment, ...]
    forward: Function | Functions
    first: Function | Functions | None
    later: Function | Functions | None
    dense: tuple[str, ...]
    sparse: tuple[str, ...]

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of its blocks."""
        return tuple(name for segment in self.segments for name in segment.blocks)

    @property
    def reads(self) -> dict[str, tf.DType]:
        """The variables that it reads."""
        return {k: v for segment in self.segments for k, v in segment.reads.items()}


def make(number: int, segments: Sequence[Segment], micro_batches: int) -> Chunk:
    """Makes the functions of a chunk.

    Args:
      number: of it in the model.
      segments: of it.
      micro_batches: how many there will be; the gradients of one need no sum.
    """
    dense, sparse = _variables(segments)
    forward = _forward(f"forward_{number}", segments)
    first = later = None
    if any(segment.backward for segment in segments):
        backward = _Backward(number, segments, dense, sparse)
        first = backward.function(f"backward_{number}", wide=micro_batches > 1)
        if micro_batches > 1:
            later = backward.function(f"backward_{number}_and_sum", wide=True, add=True)
    return Chunk(number, tuple(segments), forward, first, later, dense, sparse)


def _variables(segments: Sequence[Segment]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The variables with gradients: the dense ones, the sparse ones."""
    parts: dict[str, list[int]] = {}
    for segment in segments:
        for name in segment.trainable:
            if count := len(_parts(segment, name)):
                parts.setdefault(name, []).append(count)
    sparse = tuple(name for name, counts in parts.items() if counts == [2])
    return tuple(name for name in parts if name not in sparse), sparse


def _parts(segment: Segment, variable: str) -> list[str]:
    """Names of the parts of a segment's gradient; none, one or two."""
    names = (f"grad{segment.number}/{variable}/{i}" for i in range(2))
    outputs = segment.backward.outputs if segment.backward else ()
    return [name for name in names if name in outputs]


def _forward(name: str, segments: Sequence[Segment]) -> Function | Functions:
    pieces = [segment.forward for segment in segments]
    later = {
        value
        for segment in segments
        if segment.backward
        for value in segment.backward.inputs
    }
    made = {name: t for piece in pieces for name, t in piece.outputs.items()}
    last = set(pieces[-1].outputs)
    wanted = [value for value in made if _kept(value) or value in later | last]

    def body(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        for piece in pieces:
            values |= piece(values)
        return values

    specs = {
        value: t
        for piece in pieces
        for value, t in piece.inputs.items()
        if value not in made
    }
    return _make(name, body, specs, wanted, spread=_is_spread(segments))


def _kept(value: str) -> bool:
    return value.startswith(("share/", "statistic"))


class _Backward:
    """Makes the backward functions of a chunk."""

    def __init__(self, number: int, segments: Sequence[Segment], dense, sparse):
        self._number = number
        self._segments = [s for s in reversed(segments) if s.backward]
        self._dense, self._sparse = dense, sparse
        pieces = [segment.backward for segment in self._segments]
        made = {value for piece in pieces for value in piece.outputs}
        self._specs = {
            value: t
            for piece in pieces
            for value, t in piece.inputs.items()
            if value not in made
        }
        self._shapes = {k: v for s in segments for k, v in s.shapes.items()}

    def function(self, name: str, *, wide: bool, add: bool = False):
        """The backward pass.

        Args:
          name: of the function.
          wide: whether the gradients leave in float32.
          add: whether they are added to the sums so far.
        """
        first = self._segments[-1]
        wanted = [n for n in first.backward.outputs if n.startswith("dx")]
        sums = [f"sum{self._number}/{v}" for v in self._dense]
        wanted += sums
        wanted += [
            f"sparse{self._number}/{v}/{i}" for v in self._sparse for i in (0, 1)
        ]

        def body(values: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
            before = {name: values.pop(name) for name in sums if name in values}
            found: dict[str, tf.Tensor] = {}
            for segment in self._segments:
                before_it = list(found.values())
                found = segment.backward(_when_needed(segment, values, before_it))
                values |= found
            for variable, value in zip(self._dense, sums):
                with tf.device(self._where(variable, values)):
                    gradient = self._gradient(variable, values)
                    if wide:
                        gradient = tf.cast(gradient, tf.float32)
                    values[value] = before[value] + gradient if add else gradient
            for variable in self._sparse:
                [parts] = filter(None, (_parts(s, variable) for s in self._segments))
                for i, part in enumerate(parts):
                    values[f"sparse{self._number}/{variable}/{i}"] = values[part]
            return values

        specs = dict(self._specs)
        if add:
            for variable, value in zip(self._dense, sums):
                specs[value] = tf.TensorSpec(self._shapes[variable])
        spread = _is_spread(self._segments)
        return _make(name, body, specs, wanted, spread=spread)

    def _where(self, variable: str, values: Values) -> str:
        """Of the gradients by a part, where the first that is dense was made."""
        for segment in self._segments:
            found = _parts(segment, variable)
            if len(found) == 1 and parts_lib.is_part(variable):
                return values[found[0]].device
        return ""

    def _gradient(self, variable: str, values: Values) -> tf.Tensor:
        """Of all uses of a variable in the chunk, dense."""
        found = []
        for segment in self._segments:
            parts = [values[name] for name in _parts(segment, variable)]
            if parts:
                found.append(dense_gradient(parts, self._shapes[variable]))
        return addition.in_order(found)


def dense_gradient(parts: Sequence[tf.Tensor], shape: tf.TensorShape) -> tf.Tensor:
    """A gradient as one tensor.

    Args:
      parts: it, or the values and indices of an `IndexedSlices`.
      shape: of the variable.
    """
    if len(parts) == 1:
        return parts[0]
    values, indices = parts
    return tf.math.unsorted_segment_sum(values, indices, shape[0])


def _when_needed(
    segment: Segment, values: Values, before_it: Sequence[tf.Tensor]
) -> Values:
    """The values of a backward piece, so that it recomputes no earlier than it must.

    What it recomputes from seems to come into being with the gradient that the piece
    begins with, and with all gradients of the segment behind it; otherwise the
    recomputation would run early, or the gradients by variables late, and activations
    of several segments would be in memory, as if they had been kept.
    """
    if not segment.recomputed:
        return values
    inputs = segment.backward.inputs
    upstream = [values[n] for n in inputs if n.startswith(f"dx{segment.number + 1}/")]
    with tf.control_dependencies([*upstream, *before_it]):
        held = {
            name: tf.identity(values[name])
            for name in inputs
            if name.startswith((f"x{segment.number}/", "features"))
        }
    return {**values, **held}


def _is_spread(segments: Sequence[Segment]) -> bool:
    """Whether something may be on other devices than that of the stage."""
    return any(segment.owners for segment in segments)


def _make(
    name: str,
    body: Callable[[dict[str, tf.Tensor]], Values],
    specs: Mapping[str, Any],
    wanted: Sequence[str],
    *,
    spread: bool,
) -> Function | Functions:
    """A pass: one function, or one after another if it is on several devices.

    Args:
      name: of the pass.
      body: what it does.
      specs: of the values that it reads.
      wanted: the values that it makes.
      spread: whether it may be on several devices.
    """
    if not spread:
        return _function(name, body, specs, wanted)
    with tf.Graph().as_default() as graph:
        given = {
            value: tf.compat.v1.placeholder(t.dtype, t.shape)
            for value, t in specs.items()
        }
        values = body(dict(given))
        # Each in an operation of its own: it may be given, or stand for another.
        made = {}
        for value in wanted:
            with tf.device(values[value].device):
                made[tf.identity(values[value]).name] = value
    named = {tensor.name: value for value, tensor in given.items()} | made
    steps = []
    for k, part in enumerate(division.divide(graph.as_graph_def(), list(made))):
        known = {t: named.setdefault(t, f"{name}/{t}") for t in part.inputs}
        outputs = [named.setdefault(t, f"{name}/{t}") for t in part.outputs]
        of = {value: graph.get_tensor_by_name(t) for t, value in known.items()}

        def run(values, part=part, known=known):
            found = part({t: values[value] for t, value in known.items()})
            for t, tensor in found.items():
                tensor.set_shape(graph.get_tensor_by_name(t).shape)
            return {named[t]: tensor for t, tensor in found.items()}

        steps.append((part.device, _function(f"{name}_{k}", run, of, outputs)))
    return Functions(tuple(steps), tuple(specs))


def _function(
    name: str,
    body: Callable[[dict[str, tf.Tensor]], Values],
    specs: Mapping[str, Any],
    wanted: Sequence[str],
) -> Function:
    """A function that stays a call in the graph."""
    inputs = tuple(specs)

    def call(*tensors):
        values = body(dict(zip(inputs, tensors)))
        return [values[value] for value in wanted]

    call.__name__ = name
    function = tf.function(
        call, autograph=False, experimental_attributes={"_noinline": True}
    )
    with tf.Graph().as_default():
        concrete = function.get_concrete_function(
            *[tf.TensorSpec(t.shape, t.dtype) for t in specs.values()]
        )
    return calls.function(concrete, inputs, wanted)
