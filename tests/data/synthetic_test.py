"""Synthetic data: the same rows for every layout of towers."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data import inputs
from towers.data.source import ClientShare, Request
from towers.data.synthetic import SYNTHETIC, SyntheticSource


def _images():
    return inputs.get("synthetic", Request(shape=(4, 5, 3), num_classes=7, seed=5))


def _tokens():
    request = Request(shape=(6,), num_classes=5, kind="tokens", preprocessing="bytes")
    return SyntheticSource(request)


def _pairs():
    return SyntheticSource(Request(shape=(2,), num_classes=(50, 9), kind="pairs"))


class SyntheticTest(parameterized.TestCase, tf.test.TestCase):
    def test_every_row_of_the_table_is_tested(self):
        self.assertCountEqual(SYNTHETIC, ["examples", "images", "pairs", "tokens"])

    @parameterized.product(
        layout=("3x4", "two_hosts", "unequal"), make=(_images, _tokens, _pairs)
    )
    def test_rows_do_not_depend_on_the_layout(self, layout, make):
        whole = batch_reader.read(make(), 2, layout="1x12", position=24, limit=40)
        parts = batch_reader.read(make(), 2, layout=layout, position=24, limit=40)
        for expected, other in zip(whole[:3], parts[:3]):
            self.assertAllEqual(expected, other)
        self.assertAllEqual(whole[0][:12], whole[0][12:])
        self.assertAllEqual(whole[2], [1] * 16 + [0] * 8)
        ends = 24 + np.cumsum(batch_reader.sizes(layout) * 2)
        self.assertAllEqual(parts[3], [24, *ends[:-1]])

    def test_parts_of_a_step_are_the_step(self):
        whole = batch_reader.read(_images(), 3, layout="2x2", position=8)
        parts = [
            batch_reader.read(
                _images(), 3, layout="1x2", position=8, part=ClientShare(k, 2)
            )
            for k in range(2)
        ]
        for number in range(2):
            joined = [p[number].reshape(3, 2, *p[number].shape[1:]) for p in parts]
            both = np.concatenate(joined, 1)
            self.assertAllEqual(both.reshape(whole[number].shape), whole[number])
        self.assertEqual(parts[1][3], [10, 14, 18])

    def test_looks_like_scaled_images(self):
        request = Request(shape=(50, 50, 3), num_classes=4)
        source = inputs.get("synthetic", request)
        features, labels, _, _ = batch_reader.read(source, 1)
        self.assertEqual((source.num_classes, source.features.shape), (4, (50, 50, 3)))
        self.assertAllInRange(features, 7 / 127.5 - 1.001, 247 / 127.5 - 0.999)
        pixels = (features + 1) * 127.5
        self.assertAllClose(pixels, np.round(pixels), rtol=0, atol=1e-3)
        self.assertAllClose(features.mean(), -0.5 / 127.5, atol=0.01)
        # A normal distribution cut off at 2 deviations keeps 0.88 of its deviation.
        self.assertAllClose(features.std(), 0.88 * 60 / 127.5, atol=0.01)
        self.assertContainsSubset(labels, range(4))
        self.assertGreater(len(set(labels)), 1)

    def test_unscaled_images_have_the_pixels_that_scaled_ones_have(self):
        sources = [
            inputs.get("synthetic", Request(shape=(9, 9, 3), unscaled=unscaled))
            for unscaled in (False, True)
        ]
        scaled, pixels = (batch_reader.read(source, 1)[0] for source in sources)
        self.assertAllClose(pixels, (scaled + 1) * 127.5, rtol=0, atol=1e-3)
        self.assertAllEqual(pixels, np.round(pixels))

    def test_tokens_are_followed_by_their_labels(self):
        features, labels, _, _ = batch_reader.read(_tokens(), 1)
        self.assertEqual((features.shape, labels.shape), ((12, 6), (12, 6)))
        self.assertEqual((features.dtype, labels.dtype), (np.int32, np.int32))
        self.assertAllEqual(features[:, 1:], labels[:, :-1])
        self.assertAllInRange(features, 0, 4)
        self.assertLen(set(features.flat), 5)

    def test_pairs_of_which_one_in_five_is_liked(self):
        groups = batch_reader.LAYOUTS["1x12"][0]
        with tf.Graph().as_default(), batch_reader.session() as session:
            feed = _pairs().feed(
                groups, batch_size=3000, position=tf.constant(0, "int64")
            )
            session.run(feed.initializer)
            pairs, labels, _, _ = session.run(feed.batches)[0]
        self.assertEqual((pairs.dtype, labels.dtype), (np.int32, np.int32))
        self.assertEqual(
            (set(pairs[:, 0]), set(pairs[:, 1])), ({*range(50)}, {*range(9)})
        )
        self.assertAllClose(labels.mean(), 0.2, atol=0.03)
        counts = np.bincount(pairs[:, 1])
        self.assertGreater(counts[0], 3 * counts[-1])
