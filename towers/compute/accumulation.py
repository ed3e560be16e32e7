"""Gradient accumulation: a tower computes its batch in rounds, a part in each.

The loss and gradients of a part are shares of the mean over all parts of all towers.
So they add up to those of one tower on the whole batch, in the memory of one part.
Sums are float32, on the devices of the gradients.  Each part is normalized by its own
batch statistics, and the mean of these is saved.
"""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from towers.compute import copy_tower
from towers.compute.tower import Site, Template, Tower
from towers.data import nests
from towers.layout import parts

v1 = tf.compat.v1


def accumulation_loops(sites: Sequence[Site], rounds: int) -> list[Tower]:
    """Adds towers that compute their batches in rounds, each in a `tf.while_loop`.

    Towers that exchange statistics are in one loop.

    Args:
      sites: of the towers, whose batches have `rounds` parts each; their templates are
        those of one part.
      rounds: number of rounds.
    """
    groups = [sites] if sites[0].template.exchanges else [[site] for site in sites]
    return [tower for group in groups for tower in _loop(group, rounds)]


def _loop(sites: Sequence[Site], rounds: int) -> list[Tower]:
    """Towers whose rounds are in one loop, on the device of the first tower."""
    scope = v1.name_scope(f"{sites[0].scope}/rounds/")  # absolute
    with scope, tf.device(None), tf.device(sites[0].device):
        cut = [_cut(site, rounds) for site in sites]
        begin = [
            _Sum.zero(site.template, name, device, rounds)
            for site in sites
            for name, device in copy_tower.devices(site).items()
        ]

        def one_round(
            index: tf.Tensor, totals: Sequence[Any]
        ) -> tuple[tf.Tensor, list[Any]]:
            inside = [_round_of(site, batch, index) for site, batch in zip(sites, cut)]
            towers = copy_tower.copy_tower(inside)
            addends = [
                part
                for site, tower in zip(sites, towers)
                for part in _parts(site.template, tower)
            ]
            return index + 1, [
                kind.add(total, part, index)
                for kind, total, part in zip(begin, totals, addends)
            ]

        _, totals = tf.while_loop(
            lambda index, _: index < rounds,
            one_round,
            [tf.constant(0), [kind.start for kind in begin]],
            parallel_iterations=1,
            name="loop",
        )
    ends = [kind.end(total) for kind, total in zip(begin, totals)]
    towers = []
    for k, site in enumerate(sites):
        template, size = site.template, len(site.template.outputs)
        averaged = {name for rule, name in template.statistics if not rule.is_state}
        of = dict(zip(template.outputs, ends[k * size : (k + 1) * size]))
        with tf.device(site.device):
            of |= {name: of[name] / rounds for name in averaged}
        towers.append(copy_tower.tower(template, k, site.device, of))
    return towers


def _cut(site: Site, rounds: int) -> dict[str, tf.Tensor]:
    """The batch as [rounds, examples, ...]."""
    cut = {}
    for name, batch in site.inputs.items():
        if not nests.of_batch(name):
            continue
        size, *rest = batch.shape
        with tf.device(batch.device):
            cut[name] = tf.reshape(batch, [rounds, size // rounds, *rest])
    return cut


def _round_of(site: Site, cut: dict[str, tf.Tensor], index: tf.Tensor) -> Site:
    """The site with one part as its batch, inside the loop."""
    with tf.device(site.device):
        # The loop body can use an outer tensor only after reading it here.
        inputs = {
            name: tf.identity(tensor)
            for name, tensor in site.inputs.items()
            if name not in cut
        }
        inputs |= {name: tf.gather(part, index) for name, part in cut.items()}
        size = inputs["weights"].shape[0]
        inputs["first"] += tf.cast(index, tf.int64) * size
    reads = {}
    for name, tensor in site.reads.items():
        with tf.device(tensor.device if parts.is_part(name) else site.device):
            reads[name] = tf.identity(tensor)
    return site._replace(inputs=inputs, reads=reads)


def _parts(template: Template, tower: Tower) -> list[tf.Tensor]:
    """A tower's tensors, in the order of `Template.outputs`."""
    gradients: list[Any] = []
    for gradient in tower.gradients:
        if isinstance(gradient, tf.IndexedSlices):
            gradients += [gradient.values, gradient.indices, gradient.dense_shape]
        elif gradient is not None:
            gradients.append(gradient)
    metrics = [tower.metrics[name] for name in template.metrics]
    return [tower.loss, *metrics, *gradients, *tower.statistics]


class _Sum:
    """Accumulates one output of the template over the rounds: their sum."""

    def __init__(self, spec: tf.TensorSpec, device: str):
        self._device = device
        with tf.device(device):
            self.start = tf.zeros(spec.shape, tf.float32)

    @staticmethod
    def zero(template: Template, name: str, device: str, rounds: int) -> "_Sum":
        """The accumulator for an output of the template."""
        spec = template.specs[name]
        for names in template.gradients:
            if len(names) > 1 and name in names[:2]:
                return _Rows(spec, device, rounds)
            if len(names) > 1 and name == names[2]:
                return _Same(spec, device)
        return _Sum(spec, device)

    def add(self, total: Any, part: tf.Tensor, index: tf.Tensor) -> Any:
        """Adds a round to the total; inside the loop."""
        del index
        with tf.device(self._device):
            return total + tf.cast(part, tf.float32)

    def end(self, total: Any) -> tf.Tensor:
        """The tower's output."""
        return total


class _Rows(_Sum):
    """Concatenates the values or indices of a sparse gradient over the rounds."""

    def __init__(self, spec: tf.TensorSpec, device: str, rounds: int):
        self._device = device
        with tf.device(device):
            self.start = tf.TensorArray(
                spec.dtype, size=rounds, element_shape=spec.shape
            )

    def add(self, total: Any, part: tf.Tensor, index: tf.Tensor) -> Any:
        """Writes the rows of a round into the array."""
        with tf.device(self._device):
            return total.write(index, part)

    def end(self, total: Any) -> tf.Tensor:
        """All rows, [rounds x rows, ...]."""
        with tf.device(self._device):
            return total.concat()


class _Same(_Sum):
    """The dense shape of a sparse gradient, the same in all rounds.

    It becomes a constant again after the loop, since reductions need its static value.
    """

    def __init__(self, spec: tf.TensorSpec, device: str):
        self._device = device
        self._shape = None
        with tf.device(device):
            self.start = tf.zeros(spec.shape, spec.dtype)

    def add(self, total: Any, part: tf.Tensor, index: tf.Tensor) -> Any:
        """Returns the shape of this round."""
        del total, index
        self._shape = tf.get_static_value(part)
        return part

    def end(self, total: Any) -> tf.Tensor:
        """The shape, as a constant if its value is static."""
        with tf.device(self._device):
            return total if self._shape is None else tf.constant(self._shape)
