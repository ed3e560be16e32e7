"""The rows that hosts read, and the epochs of the stream."""

import tensorflow as tf
from absl.testing import parameterized

from towers.data.host_share import HostShare, epochs, indices_of_step, rows_of_host

v1 = tf.compat.v1


def _read(make, count):
    """The first elements of a dataset."""
    with tf.Graph().as_default(), v1.Session() as session:
        iterator = v1.data.make_initializable_iterator(make())
        session.run(iterator.initializer)
        following = iterator.get_next()
        return [session.run(following) for _ in range(count)]


class HostShareTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(step=4, first=0, count=4),
        dict(step=6, first=2, count=3),
        dict(step=5, first=4, count=1),
    )
    def test_both_ways_have_the_same_rows(self, **rows_of_step):
        share, position = HostShare(**rows_of_step), 7
        rows = _read(
            lambda: rows_of_host(
                tf.data.Dataset.range(position, 1000),
                share,
                tf.constant(position, tf.int64),
            ),
            3 * share.count,
        )
        wanted = []
        with tf.Graph().as_default(), v1.Session() as session:
            for step in range(3):
                indices = indices_of_step(
                    tf.constant(step, tf.int64), share, tf.constant(position, tf.int64)
                )
                wanted += session.run(indices).tolist()
        self.assertEqual([int(index) for index, _ in rows], wanted)
        self.assertEqual([int(row) for _, row in rows], wanted)

    def test_an_epoch_begins_where_the_position_is(self):
        def of_epoch(seed):
            return tf.data.Dataset.range(3).map(lambda row: 10 * seed[1] + row)

        def make():
            return epochs(3, 5, tf.constant(4, tf.int64), of_epoch)

        self.assertEqual(_read(make, 6), [11, 12, 20, 21, 22, 30])
