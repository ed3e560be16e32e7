"""The stream: every epoch is complete, in its own order, from any position."""

import contextlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from towers.data import order, records, stream
from towers.data.host_share import HostShare
from towers.data.preprocessing import PREPROCESSING
from towers.data.stream import Stream

v1 = tf.compat.v1

_BOTH_WAYS = parameterized.named_parameters(
    ("in_memory", True), ("decoded_as_they_come", False)
)

_FOURS = HostShare(step=4, first=0, count=4)


def _numbered(n, shape=(2, 2, 1)):
    """Records of n images that are filled with their own number."""
    images = np.zeros((n, *shape), np.float32) + np.arange(n).reshape(-1, 1, 1, 1)
    return records.from_arrays(images, np.arange(n) % 7, num_classes=7)


def _of_all_sizes(n):
    """Records of n images of different heights, filled with their own number."""

    def make():
        dataset = tf.data.Dataset.range(n)
        return dataset.map(
            lambda i: (tf.fill([20 + i, 30, 3], tf.cast(i, tf.uint8)), i)
        )

    return records.from_dataset(make, num_examples=n, num_classes=n)


def _stream(examples, *, in_memory, name="scale", shape=(2, 2, 1), **options):
    options = {"seed": 3, "shuffle": True, "augment": False} | options
    return Stream(
        records=examples,
        shape=shape,
        preprocessing=PREPROCESSING[name],
        in_memory=in_memory,
        **options,
    )


def _read(stream, steps, *, position=0, share=_FOURS, before=None):
    """(features, labels, indices) of so many steps, joined."""
    with tf.Graph().as_default(), v1.Session() as session:
        start = tf.constant(position, tf.int64)
        iterator = v1.data.make_initializable_iterator(stream.batches(share, start))
        batch = iterator.get_next()
        session.run(iterator.initializer)
        if before:
            before(session, batch)
            session.run(iterator.initializer)
        parts = [session.run(batch) for _ in range(steps)]
    return tuple(np.concatenate(part) for part in zip(*parts))


class StreamTest(parameterized.TestCase, tf.test.TestCase):
    @_BOTH_WAYS
    def test_every_epoch_is_whole_and_has_its_own_order(self, in_memory):
        features, labels, indices = _read(
            _stream(_numbered(10), in_memory=in_memory), 10
        )
        self.assertAllEqual(indices, np.arange(40))
        numbers = features[:, 0, 0, 0].astype(int)
        self.assertAllEqual(labels, numbers % 7)
        epochs = numbers.reshape(4, 10)
        self.assertAllEqual(np.sort(epochs), np.tile(np.arange(10), (4, 1)))
        self.assertLen({tuple(epoch) for epoch in epochs}, 4)

    @_BOTH_WAYS
    def test_the_seed_makes_the_order(self, in_memory):
        orders = [
            _read(_stream(_numbered(10), in_memory=in_memory, seed=seed), 5)[1]
            for seed in (3, 3, 4)
        ]
        self.assertAllEqual(orders[0], orders[1])
        self.assertNotAllEqual(orders[0], orders[2])

    @_BOTH_WAYS
    def test_without_shuffling_the_order_is_that_of_the_records(self, in_memory):
        features, _, _ = _read(
            _stream(_numbered(10), in_memory=in_memory, shuffle=False), 5, position=7
        )
        self.assertAllEqual(features[:, 0, 0, 0], np.arange(7, 27) % 10)

    @parameterized.parameters(True, False)
    def test_files_are_opened_in_an_order_of_the_epoch(self, shuffle):
        seeds, examples = [], _numbered(6)

        def opened(seed):
            seeds.append(seed)
            return examples.open(seed)

        stream = _stream(
            examples._replace(open=opened), in_memory=False, shuffle=shuffle
        )
        _read(stream, 1)
        self.assertEqual([seed is not None for seed in seeds], [shuffle])

    @_BOTH_WAYS
    def test_begins_anywhere_and_again(self, in_memory):
        stream = _stream(_numbered(10), in_memory=in_memory)
        whole = _read(stream, 12)
        for position in (4, 20, 23):
            rest = _read(
                stream,
                3,
                position=position,
                before=lambda session, batch: [session.run(batch) for _ in range(2)],
            )
            for part, all_of_it in zip(rest, whole):
                self.assertAllEqual(part, all_of_it[position : position + 12])

    @parameterized.parameters(0, 7, 23)
    def test_old_checkpoints_have_the_order_of_permutations(self, position):
        # The order of commit 93da081, four epochs of ten examples.
        written = [3, 4, 1, 7, 2, 6, 8, 9, 5, 0, 4, 5, 0, 2, 6, 1, 9, 8, 7, 3]
        written += [3, 4, 1, 9, 5, 7, 2, 6, 0, 8, 0, 4, 6, 3, 1, 7, 8, 2, 5, 9]
        examples = _stream(_numbered(10), in_memory=True)
        for first, count in ((0, 4), (1, 2)):
            share = HostShare(4, first, count, np.int64(order.PERMUTED))
            numbers = _read(examples, 3, position=position, share=share)[0]
            steps = np.reshape(written[position : position + 12], [3, 4])
            wanted = steps[:, first : first + count].ravel()
            self.assertAllEqual(numbers[:, 0, 0, 0], wanted)

    def test_new_runs_need_no_permutation(self):
        def fails(n, seed):
            false = tf.raw_ops.Assert(condition=seed[0] > n, data=[seed])
            with tf.control_dependencies([false]):
                return tf.range(n)

        examples = _stream(_numbered(10), in_memory=True)
        wanted = _read(examples, 5)
        with mock.patch.object(stream, "permutation", fails):
            for version, context in (
                (order.KEYED, contextlib.nullcontext()),
                (order.PERMUTED, self.assertRaises(tf.errors.InvalidArgumentError)),
            ):
                share = HostShare(4, 0, 4, np.int64(version))
                with context:
                    read = _read(examples, 5, share=share)
                    self.assertAllEqual(read[2], wanted[2])
                    self.assertAllEqual(read[0], wanted[0])

    @_BOTH_WAYS
    def test_hosts_share_the_rows_of_each_step(self, in_memory):
        stream = _stream(_numbered(10), in_memory=in_memory)
        whole = _read(stream, 4, position=5, share=HostShare(6, 0, 6))
        first = _read(stream, 4, position=5, share=HostShare(6, 0, 2))
        second = _read(stream, 4, position=5, share=HostShare(6, 2, 4))
        for part, other, both in zip(first, second, whole):
            steps = both.reshape(4, 6, *both.shape[1:])
            self.assertAllEqual(part, np.concatenate(steps[:, :2]))
            self.assertAllEqual(other, np.concatenate(steps[:, 2:]))

    @_BOTH_WAYS
    def test_a_step_may_be_larger_than_the_epoch(self, in_memory):
        share = HostShare(16, 0, 16)
        stream = _stream(_numbered(5), in_memory=in_memory)
        features, _, indices = _read(stream, 2, share=share)
        self.assertAllEqual(indices, np.arange(32))
        self.assertAllEqual(
            np.sort(features[:30, 0, 0, 0].reshape(6, 5)), np.tile(np.arange(5), (6, 1))
        )

    def test_images_of_all_sizes_are_distorted_by_draws_of_their_own(self):
        def make():
            def noise(i):
                draw = tf.random.stateless_uniform([20 + i, 30, 3], [1, i])
                return tf.cast(256 * draw, tf.uint8), i

            return tf.data.Dataset.range(8).map(noise)

        stream = _stream(
            records.from_dataset(make, num_examples=8, num_classes=8),
            in_memory=False,
            name="imagenet",
            shape=(16, 16, 3),
            shuffle=False,
            augment=True,
        )
        whole, rest = _read(stream, 3), _read(stream, 2, position=4)
        self.assertAllEqual(rest[0], whole[0][4:])
        # shuffled anew in the next epoch
        self.assertNotAllEqual(whole[0][0], whole[0][8])

    def test_both_ways_hold_the_same_examples_and_distort_them_alike(self):
        images = np.random.default_rng(0).integers(0, 256, (6, 32, 32, 3), np.uint8)
        images = records.from_arrays(images, np.arange(6), num_classes=6)
        options = {"name": "cifar", "shape": (32, 32, 3), "shuffle": False}
        plain, distorted, decoded = (
            _read(_stream(images, in_memory=memory, augment=augment, **options), 3)
            for memory, augment in ((True, False), (True, True), (False, True))
        )
        self.assertNotAllEqual(plain[0], distorted[0])
        # distorted anew in each epoch
        self.assertNotAllEqual(distorted[0][:6], distorted[0][6:])
        for part, other in zip(distorted, decoded):
            self.assertAllEqual(part, other)
        # the draws belong to an example, wherever a step begins
        for memory in (True, False):
            stream = _stream(images, in_memory=memory, augment=True, **options)
            later = _read(stream, 2, position=3)
            self.assertAllEqual(later[0], distorted[0][3:11])

    @_BOTH_WAYS
    def test_decoded_once_it_is_the_same_stream(self, in_memory):
        opened = []
        examples = _numbered(6)

        def open_counted(seed):
            opened.append(seed)
            return examples.open(seed)

        counted = examples._replace(open=open_counted)
        stream = _stream(counted, in_memory=in_memory, augment=True)
        wanted = _read(stream, 4, position=5)
        decoded = stream.decoded()
        self.assertIs(decoded.decoded(), decoded)
        opened.clear()
        for _ in range(2):
            for expected, other in zip(
                wanted, _read(decoded, 4, position=5), strict=True
            ):
                np.testing.assert_array_equal(expected, other)
        self.assertEqual(not opened, in_memory)

    def test_images_that_differ_in_size(self):
        stream = _stream(
            _of_all_sizes(9),
            in_memory=False,
            name="imagenet",
            shape=(8, 8, 3),
            augment=True,
        )
        features, labels, _ = _read(stream, 9)
        self.assertEqual(features.shape, (36, 8, 8, 3))
        self.assertAllEqual(np.bincount(labels), np.full(9, 4))
        self.assertAllClose(features[:, 0, 0, 0], labels / 127.5 - 1, atol=1e-5)

    @_BOTH_WAYS
    def test_an_epoch_of_another_length_is_an_error(self, in_memory):
        short = _numbered(10)._replace(num_examples=12)
        with self.assertRaisesRegex(tf.errors.OpError, "12 elements but contained"):
            _read(_stream(short, in_memory=in_memory), 4)
