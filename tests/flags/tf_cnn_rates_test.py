"""The learning rate of each step, against tf_cnn_benchmarks' formulas in Python."""

import bisect

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from flags.tf_cnn_models import MODELS
from flags.tf_cnn_rates import rates_of
from tests.flags.tf_cnn_commands import run_of
from towers.optimizers.from_recipe import update_from_recipe

IMAGENET, CIFAR = 1_281_167, 50_000


def piecewise_constant(step, boundaries, values):
    """tf.train.piecewise_constant: the old value at the boundary itself."""
    return values[bisect.bisect_left(boundaries, step)]


def resnet(step, batch, base=0.128):
    """resnet_model.py:322-357."""
    scaled, per_epoch = base * batch / 256, IMAGENET / batch
    if step < int(per_epoch * 5):
        return scaled * step / int(per_epoch * 5)
    boundaries = [int(per_epoch * epoch) for epoch in (30, 60, 80, 90)]
    values = [scaled * 0.1**number for number in range(5)]
    return piecewise_constant(step, boundaries, values)


def official_resnet(step, batch):
    """official_resnet_model.py:48-55."""
    boundaries = [int(IMAGENET / batch * epoch) for epoch in (30, 60, 80, 90)]
    values = [0.0125 * batch / 32 * 0.1**number for number in range(5)]
    return piecewise_constant(step, boundaries, values)


def cifar_resnet(step, batch):
    """resnet_model.py:418-424."""
    boundaries = [int(CIFAR / batch) * epoch for epoch in (82, 123, 300)]
    return piecewise_constant(step, boundaries, [0.1, 0.01, 0.001, 0.0002])


def densenet(step, batch):
    """densenet_model.py:76-82."""
    boundaries = [CIFAR // batch * epoch for epoch in (150, 225, 300)]
    return piecewise_constant(step, boundaries, [0.1, 0.01, 0.001, 0.0001])


def alexnet_cifar(step, batch):
    """alexnet_model.py:77-89."""
    return 0.1 * 0.1 ** (step // (100 * CIFAR // batch))


def ours(run, steps):
    """The rates of `towers.train` in these global steps there."""
    settings = config.make(**rates_of(run))
    model = models.get("lenet")
    update = update_from_recipe(settings.optimizer, model, run.global_batch, epochs=90)
    examples = run.model.examples or run.per_epoch
    positions = np.array(steps, np.float64) / run.counts * run.global_batch
    epochs = (positions / examples).astype(np.float32)
    return [float(update.learning_rate(tf.constant(epoch))) for epoch in epochs]


def near(*steps):
    """The steps around some."""
    return sorted({step + d for step in steps for d in range(-3, 4) if step + d >= 0})


class RatesTest(parameterized.TestCase):
    def _assert_equal(self, run, theirs, steps):
        wanted = [theirs(step) for step in steps]
        np.testing.assert_allclose(ours(run, steps), wanted, rtol=2e-5, atol=1e-12)
        if len(steps) > 7:
            self.assertGreater(len(set(wanted)), 1)

    @parameterized.product(batch_size=(32, 64, 250), num_gpus=(1, 8))
    def test_resnet(self, batch_size, num_gpus):
        batch = batch_size * num_gpus
        steps = near(0, *(int(IMAGENET / batch * e) for e in (2, 5, 30, 60, 80, 90)))
        run = run_of(batch_size=batch_size, num_gpus=num_gpus)
        self._assert_equal(run, lambda step: resnet(step, batch), steps)

    def test_resnet_in_replicas_whose_gradients_are_added(self):
        run = run_of(num_gpus=4, variable_update="replicated")
        self._assert_equal(run, lambda s: resnet(s, 256) / 4, [0, 9, 40_000, 160_000])
        self.assertEqual(run.adds_gradients, 4)

    def test_resnet_base_lr(self):
        run = run_of(resnet_base_lr=0.2)
        self._assert_equal(run, lambda s: resnet(s, 64, 0.2), [0, 9, 200_000])

    def test_resnet_on_two_workers(self):
        hosts = dict(job_name="worker", worker_hosts=("a:1", "b:1"))
        steps = [2 * step for step in near(IMAGENET // 128, 5 * IMAGENET // 128)]
        self._assert_equal(run_of(**hosts), lambda step: resnet(step, 64), steps)

    @parameterized.parameters(1, 3)
    def test_official_resnet(self, num_gpus):
        batch = 128 * num_gpus
        steps = near(0, *(int(IMAGENET / batch * e) for e in (30, 60, 80, 90)))
        run = run_of(model="official_resnet50", num_gpus=num_gpus)
        self._assert_equal(run, lambda step: official_resnet(step, batch), steps)

    @parameterized.product(
        model=("resnet20", "densenet40_k12"), batch_size=(50, 128, 300)
    )
    def test_cifar10(self, model, batch_size):
        theirs = cifar_resnet if model == "resnet20" else densenet
        marks = (82, 123, 150, 225, 300)
        steps = near(*(CIFAR // batch_size * epoch for epoch in marks))
        run = run_of("cifar10", model, batch_size=batch_size)
        self._assert_equal(run, lambda step: theirs(step, batch_size), steps)

    @parameterized.parameters(50, 128)
    def test_alexnet_of_cifar10(self, batch):
        steps = near(*(number * (100 * CIFAR // batch) for number in (1, 2, 3)))
        run = run_of("cifar10", "alexnet", batch_size=batch)
        self._assert_equal(run, lambda step: alexnet_cifar(step, batch), steps)

    @parameterized.parameters(*("lenet", "trivial", "vgg16", "ncf", "nasnetlarge"))
    def test_constant(self, model):
        rate = MODELS["imagenet"][model].rates.rates[0]
        self._assert_equal(run_of(model=model), lambda step: rate, [0, 1, 10**6])

    @parameterized.parameters(0, 3)
    def test_piecewise(self, warmup):
        """benchmark_cnn.py:1123-1136 and 1187-1197."""
        per_epoch = IMAGENET / 64

        def theirs(step):
            if step < int(per_epoch * warmup):
                return 0.3 * step / int(per_epoch * warmup)
            boundaries = [int(epoch * per_epoch) - 1 for epoch in (10, 25)]
            return piecewise_constant(step, boundaries, [0.3, 0.2, 0.1])

        run = run_of(
            piecewise_learning_rate_schedule="0.3;10;0.2;25;0.1",
            num_learning_rate_warmup_epochs=float(warmup),
        )
        steps = near(*(int(per_epoch * epoch) for epoch in (1, 3, 10, 25)))
        self._assert_equal(run, theirs, steps)

    def test_stairs(self):
        """benchmark_cnn.py:1170-1185."""
        decay_steps = int(IMAGENET / 64 * 2.5)
        run = run_of(
            init_learning_rate=0.5,
            num_epochs_per_decay=2.5,
            learning_rate_decay_factor=0.5,
        )
        period = rates_of(run)["num_epochs_per_decay"]
        self.assertAlmostEqual(period * IMAGENET / 64, decay_steps, delta=1e-3)

    def test_epochs_that_are_no_whole_numbers_are_refused_as_there(self):
        run = run_of(piecewise_learning_rate_schedule="0.3;1.5;0.2")
        with self.assertRaisesRegex(ValueError, "epoch 1.5 is no whole number"):
            rates_of(run)
