"""How long steps wait for input, on sources and towers that take a known time."""

import time

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.data import inputs
from towers.data.source import Request, Source

v1 = tf.compat.v1

_READING = 0.06  # seconds of the reader for each batch
_STEPS = 12


class _SlowSource(inputs.DatasetSource):
    """The random images; reading a batch takes some seconds."""

    def __init__(self, seconds: float, **options):
        self._seconds = seconds
        records = trainer.random_source().records
        # With threads of its own: sleeping towers hold those of the session.
        super().__init__(records, Request(shape=(4, 4, 1), threads=2, **options))

    def batches(self, share, position):
        def wait(*parts):
            def sleep(index):
                time.sleep(self._seconds)
                return index

            indices = tf.numpy_function(sleep, [parts[2]], tf.int64)
            return (*parts[:2], tf.ensure_shape(indices, parts[2].shape))

        return super().batches(share, position).map(wait)


class _StagedSource(_SlowSource):
    def feed(self, groups, **options):
        return super().feed(groups, **{**options, "stage": True})


class _UntimedSource(Source):
    """A user's own class, which does not say how long towers wait."""

    num_examples, num_classes = 70, 5

    def feed(self, groups, **options):
        return trainer.random_source().feed(groups, **options)._replace(waits=())


def _slow_model(seconds: float):
    """A dense layer, whose tower takes some seconds more."""

    def sleep(x):
        time.sleep(seconds)
        return np.float32(0)

    def block(x, nn):
        late = tf.numpy_function(sleep, [x[0, 0, 0, 0]], tf.float32)
        late = tf.stop_gradient(tf.ensure_shape(late, []))
        return nn.dense(nn.flatten(x) + late, nn.num_classes)

    return trainer.model_of(block)


def _shares(source, computing: float, k: int = 1, **options) -> float:
    """The share of the time that the steps after the first ones wait."""
    model = _slow_model(computing)  # kept, as TensorFlow does not keep its function
    training = trainer.Trainer(model, source, batch_size=4, **options)
    if k > 1:
        training.add_loop()
    training.start()
    training.run([], 4, k)
    reads = training.train.input_wait
    before, begun = training.session.run(reads.now), time.perf_counter()
    training.run([], 4 + _STEPS, k)
    waited = training.session.run(reads.now) - before
    seconds = time.perf_counter() - begun
    training.session.close()
    return float(waited[0] / reads.waiting / seconds)


class InputWaitTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.product(
        options=[
            dict(),
            dict(towers=2),
            dict(towers=2, variable_update="replicated"),
            dict(towers=2, variable_update="staged"),
            dict(towers=1, k=4),
        ],
        computing=[0.0, _READING / 2, 2 * _READING],
        make=[_SlowSource, _StagedSource],
    )
    def test_what_reading_takes_longer_than_computing(self, options, computing, make):
        share = _shares(make(_READING), computing, **options)
        self.assertAllClose(share, max(0.0, 1 - computing / _READING), atol=0.25)

    @parameterized.parameters((0.0, 1.0), (4 * _READING, 0.0))
    def test_asynchronous_towers_wait_for_their_own_batches(self, computing, wanted):
        """Two towers take turns at one reader."""
        source = _SlowSource(_READING, prefetch=4)
        share = _shares(source, computing, towers=2, variable_update="asynchronous")
        self.assertAllClose(share, wanted, atol=0.25)

    def test_sources_without_a_reader(self):
        request = Request(shape=(4, 4, 1), num_classes=5)
        for source in (inputs.get("synthetic", request), _UntimedSource()):
            training = trainer.Trainer(trainer.dense_model(), source)
            self.assertIsNone(training.train.input_wait)
