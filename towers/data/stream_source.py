"""The base of sources of one stream: a pipeline for each host, a batch for each tower.

A subclass reads a host's rows.  This class decides which rows a host reads, splits a
batch among towers, and copies it to the devices.
"""

from collections.abc import Sequence

import tensorflow as tf

from towers.data import nests
from towers.data.host_share import HostShare
from towers.data.source import (
    Batch,
    ClientShare,
    Feed,
    Groups,
    LeftOut,
    sizes_of,
    weight_of_all,
    weighted,
)
from towers.data.staging import Piece, staged

v1 = tf.compat.v1


class StreamSource:
    """A source whose examples are those of a stream.

    Args:
      prefetch: batches to prefetch for each tower.
      threads: of the input pipeline; 0 or None to share those of the session.
      max_damaged: examples in an epoch that may be damaged; these have weight 0.
    """

    num_examples: int

    def __init__(self, *, prefetch: int, threads: int | None, max_damaged: int = 0):
        self._max_damaged = max_damaged
        self._prefetch = prefetch
        self._threads = threads

    def batches(self, share: HostShare, position: tf.Tensor) -> tf.data.Dataset:
        """A dataset of one host's batches, step by step, on the current device.

        Args:
          share: the host's rows.
          position: int64 scalar, index in the stream of the first step's first row.

        Returns:
          A dataset of (features, labels, indices in the stream int64 [count]), and
          weights float32 [count] if examples have weights.  Features and labels are
          nests of tensors [count, ...].
        """
        raise NotImplementedError

    def weight_of_step(
        self, batch: Batch, part: ClientShare, rows: int, limit: int | None
    ) -> tf.Tensor | None:
        """The weight of all examples of a step, if they have weights.

        Args:
          batch: of the first tower.
          part: of the step that this client reads.
          rows: examples in that part.
          limit: as in `feed`.

        Returns:
          float32 scalar; None, as here, if only the weights of this part are known.
        """
        del batch, part, rows, limit
        return None

    def feed(
        self,
        groups: Groups,
        *,
        batch_size: int | Sequence[int],
        position: tf.Tensor,
        limit: int | None = None,
        stage: bool | None = None,
        part: ClientShare = ClientShare(),  # noqa: B008 - a tuple
    ) -> Feed:
        """Adds the towers' input pipelines to the current graph.

        Each host has one pipeline, whose batch in each step is split among its towers.
        The towers' batches together are the next rows of the stream.  An asynchronous
        tower takes the next batch of its host's pipeline in each of its steps.  So no
        batch is used twice, and on one host none is left out.  A host does not take
        rows of another; if a host is slower, its rows that remain when the run ends are
        not used.

        Args:
          groups: the hosts and their towers.
          batch_size: per tower; one number for each if they differ, which asynchronous
            towers' do not.
          position: int64 scalar, index in the stream to which the initializer seeks.
          limit: examples from this index on have weight 0; None for no limit.
          stage: whether batches are read and copied to the tower's device one step
            ahead; None to do so on GPUs.  Never for asynchronous towers.
          part: of the stream that this graph's towers read.

        Returns:
          The towers' batches, in tower order, and the operations that feed them.
        """
        batches, starts, refills, waits, damaged = [], [], [], [], []
        towers = sizes_of(groups, batch_size)
        sizes = [of_host[0] if part.apart else sum(of_host) for of_host in towers]
        rows = sum(sizes)
        with tf.name_scope("input"):
            for index, (host, devices) in enumerate(groups):
                before = part.before(rows) + sum(sizes[:index])
                step = part.of_step(rows)
                share = HostShare(step, before, sizes[index], part.order)
                on_gpu = any("GPU" in device for device in devices)
                with tf.device(host):
                    iterator = self._iterator(share, position, part.steps)
                    start = iterator.initializer
                    pieces, seconds = _take(iterator, towers[index], part.apart)
                    own_refills = [tf.no_op()] * len(devices)
                    # Not for asynchronous towers, which would take others' batches.
                    if not part.apart and (stage or (stage is None and on_gpu)):
                        with tf.control_dependencies([start]):
                            primers, _ = _take(iterator, towers[index], part.apart)
                        pieces, start, own_refills = staged(devices, primers, pieces)
                        seconds = []
                    batches += [weighted(*piece, limit=limit) for piece in pieces]
                    if self._max_damaged:
                        damaged += [_is_damaged(piece, limit) for piece in pieces]
                starts.append(start)
                refills += own_refills
                waits += seconds
            with tf.device(groups[0][0]):
                if len(pieces[0]) > 3:  # with weights
                    weight = self.weight_of_step(batches[0], part, rows, limit)
                else:
                    weight = weight_of_all(batches[0].first, part, rows, limit)
            start, anew = tf.group(starts), bool(part.steps)
            left_out = None
            if damaged:
                left_out = LeftOut(self._max_damaged, self.num_examples, damaged)
            return Feed(batches, start, refills, weight, anew, waits, left_out)

    def _iterator(
        self, share: HostShare, position: tf.Tensor, steps: int | None
    ) -> v1.data.Iterator:
        """An iterator over a host's batches; its initializer seeks to the position.

        After `steps` it starts there again.
        """
        options = tf.data.Options()
        options.deterministic = True
        if self._threads:
            options.threading.private_threadpool_size = self._threads
        dataset = self.batches(share, position)
        if steps:
            dataset = dataset.take(steps).repeat()
        dataset = dataset.prefetch(self._prefetch).with_options(options)
        return v1.data.make_initializable_iterator(dataset)


def _is_damaged(piece: Piece, limit: int | None) -> tf.Tensor:
    """Which examples of a batch are damaged, bool [batch]; none from `limit` on."""
    _, _, indices, weights = piece
    damaged = tf.equal(weights, 0.0)
    return damaged if limit is None else damaged & (indices < limit)


def _take(
    iterator: v1.data.Iterator, sizes: Sequence[int], apart: bool
) -> tuple[list[Piece], list[tf.Tensor]]:
    """A piece of its size for each tower, and the seconds for which each waits for it.

    One batch of the iterator is split among the towers; if they step `apart`, each
    takes one.
    """
    if apart:
        timed = [_timed(iterator) for _ in sizes]
        return [piece for piece, _ in timed], [seconds for _, seconds in timed]
    batch, seconds = _timed(iterator)
    return nests.split(batch, sizes), [seconds] * len(sizes)


def _timed(iterator: v1.data.Iterator) -> tuple[Piece, tf.Tensor]:
    """The next batch, and the seconds from asking for it until it is there."""
    asked = tf.timestamp()
    with tf.control_dependencies([asked]):
        batch = iterator.get_next()
    with tf.control_dependencies([batch[2]]):  # an output of the same operation
        there = tf.timestamp()
    # No tower begins before the clock is read, which may otherwise wait for a thread.
    with tf.control_dependencies([there]):
        return tf.nest.map_structure(tf.identity, batch), there - asked
