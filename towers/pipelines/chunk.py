"""Chunks: the forward and backward pass of one stage, as functions of the graph.

A chunk is a sequence of consecutive segments.  Its forward pass and its backward pass
are each one `tf.function` that is not inlined (`_noinline`); all towers and
micro-batches call the same two.  So the graph has one node per pass, however large the
model, and a control dependency between two calls orders all operations of both.  If
batch norm is synchronized, batches exchange statistics between calls: a pass then has
several legs, and each is a function.

The backward function also accumulates gradients over the micro-batches, in float32, as
the value `sum<chunk>/<variable>`; gradients of a gather stay sparse, as the values
`sparse<chunk>/<variable>/<i>`, and are concatenated at the end of the step.
"""

import dataclasses
import functools
from collections.abc import Callable, Collection, Mapping, Sequence

import tensorflow as tf

from towers.compute import deterministic_sum
from towers.compute.split_by_device import DeviceSubgraph, split_by_device
from towers.layout import parts as parts_lib
from towers.layout.schedule import Pass
from towers.pipelines import calls, segment_gradients
from towers.pipelines.calls import Function, Functions, Spec
from towers.pipelines.piece import Barrier, Leg, Subgraph
from towers.pipelines.segment import Segment

Values = Mapping[str, tf.Tensor]
Pieces = Function | Functions
LegOfSegments = list[tuple[Segment, Leg]]
Uses = list[list[str]]  # for each use of a variable, names of its gradient's tensors


@dataclasses.dataclass(frozen=True)
class Chunk:
    """The passes of a chunk.

    A pass is one function per leg, from named values of a micro-batch to further ones;
    or several functions, if variables of the chunk are sharded over devices.

    Attributes:
      number: index in the model.
      segments: in order.
      forward: the legs of the forward pass.
      first: the backward pass of the first micro-batch; empty without gradients.
      later: the backward pass of later micro-batches, which adds to the sums; empty if
        there are none.
      dense: variables with dense gradients, which are summed.
      sparse: variables whose gradients are `IndexedSlices`.
    """

    number: int
    segments: tuple[Segment, ...]
    forward: tuple[Pieces, ...]
    first: tuple[Pieces, ...]
    later: tuple[Pieces, ...]
    dense: tuple[str, ...]
    sparse: tuple[str, ...]

    @property
    def blocks(self) -> tuple[str, ...]:
        """Names of the chunk's blocks."""
        return tuple(name for segment in self.segments for name in segment.blocks)

    @property
    def reads(self) -> dict[str, tf.DType]:
        """Name of each variable that the chunk reads -> dtype."""
        return {k: v for segment in self.segments for k, v in segment.reads.items()}

    @functools.cached_property
    def meetings(self) -> dict[str, Barrier]:
        """Name of a value that is joined from several batches -> its exchange."""
        meetings: dict[str, Barrier] = {}
        for segment in self.segments:
            for piece in (segment.forward, segment.backward):
                meetings |= piece.meetings if piece else {}
        return meetings

    @property
    def legs(self) -> dict[tuple[int, bool], int]:
        """Numbers of legs of its passes, as in `schedule.Legs.counts`."""
        counts = {False: len(self.forward), True: max(1, len(self.first))}
        return {(self.number, backward): count for backward, count in counts.items()}

    def function(self, pass_: Pass) -> Pieces | None:
        """The function of a pass or leg; None if it has nothing to compute."""
        back = self.later if pass_.micro_batch else self.first
        legs = back if pass_.backward else self.forward
        return legs[pass_.leg] if legs else None


def make(number: int, segments: Sequence[Segment], micro_batches: int) -> Chunk:
    """Makes the functions of a chunk.

    Args:
      number: index of the chunk in the model.
      segments: of the chunk.
      micro_batches: per batch; with one, gradients are not accumulated.
    """
    dense, sparse = _variables(segments)
    forward = _forward(number, segments)
    first: tuple[Pieces, ...] = ()
    later: tuple[Pieces, ...] = ()
    if any(segment.backward for segment in segments):
        backward = _Backward(number, segments)
        first = backward.functions(wide=micro_batches > 1)
        if micro_batches > 1:
            later = backward.functions(wide=True, add=True)
    return Chunk(number, tuple(segments), forward, first, later, dense, sparse)


def _legs(pieces: Sequence[tuple[Segment, Subgraph]]) -> list[LegOfSegments]:
    """The legs of consecutive pieces.

    The last leg of one piece and the first of the next become one leg.
    """
    legs: list[LegOfSegments] = [[]]
    for segment, piece in pieces:
        first, *later_legs = piece.legs
        legs[-1].append((segment, first))
        legs += [[(segment, leg)] for leg in later_legs]
    return legs


def _inputs(leg: LegOfSegments) -> dict[str, Spec]:
    """Names and specs of the values that a leg reads from outside."""
    outputs = {value for _, segment_leg in leg for value in segment_leg.outputs}
    return {
        value: t
        for _, segment_leg in leg
        for value, t in segment_leg.inputs.items()
        if value not in outputs
    }


def _variables(segments: Sequence[Segment]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of the variables with gradients: (dense, sparse)."""
    parts: dict[str, list[int]] = {}
    for segment in segments:
        for name in segment.trainable:
            if count := len(_parts(segment, name)):
                parts.setdefault(name, []).append(count)
    sparse = tuple(name for name, counts in parts.items() if counts == [2])
    return tuple(name for name in parts if name not in sparse), sparse


def _parts(segment: Segment, variable: str) -> list[str]:
    """Names of the tensors of a segment's gradient: none, one, or two if sparse."""
    names = (f"grad{segment.number}/{variable}/{i}" for i in range(2))
    outputs = segment.backward.outputs if segment.backward else ()
    return [name for name in names if name in outputs]


def _forward(number: int, segments: Sequence[Segment]) -> tuple[Pieces, ...]:
    legs = _legs([(segment, segment.forward) for segment in segments])
    back = {
        value
        for segment in segments
        if segment.backward
        for value in segment.backward.inputs
    }
    wanted = back | set(segments[-1].forward.outputs)
    functions = []
    for k in reversed(range(len(legs))):
        inputs = _inputs(legs[k])
        computed = [value for _, leg in legs[k] for value in leg.outputs]
        outputs = [value for value in computed if _kept(value) or value in wanted]
        wanted |= inputs.keys()
        body = _runs([leg for _, leg in legs[k]])
        name, spread = _leg_name(f"forward_{number}", k), _is_spread(segments)
        functions.append(_make(name, body, inputs, outputs, spread=spread))
    return tuple(functions[::-1])


def _leg_name(name: str, leg: int) -> str:
    return f"{name}_leg_{leg}" if leg else name


def _runs(legs: Sequence[Leg]) -> Callable[[dict[str, tf.Tensor]], Values]:
    def body(values: dict[str, tf.Tensor]) -> Values:
        for leg in legs:
            values |= leg(values)
        return values

    return body


def _kept(value: str) -> bool:
    return value.startswith(("share/", "statistic", "sent"))


class _Backward:
    """Makes the backward functions of a chunk."""

    def __init__(self, number: int, segments: Sequence[Segment]):
        self._number, self._spread = number, _is_spread(segments)
        self._dense, self._sparse = _variables(segments)
        run = [(s, s.backward) for s in reversed(segments) if s.backward]
        self._legs = _legs(run)
        self._shapes = {k: v for s in segments for k, v in s.shapes.items()}
        self._parts = {
            variable: list(filter(None, (_parts(s, variable) for s, _ in run)))
            for variable in (*self._dense, *self._sparse)
        }
        last = run[-1][1].outputs
        self._wanted = {value for value in last if value.startswith("dx")}

    def functions(self, *, wide: bool, add: bool = False) -> tuple[Pieces, ...]:
        """The backward pass, leg by leg.

        Args:
          wide: whether gradients are cast to float32.
          add: whether they are added to the sums so far.
        """
        name = f"backward_{self._number}" + ("_and_sum" if add else "")
        wanted, left, functions = set(self._wanted), dict(self._parts), []
        for k in reversed(range(len(self._legs))):
            leg = self._legs[k]
            computed = {
                value: t
                for _, segment_leg in leg
                for value, t in segment_leg.outputs.items()
            }
            # A gradient is complete with the last of its parts.
            complete = {
                variable: uses
                for variable, uses in left.items()
                if any(part in computed for use in uses for part in use)
            }
            left = {v: uses for v, uses in left.items() if v not in complete}
            specs = self._specs(leg, complete, computed, add=add)
            body = self._body(leg, complete, wide=wide, add=add)
            outputs = [value for value in computed if _kept(value) or value in wanted]
            outputs += [
                value for variable in complete for value in self._names(variable)
            ]
            wanted |= specs.keys()
            functions.append(
                _make(_leg_name(name, k), body, specs, outputs, spread=self._spread)
            )
        return tuple(functions[::-1])

    def _names(self, variable: str) -> list[str]:
        """Names of the values that hold a variable's gradient."""
        if variable in self._dense:
            return [f"sum{self._number}/{variable}"]
        return [f"sparse{self._number}/{variable}/{i}" for i in (0, 1)]

    def _specs(
        self,
        leg: LegOfSegments,
        complete: Mapping[str, Uses],
        computed: Collection[str],
        *,
        add: bool,
    ) -> dict[str, Spec]:
        """Specs of the values that a leg reads."""
        specs = _inputs(leg)
        earlier = {
            value: t
            for before in self._legs
            for _, segment_leg in before
            for value, t in segment_leg.outputs.items()
        }
        for variable, uses in complete.items():
            parts = [part for use in uses for part in use if part not in computed]
            specs |= {part: earlier[part] for part in parts}
            if add and variable in self._dense:
                [total] = self._names(variable)
                specs[total] = tf.TensorSpec(self._shapes[variable])
        return specs

    def _body(
        self, leg: LegOfSegments, complete: Mapping[str, Uses], *, wide: bool, add: bool
    ) -> Callable[[dict[str, tf.Tensor]], Values]:
        def body(values: dict[str, tf.Tensor]) -> Values:
            outputs: dict[str, tf.Tensor] = {}
            for segment, segment_leg in leg:
                earlier = list(outputs.values())
                outputs = segment_leg(
                    _when_needed(segment, segment_leg, values, earlier)
                )
                values |= outputs
            for variable, uses in complete.items():
                names = self._names(variable)
                if variable in self._sparse:
                    [parts] = uses
                    values |= {n: values[part] for n, part in zip(names, parts)}
                    continue
                [total] = names
                with tf.device(self._where(variable, values)):
                    gradient = self._gradient(variable, values)
                    if wide:
                        gradient = tf.cast(gradient, tf.float32)
                    values[total] = values[total] + gradient if add else gradient
            return values

        return body

    def _where(self, variable: str, values: Values) -> str:
        """The device for the gradient of a part: that of its first dense tensor."""
        for use in self._parts[variable]:
            if len(use) == 1 and parts_lib.is_part(variable):
                return values[use[0]].device
        return ""

    def _gradient(self, variable: str, values: Values) -> tf.Tensor:
        """The dense gradient of a variable, summed over its uses in the chunk."""
        return deterministic_sum.sum_in_order(
            [
                segment_gradients.dense(
                    [values[part] for part in use], self._shapes[variable]
                )
                for use in self._parts[variable]
            ]
        )


def _when_needed(
    segment: Segment, leg: Leg, values: Values, before_it: Sequence[tf.Tensor]
) -> Values:
    """The values of a backward leg, with dependencies that delay recomputation.

    The inputs of the recomputation wait for the upstream gradients of the segment, and
    for all gradients of the segment after it.  Otherwise recomputation could run early,
    or gradients of variables late, and the activations of several segments would be in
    memory at the same time, as without recomputation.
    """
    if not segment.recomputed:
        return values
    inputs = leg.inputs
    upstream = [values[n] for n in inputs if n.startswith(f"dx{segment.number + 1}/")]
    with tf.control_dependencies([*upstream, *before_it]):
        held = {
            name: tf.identity(values[name])
            for name in inputs
            if name.startswith((f"x{segment.number}/", "features"))
        }
    return {**values, **held}


def _is_spread(segments: Sequence[Segment]) -> bool:
    """Whether variables are sharded, so that operations may be on other devices."""
    return any(parts_lib.is_part(name) for s in segments for name in s.reads)


def _make(
    name: str,
    body: Callable[[dict[str, tf.Tensor]], Values],
    specs: Mapping[str, Spec],
    wanted: Sequence[str],
    *,
    spread: bool,
) -> Function | Functions:
    """The function of a pass, or a sequence of functions if it is on several devices.

    Args:
      name: of the pass.
      body: from the values that it reads to these and those that it computes.
      specs: of the values that it reads.
      wanted: names of the values to return.
      spread: whether it may be on several devices.
    """
    if not spread:
        return calls.trace(name, body, specs, wanted)
    with tf.Graph().as_default() as graph:
        inputs = {
            value: tf.compat.v1.placeholder(t.dtype, t.shape)
            for value, t in specs.items()
        }
        values = body(dict(inputs))
        # An identity for each: a value may be an input, or the same tensor as another.
        returned = {}
        for value in wanted:
            with tf.device(values[value].device):
                returned[tf.identity(values[value]).name] = value
    named = {tensor.name: value for value, tensor in inputs.items()} | returned
    steps = []
    for k, part in enumerate(split_by_device(graph.as_graph_def(), list(returned))):
        value_of = {t: named.setdefault(t, f"{name}/{t}") for t in part.inputs}
        outputs = [named.setdefault(t, f"{name}/{t}") for t in part.outputs]
        of = {value: graph.get_tensor_by_name(t) for t, value in value_of.items()}

        def run(
            values: Values,
            part: DeviceSubgraph = part,
            value_of: Mapping[str, str] = value_of,
        ) -> Values:
            tensors = part({t: values[value] for t, value in value_of.items()})
            for t, tensor in tensors.items():
                tensor.set_shape(graph.get_tensor_by_name(t).shape)
            return {named[t]: tensor for t, tensor in tensors.items()}

        steps.append((part.device, calls.trace(f"{name}_{k}", run, of, outputs)))
    return Functions(tuple(steps), tuple(specs))
