"""The speed-up of each pipeline schedule, on blocks that wait instead of computing.

About eight equal blocks, as many in each stage, wait for a fixed time per micro-batch
forward, and twice as long backward.  Waiting takes no core, so the stages run in
parallel on any number of cores, and the schedule alone causes the loss.  The speed-up
is the sum of all waits / the time of a step.  It is printed beside the ideal,
K M V / (M V + K - 1), of K equal stages, M micro-batches and V chunks per stage.
The fastest of a few steps counts, because other load on the machine can only lengthen a
step.  The end of a wait costs about 0.3 ms of a core, in Python: with waits much
shorter than 10 ms, eight stages on two cores would measure that cost, not the schedule.
"""

import argparse
import time
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from models.model import Images, Model, Recipe, Schedule
from towers import graph
from towers.data import inputs
from towers.layout import placement, schedule
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.session import loop

v1 = tf.compat.v1

BLOCKS = 8  # about
CLASSES = 3
_CHUNKS = 2  # of each stage, where the schedule interleaves


def waiting_model(seconds: float, blocks: int = BLOCKS) -> Model:
    """A chain of blocks that wait.

    Args:
      seconds: of a block for a micro-batch, forward; backward it waits twice as long.
      blocks: how many.
    """

    def wait(x: tf.Tensor, seconds: float) -> tf.Tensor:
        def act(value):
            time.sleep(seconds)
            return value

        after = tf.numpy_function(act, [x], x.dtype)
        after.set_shape(x.shape)
        return after

    @tf.custom_gradient
    def both_ways(x):
        return wait(x, seconds), lambda dy: wait(dy, 2 * seconds)

    def block(x, nn):
        # What the first block waits for, backward, is the gradient of its variable.
        return both_ways(x * nn.variable("scale", [], v1.ones_initializer()))

    def last(x, nn):
        return tf.reshape(block(x, nn), [x.shape[0], -1])[:, :CLASSES]

    names = [f"wait_{i}" for i in range(blocks)]
    return Model(
        name="waiting",
        blocks=(*((name, block) for name in names[:-1]), (names[-1], last)),
        inputs=Images(shape=(2, 2, 1), num_classes=CLASSES),
        recipe=Recipe(batch_size=1, schedule=Schedule(rates=(0.0,))),
    )


def speed_up(how: Pipeline, *, seconds: float, steps: int) -> float:
    """The speed-up: sum of the waits / time of the fastest of some steps.

    Args:
      how: stages, micro-batches, schedule; its cut is made here.
      seconds: as in `waiting_model`.
      steps: number of measured steps, after one for warm-up.
    """
    examples = np.zeros((how.micro_batches, 2, 2, 1), np.uint8)
    labels = np.zeros(how.micro_batches, np.int64)
    where = placement.local(how.stages, kind="cpu", num_stages=how.stages)
    train = graph.build(
        waiting_model(seconds, how.cut[-1]),
        inputs.from_arrays(examples, labels, num_classes=CLASSES, training=False),
        Update("sgd", Piecewise((0.0,))),
        placement=where,
        options=graph.Options(batch_size=how.micro_batches, pipeline=how),
    )
    # Each wait blocks a thread.  The process-wide pool has the size that its first
    # session chose, so this session gets one of its own.
    config = placement.session_config(where, inter_threads=how.stages + 4)
    config.use_per_session_threads = True
    with v1.Session(graph=train.graph, config=config) as session:
        loop.start(train, session, lambda session: None)
        step = session.make_callable(train.train_op)
        step()
        best = float("inf")
        for _ in range(steps):
            begun = time.perf_counter()
            step()
            best = min(best, time.perf_counter() - begun)
    return 3 * seconds * how.cut[-1] * how.micro_batches / best


def pipelines(stages: Sequence[int], micro_batches: Sequence[int]) -> list[Pipeline]:
    """The pipelines of all schedules, cut into pieces of equally many blocks.

    Args:
      stages: numbers of them.
      micro_batches: numbers of them.
    """
    variants = []
    for name, row in SCHEDULES.items():
        chunks = _CHUNKS if row.interleaves else 1
        for k in stages:
            pieces = k * chunks
            size = max(1, BLOCKS // pieces)
            cut = tuple(size * (piece + 1) for piece in range(pieces))
            variants += [Pipeline(k, m, name, chunks, cut) for m in micro_batches]
    return variants


def row(how: Pipeline, speed_up: float) -> str:
    """A line of the table.

    Args:
      how: the pipeline.
      speed_up: its speed-up.
    """
    share = schedule.busy_share(how.stages, how.micro_batches, how.chunks)
    ideal = how.stages * share
    return (
        f"{how.schedule:<12} {how.stages:>2} {how.micro_batches:>3} {ideal:7.2f} "
        f"{speed_up:9.2f} {speed_up / ideal:7.3f}"
    )


def schedules(options: argparse.Namespace) -> list[str]:
    """The speed-up of each schedule alone, on stages that wait."""
    print("schedule      K   M   ideal  speed-up  share")
    worst = float("inf")
    for how in pipelines(options.stages, options.micro_batches):
        seconds = options.wait_ms / 1e3
        text = row(how, speed_up(how, seconds=seconds, steps=options.steps))
        print(text, flush=True)
        worst = min(worst, float(text.split()[-1]))
    return [f"smallest share of the ideal: {worst:.3f}"]
