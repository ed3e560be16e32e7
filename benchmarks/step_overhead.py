"""What the session loop and its hooks cost, against a bare loop over the same step.

    python -m benchmarks.step_overhead

The model is so small that the step is mostly overhead: mlp on 4 towers of 8 examples.
In each round every variant builds its graph anew and runs in turn in this process:

    bare    `session.make_callable(train_op)` in a Python loop, nothing around it
    loop    `towers.loop` without a hook
    run     `towers.run`, what the command does: step lines, NaN check, signals
    saving  the same, with a train_dir, summaries and timed checkpoints
"""

import argparse
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence

import tensorflow as tf

import models
from benchmarks import machine, process, ratios, table
from flags import config
from towers import graph, loop, plan, progress, run

v1 = tf.compat.v1


def bare(settings: dict) -> float:
    """images/s of a callable, called over and over."""
    parts = _parts(settings)
    with _started(parts) as (train, session):
        step = session.make_callable(train.train_op)
        for _ in range(parts.num_warmup):
            step()
        begun = time.perf_counter()
        for _ in range(parts.num_batches):
            step()
        return _speed(parts, time.perf_counter() - begun)
