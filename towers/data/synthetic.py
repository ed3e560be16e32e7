"""Synthetic data: random examples that stay in the towers' memory."""

import copy
import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from models import layers
from models.uniform import example_uniform
from towers.data import nests, source
from towers.data.source import (
    Batch,
    ClientShare,
    Feed,
    Groups,
    Request,
    weight_of_all,
    weighted,
)
from towers.data.stream import unsaved

# (features, labels) of some examples, nests of tensors [examples, ...].
Rows = tuple[Any, Any]

# Synthetic pixels are truncated normal, with mean, deviation and bounds (two
# deviations) of tf_cnn_benchmarks, rounded to whole numbers.  They are drawn from a
# table of quantiles: if computed, the last bits of a pixel would depend on how a kernel
# vectorizes.
_NORMAL = statistics.NormalDist(mu=127, sigma=60)
_TAIL = statistics.NormalDist().cdf(-2)
_LEVELS = 4096
_PIXELS = np.array(
    [
        round(_NORMAL.inv_cdf(_TAIL + (1 - 2 * _TAIL) * (level + 0.5) / _LEVELS))
        for level in range(_LEVELS)
    ],
    np.float32,
)

# The rows of towers are drawn together up to about this many bytes.
_TOGETHER = 2**26


class SyntheticSource:
    """Random examples that stay in the towers' memory, to measure the step alone.

    Row r of the global batch depends on (seed, r), so that four towers have the same
    examples as one tower of four times the batch size.

    Attributes:
      name, num_classes, num_examples, features, labels, path, vocabulary: as in
        `DatasetSource`.
    """

    def __init__(self, request: Request):
        self.name = "synthetic"
        self.rows: layers.Rows | None = None  # of a stateful model
        self.num_classes = request.num_classes
        self.num_examples = request.num_examples
        self.features, self.labels = source.specs(request)
        self.path = ""
        self.vocabulary = ()
        self._request = request

    def decoded(self) -> "SyntheticSource":
        """As `DatasetSource.decoded`; returns this source."""
        return self

    def in_rows(self, count: int) -> "SyntheticSource":
        """The same source, of as many examples as are whole steps of `count` rows."""
        source = copy.copy(self)
        source.rows = layers.Rows(count, self.num_examples // count)
        source.num_examples = count * source.rows.steps
        return source

    def feed(
        self,
        groups: Groups,
        *,
        batch_size: int | Sequence[int],
        position: tf.Tensor,
        limit: int | None = None,
        part: ClientShare = ClientShare(),  # noqa: B008 - a tuple
    ) -> Feed:
        """As `DatasetSource.feed`; asynchronous towers all have the same rows."""
        batches: list[Batch] = []
        starts = []
        towers = source.sizes_of(groups, batch_size)
        share = towers[0][0] if part.apart else sum(map(sum, towers))
        begin = part.before(share)
        with tf.name_scope("input"):
            for (host, devices), sizes in zip(groups, towers):
                firsts = [0] * len(sizes)
                if not part.apart:
                    *firsts, begin = itertools.accumulate(sizes, initial=begin)
                with tf.device(host):
                    now, start = _counter(position, part.of_step(share))
                    drawn = _drawn(self._request, firsts, sizes)
                starts.append(start)
                for device, first, size, rows in zip(
                    devices, firsts, sizes, drawn, strict=True
                ):
                    with tf.device(device):
                        kept = [unsaved(row) for row in tf.nest.flatten(rows)]
                        features, labels = self._batch(kept)
                    starts += [variable.initializer for variable in kept]
                    with tf.device(host):
                        indices = now + np.arange(first, first + size)
                        batches.append(weighted(features, labels, indices, limit=limit))
            with tf.device(groups[0][0]):
                weight = weight_of_all(batches[0].first, part, share, limit)
            nothing = [tf.no_op()] * len(batches)
            return Feed(batches, tf.group(starts), nothing, weight)

    def _batch(self, kept: Sequence[tf.Variable]) -> Rows:
        """Features and labels, read from the variables in their order."""
        specs = self.features, self.labels
        dtypes = [spec.dtype for spec in tf.nest.flatten(specs)]
        tensors = [tf.cast(v.read_value(), dtype) for v, dtype in zip(kept, dtypes)]
        return tf.nest.pack_sequence_as(specs, tensors)


def _drawn(request: Request, firsts: Sequence[int], sizes: Sequence[int]) -> list[Rows]:
    """The rows from each of `firsts` on; these are consecutive or all equal."""
    draw = SYNTHETIC[request.kind]
    if len(set(firsts)) == 1:
        return [draw(request, firsts[0], sizes[0])] * len(firsts)
    num_bytes = nests.num_bytes(source.specs(request)) * max(sizes)
    number = max(1, _TOGETHER // num_bytes)
    batches: list[Rows] = []
    for begin in range(0, len(firsts), number):
        some = sizes[begin : begin + number]
        together = draw(request, firsts[begin], sum(some))
        batches += nests.split(together, some)
    return batches


def _images(request: Request, first: int, count: int) -> Rows:
    """Float32 [count, height, width, channels] and classes [count]."""
    draw = functools.partial(example_uniform, seed=request.seed, first=first)
    levels = draw((count, *request.shape), salt=1) * _LEVELS
    pixels = tf.gather(_PIXELS, tf.cast(levels, tf.int32))
    label = draw((count,), salt=2) * request.num_classes
    pixels = pixels if request.unscaled else pixels * (2 / 255) - 1.0
    return pixels, tf.cast(label, tf.int64)


def _tokens(request: Request, first: int, count: int) -> Rows:
    """Tokens [count, length], and for each token the next one."""
    (length,) = request.shape
    draw = example_uniform((count, length + 1), salt=1, seed=request.seed, first=first)
    tokens = tf.cast(draw * request.num_classes, tf.int64)
    return tokens[:, :-1], tokens[:, 1:]


def _pairs(request: Request, first: int, count: int) -> Rows:
    """Users and items [count, 2], few of them popular; 1 of 5 pairs is a positive."""
    assert isinstance(request.num_classes, tuple)
    users, items = request.num_classes
    draw = example_uniform((count, 3), salt=1, seed=request.seed, first=first)
    user, item = draw[:, 0] * users, draw[:, 1] * draw[:, 1] * draw[:, 1] * items
    positive = draw[:, 2] < 0.2
    pairs = tf.stack([user, item], axis=1)
    return tf.cast(pairs, tf.int64), tf.cast(positive, tf.int64)


def _examples(request: Request, first: int, count: int) -> Rows:
    """Tensors of the request's specs: floats in [-1, 1), integers that are classes."""
    number = itertools.count(1)

    def drawn(spec: tf.TensorSpec) -> tf.Tensor:
        draw = example_uniform(
            (count, *spec.shape), salt=next(number), seed=request.seed, first=first
        )
        if spec.dtype == tf.bool:
            return tf.cast(draw < 0.5, tf.int64)
        if spec.dtype.is_integer:
            return tf.cast(draw * request.num_classes, tf.int64)
        return tf.cast(2 * draw - 1, spec.dtype)

    return tf.nest.map_structure(drawn, source.specs(request))


# kind of data -> function: (request, first row of the global batch, number of rows) ->
# features and labels.  Integers are int64, because GPUs have no int32 variables.
SYNTHETIC: dict[str, Callable[[Request, int, int], Rows]] = {
    "images": _images,
    "tokens": _tokens,
    "pairs": _pairs,
    "examples": _examples,
}


def _counter(position: tf.Tensor, step: int) -> tuple[tf.Tensor, tf.Operation]:
    """A number that grows by `step` at every read, and the operation that sets it."""
    counter = unsaved(tf.constant(0, tf.int64))
    start = counter.assign(position, read_value=False)
    now = counter.read_value()
    with tf.control_dependencies([now]):
        advance = counter.assign_add(step, read_value=False)
    with tf.control_dependencies([advance]):
        return tf.identity(now), start
