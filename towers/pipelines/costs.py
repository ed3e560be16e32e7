"""What each block of a model costs, and the cut into stages that balances it.

Stages that are equal in floating point operations or in parameters need not be equal in
time: that is measured, on the device that the first stage will run on, and kept in a
file, so that a later run of the same model on the same machine cuts it at once.

What is spread over the devices of all stages, as the classes of the last layer may be,
costs each of them as much wherever the cut is.  It is no block's, and left out: with
the same on top, the largest stage is the smallest possible where it is without.
"""

import dataclasses
import hashlib
import json
import math
import os
import platform
from collections.abc import Callable, Sequence

import tensorflow as tf

from towers.compute.flops import of_operations
from towers.compute.joining import Joint
from towers.compute.tower import Site, Task
from towers.errors import folders
from towers.layout import partition, schedule
from towers.layout.parts import is_part
from towers.layout.placement import Placement, session_config
from towers.layout.stages import Pipeline
from towers.pipelines import pipeline, segment, spans
from towers.pipelines.segment import Segment
from towers.updates.variables import Copy

v1 = tf.compat.v1

_REPEATS = 5  # traced steps; the fastest run of each pass counts
_SEED = 1


@dataclasses.dataclass(frozen=True)
class Work:
    """What is to be cut.

    Attributes:
      task: what a tower computes.
      features: shape [micro-batch, ...] and dtype.
      labels: shape [micro-batch, ...] and dtype.
      placement: of the towers.
    """

    task: Task
    features: tf.TensorSpec
    labels: tf.TensorSpec
    placement: Placement

    def segments(self) -> list[Segment]:
        """One for each block."""
        return segment.trace(
            self.task,
            [[block] for block in self.task.model.blocks],
            segment.Batch(self.features, self.labels),
            create=lambda *args, **options: None,
        )


def flops(work: Work) -> list[float]:
    """Floating point operations of each block, forward and backward."""
    return [float(_own_flops(one)) for one in work.segments()]


def _own_flops(one: Segment) -> int:
    """Of what runs on the device of the block's stage."""
    ops = {
        op for piece in (one.forward, one.backward) if piece for op in piece.operations
    }
    return of_operations([op for op in ops if not op.device])


def params(work: Work) -> list[float]:
    """Trainable parameters of each block; those that blocks share count for each."""
    return [
        float(sum(v.num_elements() for k, v in one.shapes.items() if not is_part(k)))
        for one in work.segments()
    ]


def time(work: Work) -> list[float]:
    """Seconds of each block, forward and backward, as measured once and kept.

    Of a block that ends with what is spread, the share that its other operations have
    in its floating point operations.
    """
    if work.task.shards is None:
        return _time(work)
    whole = dataclasses.replace(work, task=dataclasses.replace(work.task, shards=None))
    return [
        seconds * own / (of or 1.0)
        for seconds, own, of in zip(_time(whole), flops(work), flops(whole))
    ]


def _time(work: Work) -> list[float]:
    """Of whole blocks."""
    path = os.path.join(_folder(), f"{_key(work)}.json")
    names = [name for name, _ in work.task.model.blocks]
    if (kept := _kept(path, names)) is not None:
        return kept
    seconds = measure(work)
    try:
        os.makedirs(_folder(), exist_ok=True)
        with open(f"{path}.part", "w") as file:
            json.dump({"blocks": names, "seconds": seconds}, file)
        os.replace(f"{path}.part", path)
    except OSError:
        pass  # It is measured again next time.
    return seconds


def _kept(path: str, names: Sequence[str]) -> list[float] | None:
    """The times of these blocks in a file; None: there is none, or it is damaged."""
    try:
        with open(path) as file:
            found = json.load(file)
        seconds, blocks = [float(one) for one in found["seconds"]], found["blocks"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    right = blocks == list(names) and len(seconds) == len(names)
    positive = all(0 <= one < math.inf for one in seconds) and any(seconds)
    return seconds if right and positive else None


# --partition -> costs of a model's blocks.  A new one is one function and one row.
COSTS: dict[str, Callable[[Work], list[float]]] = {
    "flops": flops,
    "params": params,
    "time": time,
}
AUTO = "time"  # what --partition=auto stands for


def with_cut(
    task: Task, features: tf.TensorSpec, labels: tf.TensorSpec, placement: Placement
) -> Task:
    """The task with its pipeline's cut, if that is still open.

    Args:
      task: what a tower computes.
      features: shape [batch, ...] and dtype of a tower's batch.
      labels: shape [batch, ...] and dtype.
      placement: of the towers.
    """
    how = task.pipeline
    if how is None or how.cut:
        return task
    pieces, count = how.stages * how.chunks, len(task.model.blocks)
    costs = [1.0] * count
    if 1 < pieces < count:
        micro = [how.micro_batch(spec) for spec in (features, labels)]
        plain = dataclasses.replace(task, pipeline=None, joined=Joint())
        costs = COSTS[how.balance](Work(plain, *micro, placement))
    cut = partition.balanced(costs, pieces)
    return dataclasses.replace(task, pipeline=dataclasses.replace(how, cut=cut))


def measure(work: Work) -> list[float]:
    """Seconds of each block, forward and backward, on the first stage's device."""
    blocks = work.task.model.blocks
    count = len(blocks)
    device = work.placement.devices[0]
    apart = Pipeline(stages=count, schedule="gpipe", cut=tuple(range(1, count + 1)))
    task = dataclasses.replace(work.task, pipeline=apart)
    with tf.Graph().as_default() as graph:
        copy = Copy([[device]] * count, _SEED)
        template = pipeline.trace(task, work.features, work.labels, create=copy.create)
        reads = {
            name: tf.cast(copy.read(name), dtype)
            for name, dtype in template.reads.items()
        }
        site = Site("measured", [device] * count, _inputs(work, device), reads)
        [tower] = pipeline.stamp(template, [site])
        # One after another, as on the device of a stage.
        ends = [tower.loss, *(g for g in tower.gradients if g is not None)]
        with tf.device(device):
            ends = [tf.reshape(tf.convert_to_tensor(end), [-1])[0] for end in ends]
        start = v1.global_variables_initializer()
    with v1.Session(graph=graph, config=session_config(work.placement)) as session:
        session.run(start)
        return _fastest(session, ends, count)


def _fastest(session: v1.Session, ends: Sequence[tf.Tensor], count: int) -> list[float]:
    """For each block the sum of its passes' fastest runs."""
    best: dict[schedule.Pass, float] = {}
    for _ in range(_REPEATS + 1):
        metadata = v1.RunMetadata()
        session.run(ends, options=spans.traced(), run_metadata=metadata)
        for span in spans.of_step(metadata):
            seconds = span.end - span.begin
            best[span.what] = min(seconds, best.get(span.what, seconds))
    return [
        sum(seconds for what, seconds in best.items() if what.chunk == block)
        for block in range(count)
    ]


def _inputs(work: Work, device: str) -> dict[str, tf.Tensor]:
    """A batch of zeros: what is in it does not change how long it takes."""
    size = work.labels.shape[0]
    with tf.device(device):
        return {
            "features": tf.zeros(work.features.shape, work.features.dtype),
            "labels": tf.zeros(work.labels.shape, work.labels.dtype),
            "weights": tf.ones([size]),
            "total_weight": tf.constant(float(size)),
            "first": tf.constant(0, tf.int64),
            "loss_scale": tf.constant(1.0),
        }


def _folder() -> str:
    return os.path.join(folders.caches(), "block_times")


def _key(work: Work) -> str:
    """What the times depend on."""
    task = work.task
    gpus = [gpu.name for gpu in tf.config.list_physical_devices("GPU")]
    blocks = [
        (one.blocks, one.flops, {k: tuple(v) for k, v in one.shapes.items()})
        for one in work.segments()
    ]
    facts = (
        blocks,
        (task.model.name, task.training, task.data_format, task.dtype.name),
        (tuple(work.features.shape), work.features.dtype.name),
        (work.placement.kind, platform.node(), os.cpu_count(), gpus),
        tf.__version__,
    )
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
