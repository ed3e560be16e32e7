"""Reads batches of a data source, with its towers in several layouts."""

import numpy as np
import tensorflow as tf

from towers.data.source import sizes_of

v1 = tf.compat.v1

CPUS = [f"/device:CPU:{index}" for index in range(4)]

# Name -> (groups, batch size per tower).  A step has twelve rows; with 2x2 it has four,
# which is the part of one of three clients.
LAYOUTS = {
    "1x12": ([(CPUS[0], CPUS[:1])], 12),
    "3x4": ([(CPUS[0], CPUS[:3])], 4),
    "1x2": ([(CPUS[0], CPUS[:1])], 2),
    "4x3": ([(CPUS[0], CPUS)], 3),
    "2x2": ([(CPUS[0], CPUS[:2])], 2),
    "two_hosts": ([(CPUS[0], CPUS[:1]), (CPUS[1], CPUS[1:])], 3),
    "unequal": ([(CPUS[0], CPUS[:2]), (CPUS[2], CPUS[2:])], (6, 1, 2, 3)),
}


def sizes(layout: str) -> list[int]:
    """The batch size of each tower of a layout."""
    groups, batch_size = LAYOUTS[layout]
    return [size for of_host in sizes_of(groups, batch_size) for size in of_host]


def session() -> v1.Session:
    """A session on those CPU devices."""
    config = v1.ConfigProto(device_count={"CPU": len(CPUS)})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return v1.Session(config=config)


def read(
    source, steps: int, *, layout="4x3", position=0, limit=None, **options
) -> tuple:
    """Reads steps of a source.

    Args:
      source: of the batches.
      steps: how many.
      layout: a row of `LAYOUTS`.
      position: index in the stream of the first row.
      limit, **options: as `feed` of the source has them.

    Returns:
      (features, labels, weights, firsts): numpy arrays [rows, ...] of all batches in
      order, and the `first` of each batch.
    """
    groups, batch_size = LAYOUTS[layout]
    with tf.Graph().as_default(), session() as opened:
        where = v1.placeholder_with_default(tf.constant(position, tf.int64), [])
        feed = source.feed(
            groups, batch_size=batch_size, position=where, limit=limit, **options
        )
        # First from another position: the initializer may be run again at any time.
        opened.run(feed.initializer, {where: 1})
        opened.run([feed.batches, feed.refills])
        opened.run(feed.initializer)
        taken = [opened.run([feed.batches, feed.refills])[0] for _ in range(steps)]
    batches = [batch for step in taken for batch in step]
    joined = [np.concatenate([batch[part] for batch in batches]) for part in range(3)]
    return *joined, [int(batch.first) for batch in batches]


def read_records(examples, seed=None) -> list[tuple]:
    """All (image, label) of `Records`, ordered by an epoch's seed, or as stored."""
    with tf.Graph().as_default(), v1.Session() as session:
        if seed is not None:
            seed = tf.constant(seed, tf.int64)
        dataset = examples.open(seed).enumerate()
        dataset = dataset.map(lambda _, record: examples.decode(record))
        pair = v1.data.make_one_shot_iterator(dataset).get_next()
        pairs = []
        while True:
            try:
                pairs.append(session.run(pair))
            except tf.errors.OutOfRangeError:
                return pairs
