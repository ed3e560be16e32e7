"""An estimate of the memory that a step takes in this process, before the first step.

It counts variables, gradients, batches, and a tower's activations at their peak (see
`liveness`).  Measured runs take 1 to 1.4 times as much, because allocators keep freed
memory and kernels have work space (`python -m benchmarks.memory --estimates`).
Activations are not counted for pipelines and for towers that XLA compiles.
"""

from collections.abc import Callable, Sequence

import tensorflow as tf

from flags.problem import Problem, SettingError
from towers.compute.copy_tower import at_a_time
from towers.compute.tower import Template
from towers.data import nests
from towers.errors.memory_limits import Limit
from towers.graph import TrainGraph
from towers.layout import parts
from towers.pipelines import liveness
from towers.pipelines.tower_copies import AnyTemplate

v1 = tf.compat.v1

_SURELY = 0.8  # of the estimate is needed in any order of the operations
_PERHAPS = 1.4  # times the estimate may be needed
_BESIDE = 200 * 10**6  # bytes for sessions and threads

_REMEDY = (
    "lower `batch_size` (`accumulate_steps` keeps the examples of a step) or write "
    "`recompute=block`"
)


def check(
    train: TrainGraph,
    limits: Sequence[Limit],
    console: Callable[[str], None],
    *,
    prefetch: int = 0,
    holds: bool = False,
) -> None:
    """Warns if a step may not fit into memory.

    Args:
      train: a graph whose devices are all in this process's memory.
      limits: of this process, from `memory_limits`.
      console: takes a line if memory may not be enough.
      prefetch: steps whose batches are kept ready.
      holds: whether a checkpoint's values are held while a thread writes them.

    Raises:
      ValueError: memory is certainly not enough.
    """
    if not limits:
        return
    need = estimate(train, prefetch=prefetch, holds=holds)
    hardest = min(limits, key=lambda limit: limit.most)
    if _SURELY * need > hardest.most:
        needed = (
            f"a step needs about {need / 1e9:.1f} GB of memory, and {hardest.name} "
            f"leaves {max(hardest.most, 0) / 1e9:.1f} GB"
        )
        raise SettingError(Problem("", None, needed, _REMEDY))
    tightest = min(limits, key=lambda limit: limit.left)
    if _PERHAPS * need + _BESIDE > tightest.left:
        console(
            f"Memory may run out: a step needs {need / 1e9:.1f} GB or more, and "
            f"{tightest.name} leaves {max(tightest.left, 0) / 1e9:.1f} GB; if it does, "
            f"{_REMEDY}."
        )


def estimate(train: TrainGraph, *, prefetch: int = 0, holds: bool = False) -> int:
    """Bytes that variables and one step take.

    Args:
      train: the graph.
      prefetch: steps whose batches are kept ready.
      holds: whether a checkpoint's values are held while a thread writes them.
    """
    template, count = train.template, len(train.towers)
    peak, gradients = _of_tower(template)
    if train.options.accumulate_steps > 1:  # beside those of a round are the sums
        peak += gradients
    computing = at_a_time(template, train.placement) or count
    sizes = train.options.tower_batches(train.placement.num_towers)
    share = sum(sizes) / len(sizes) / max(sizes)  # the template is of the largest
    activations = int(share * (peak - gradients))
    towers = count * gradients + computing * activations
    batches = (1 + prefetch) * _batches(train)
    return _variables(train) + towers + batches + holds * _saved(train)


def _of_tower(template: AnyTemplate) -> tuple[int, int]:
    """Bytes of a tower at its peak, and of its gradients."""
    if not isinstance(template, Template) or template.compiled:
        gradients = template.parameters * tf.float32.size
        return gradients, gradients
    with tf.Graph().as_default() as graph:
        tf.import_graph_def(template.graph_def, name="")
    named = graph.get_tensor_by_name
    operations = [op for op in graph.get_operations() if op.type != "Placeholder"]
    names = [name for of_one in template.gradients for name in of_one]
    return (
        liveness.peak(operations, [named(name) for name in template.outputs]),
        sum(liveness.size(named(name)) for name in names),
    )


def _variables(train: TrainGraph) -> int:
    """Bytes of all replicas, slots and averages."""
    with train.graph.as_default():
        held = v1.global_variables() + v1.local_variables()
    return sum(map(_size, held))


def _saved(train: TrainGraph) -> int:
    """Bytes of the variables in a checkpoint."""
    return sum(_size(v) for whole in train.saved.values() for v in parts.each(whole))


def _size(variable: tf.Variable) -> int:
    if variable.shape.rank is None:
        return 0
    return variable.shape.num_elements() * variable.dtype.size


def _batches(train: TrainGraph) -> int:
    """Bytes of the batches of a step."""
    return sum(
        nests.num_bytes((batch.features, batch.labels)) for batch in train.feed.batches
    )
