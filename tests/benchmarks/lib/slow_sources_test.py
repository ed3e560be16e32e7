"""Slow sources give distinct examples, and rates leave out the warm-up."""

from unittest import mock

from absl.testing import absltest

from benchmarks.lib import slow_sources


class SlowSourcesTest(absltest.TestCase):
    def test_examples_depend_on_their_number(self):
        source = slow_sources.PurePython()
        features, label = source[13]
        self.assertEqual((features.shape, features.dtype), ((28,), "float32"))
        self.assertEqual(label, 3)

    def test_a_rate_is_of_the_batches_after_the_warmup(self):
        times = iter([5.0, 5.0, 6.0, 7.0, 9.0])  # at the begin, and before each batch
        read = mock.Mock()
        with mock.patch.object(slow_sources.time, "perf_counter", lambda: next(times)):
            rate = slow_sources.rate(read, 4.0)
        self.assertEqual(rate, 3 * slow_sources.BATCH / 4.0)
        self.assertEqual(read.call_count, 3 + 30)
