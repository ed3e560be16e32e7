"""A session that reads data beside the sessions of a run."""

import contextlib
from collections.abc import Iterator

import tensorflow as tf

v1 = tf.compat.v1


@contextlib.contextmanager
def reading_session() -> Iterator[v1.Session]:
    """A session on the CPU, of a new graph that is the current one in this block.

    It has its own threads; otherwise it would set the number for all later sessions.
    """
    config = v1.ConfigProto(device_count={"GPU": 0}, use_per_session_threads=True)
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        yield session
