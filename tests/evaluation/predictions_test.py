"""Predictions of a run: in order, each example once, whatever the towers."""

import contextlib
import dataclasses
import io

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import towers
from models import Inputs, Model, Recipe, Schedule
from models.model import softmax_cross_entropy
from towers.data import from_arrays

_X = np.arange(14, dtype=np.float32)[:, None]


def _net(last=lambda x, nn: x):
    """y = w x, and what `last` makes of it."""
    return Model(
        name="line",
        blocks=(("line", lambda x, nn: nn.dense(x, 1, use_bias=False)), ("last", last)),
        inputs=Inputs(features=tf.TensorSpec([1]), labels=tf.TensorSpec([1])),
        loss=lambda y, wanted: tf.square(y - wanted)[:, 0],
        metrics=lambda y, wanted: {},
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.001,)), num_epochs=2),
    )


def _called(call, *args, **settings):
    with contextlib.redirect_stdout(io.StringIO()):
        return call(*args, device="cpu", **settings)


class PredictionsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path
        data = from_arrays(_X, 3 * _X)
        settings = {"num_warmup_batches": 0, "train_dir": self.folder}
        _called(towers.fit, _net(), data, ema_decay=0.5, **settings)
        reader = tf.train.load_checkpoint(self.folder)
        self._weight, self._average = (
            reader.get_tensor(name)
            for name in (
                "line/dense/kernel",
                "line/dense/kernel/ExponentialMovingAverage",
            )
        )

    def _predict(self, net=None, data=None, **settings):
        data = from_arrays(_X, _X) if data is None else data
        settings = {"ema_decay": 0.5, "train_dir": self.folder, **settings}
        return _called(towers.predict, net or _net(), data, **settings)

    @parameterized.parameters((1, 4), (2, 4), (3, 2), (2, 14), (4, 16))
    def test_each_once_and_in_order(self, num_gpus, batch_size):
        predicted = self._predict(num_gpus=num_gpus, batch_size=batch_size)
        np.testing.assert_allclose(predicted, _X * self._average, rtol=1e-6)

    @parameterized.parameters(
        dict(num_gpus=2, num_stages=2),
        dict(num_gpus=4, num_stages=2, num_micro_batches=2),
        dict(num_gpus=2, num_stages=2, num_micro_batches=4, schedule="gpipe"),
    )
    def test_in_stages(self, **settings):
        net = _net(lambda x, nn: {"y": x, "pair": (x, tf.cast(x, tf.int32))})
        predicted = self._predict(net, batch_size=4, **settings)
        y = _X * self._average
        np.testing.assert_allclose(predicted["y"], y, rtol=1e-6)
        np.testing.assert_array_equal(predicted["pair"][1], y.astype(np.int32))

    def test_with_a_sharded_classifier(self):
        net = dataclasses.replace(
            _net(lambda x, nn: nn.dense(x, nn.num_classes)),
            loss=softmax_cross_entropy,
        )
        net = dataclasses.replace(
            net,
            inputs=dataclasses.replace(net.inputs, labels=tf.TensorSpec([], "int32")),
        )
        data = from_arrays(_X, np.arange(14, dtype=np.int32) % 2)
        folder = self.create_tempdir().full_path
        settings = {"train_dir": folder, "batch_size": 4, "num_gpus": 4}
        _called(towers.fit, net, data, shard_classifier=2, **settings)
        sharded = _called(towers.predict, net, data, shard_classifier=2, **settings)
        whole = _called(towers.predict, net, data, **settings)
        self.assertEqual(sharded.shape, (14, 2))
        np.testing.assert_allclose(sharded, whole, rtol=1e-5)

    def test_with_the_averages_or_what_they_average_but_never_by_chance(self):
        predicted = self._predict(ema_decay=0.0)
        np.testing.assert_allclose(predicted, _X * self._weight, rtol=1e-6)
        self.assertNotAlmostEqual(self._weight.item(), self._average.item(), places=4)
        with self.assertRaisesRegex(ValueError, "holds moving averages; give"):
            self._predict(ema_decay=None)

    def test_weights_do_not_leave_examples_out(self):
        weights = np.zeros(14, np.float32)
        weights[3] = 1
        predicted = self._predict(data=from_arrays(_X, _X, weights=weights))
        np.testing.assert_allclose(predicted, _X * self._average, rtol=1e-6)

    def test_what_has_no_row_for_each_example(self):
        net = _net(lambda x, nn: tf.reduce_sum(x))
        with self.assertRaisesRegex(ValueError, r"last block returned .* shape \(\)"):
            self._predict(net)
