"""Keras on the same models: `fit`, under `MirroredStrategy` for several devices.

    python -m benchmarks.peers.keras_peer --model=lenet --num_devices=4 --batch_size=8

Other values of `--strategy` train on the tasks of `TF_CONFIG`: `multi_worker` has one
replica on each worker, in synchronous steps; `parameter_server` has the variables on ps
tasks, and a chief that dispatches asynchronous steps to the workers.

The models have the same layers as this project's;
tests/benchmarks/peers/keras_peer_test.py compares their outputs with the same weights.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from benchmarks.peers import peer

layers = tf.keras.layers


def _conv(x, filters: int, kernel: int, strides: int = 1, *, padding: str = "same"):
    """A convolution without bias."""
    return layers.Conv2D(filters, kernel, strides, padding, use_bias=False)(x)


def _batch_norm(x, activation: str = "linear"):
    x = layers.BatchNormalization(momentum=0.9, epsilon=1e-5)(x)
    return x if activation == "linear" else layers.Activation(activation)(x)


def mlp(x):
    """Two hidden layers."""
    x = layers.Flatten()(x)
    for _ in range(2):
        x = layers.Dense(200, activation="relu")(x)
    return layers.Dense(10)(x)


def lenet(x, num_classes: int = 1001):
    """Two convolutions and a dense layer."""
    for filters in (32, 64):
        x = layers.Conv2D(filters, 5, padding="same", activation="relu")(x)
        x = layers.MaxPool2D(2)(x)
    x = layers.Dense(512, activation="relu")(layers.Flatten()(x))
    return layers.Dense(num_classes)(x)


def lenet_digits(x):
    """The same, for the digits that ship with this project."""
    return lenet(x, 10)


def alexnet(x):
    """Five convolutions and three dense layers."""
    x = layers.Conv2D(64, 11, 4, activation="relu")(x)
    x = layers.MaxPool2D(3, 2)(x)
    x = layers.Conv2D(192, 5, padding="same", activation="relu")(x)
    x = layers.MaxPool2D(3, 2)(x)
    for filters in (384, 384, 256):
        x = layers.Conv2D(filters, 3, padding="same", activation="relu")(x)
    x = layers.Flatten()(layers.MaxPool2D(3, 2)(x))
    for _ in range(2):
        x = layers.Dropout(0.5)(layers.Dense(4096, activation="relu")(x))
    return layers.Dense(1001)(x)


def resnet20(x):
    """He et al.'s for CIFAR-10, with identities that have no parameters."""
    pad = getattr(tf.keras, "ops", tf).pad  # Keras 2 takes TensorFlow's
    x = _batch_norm(_conv(x, 16, 3), "relu")
    for filters in (16, 32, 64):
        for unit in range(3):
            strides = 2 if filters > 16 and unit == 0 else 1
            y = _batch_norm(_conv(x, filters, 3, strides), "relu")
            y = _batch_norm(_conv(y, filters, 3))
            if strides > 1:
                x = layers.AveragePooling2D(1, strides)(x)
                missing = filters // 4  # channels, on each side
                x = pad(x, [[0, 0]] * 3 + [[missing, missing]])
            x = layers.ReLU()(layers.Add()([y, x]))
    return layers.Dense(10)(layers.GlobalAveragePooling2D()(x))


def resnet50(x):
    """He et al.'s for ImageNet, version 1: strides in the 1 x 1 convolutions."""
    x = _batch_norm(
        _conv(layers.ZeroPadding2D(3)(x), 64, 7, 2, padding="valid"), "relu"
    )
    x = layers.MaxPool2D(3, 2, padding="same")(x)
    for filters, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for unit in range(units):
            strides = 2 if filters > 64 and unit == 0 else 1
            y = _batch_norm(_conv(x, filters, 1, strides), "relu")
            y = _batch_norm(_conv(y, filters, 3), "relu")
            y = _batch_norm(_conv(y, 4 * filters, 1))
            if unit == 0:
                x = _batch_norm(_conv(x, 4 * filters, 1, strides))
            x = layers.ReLU()(layers.Add()([y, x]))
    return layers.Dense(1001)(layers.GlobalAveragePooling2D()(x))


class KerasModel(NamedTuple):
    """A model."""

    network: Callable  # images -> logits
    shape: tuple[int, int, int]  # of an image
    num_classes: int


MODELS = {
    "alexnet": KerasModel(alexnet, (227, 227, 3), 1001),
    "lenet": KerasModel(lenet, (28, 28, 3), 1001),
    "lenet_digits": KerasModel(lenet_digits, (8, 8, 1), 10),
    "mlp": KerasModel(mlp, (28, 28, 1), 10),
    "resnet20": KerasModel(resnet20, (32, 32, 3), 10),
    "resnet50": KerasModel(resnet50, (224, 224, 3), 1001),
}


def build(name: str) -> tf.keras.Model:
    """The model, not compiled."""
    images = layers.Input(MODELS[name].shape)
    return tf.keras.Model(images, MODELS[name].network(images))


class Stopwatch(tf.keras.callbacks.Callback):
    """Times the steps after the warm-up.

    Attributes:
      seconds: that they took.
    """

    def __init__(self, warmup: int):
        super().__init__()
        self._warmup = warmup
        self._begun = 0.0
        self.seconds = 0.0

    def on_train_batch_end(self, batch, logs=None):
        """Starts after the last warm-up step; records the time after each later one."""
        if batch + 1 == self._warmup:
            self._begun = time.perf_counter()
        self.seconds = time.perf_counter() - self._begun


class EpochStopwatch(tf.keras.callbacks.Callback):
    """Times the second epoch.

    Attributes:
      seconds: that it took.
    """

    def __init__(self):
        super().__init__()
        self._begun = 0.0
        self.seconds = 0.0

    def on_epoch_begin(self, epoch, logs=None):
        """Starts anew."""
        self._begun = time.perf_counter()

    def on_epoch_end(self, epoch, logs=None):
        """Records the time; all steps of the epoch have been taken."""
        self.seconds = time.perf_counter() - self._begun


def train(options: argparse.Namespace) -> float:
    """Trains on one batch over and over; returns the timed steps' seconds."""
    # First: anything else initializes TensorFlow's devices, which cannot be undone.
    strategy = STRATEGIES[options.strategy](options)
    row = MODELS[options.model]
    apart = options.strategy == "parameter_server"
    workers = _tasks().cluster_spec().num_tasks("worker") if apart else 1
    examples = options.num_devices * options.batch_size // workers
    generator = np.random.default_rng(0)
    images = generator.random((examples, *row.shape), np.float32)
    labels = generator.integers(0, row.num_classes, examples)
    batches = tf.data.Dataset.from_tensors((images, labels)).repeat()
    with strategy.scope():
        model = build(options.model)
        model.compile(
            tf.keras.optimizers.SGD(options.learning_rate),
            tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            jit_compile="auto" if options.xla else False,
        )
    warmup, steps = options.num_warmup_batches, options.num_batches
    if apart:  # it calls nothing between steps: one epoch warms up, another is timed
        stopwatch = EpochStopwatch()
        length = dict(steps_per_epoch=workers * steps, epochs=2)
    else:
        stopwatch = Stopwatch(warmup)
        length = dict(steps_per_epoch=warmup + steps)
    model.fit(batches, **length, verbose=0, shuffle=False, callbacks=[stopwatch])
    return stopwatch.seconds


def _mirrored(options: argparse.Namespace) -> tf.distribute.Strategy:
    """Replicas on as many logical CPU devices; the default strategy for one."""
    if options.num_devices == 1:
        return tf.distribute.get_strategy()
    device = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        device, [tf.config.LogicalDeviceConfiguration()] * options.num_devices
    )
    names = [f"CPU:{i}" for i in range(options.num_devices)]
    return tf.distribute.MirroredStrategy(names)


def _multi_worker(options: argparse.Namespace) -> tf.distribute.Strategy:
    """One replica on each worker."""
    del options
    return tf.distribute.MultiWorkerMirroredStrategy()


def _parameter_server(options: argparse.Namespace) -> tf.distribute.Strategy:
    """The strategy in the chief; any other task serves, and does not return."""
    del options
    tasks = _tasks()
    if tasks.task_type != "chief":
        tf.distribute.Server(
            tasks.cluster_spec(), job_name=tasks.task_type, task_index=tasks.task_id
        ).join()
    return tf.distribute.ParameterServerStrategy(tasks)


def _tasks() -> tf.distribute.cluster_resolver.ClusterResolver:
    """The tasks that TF_CONFIG lists."""
    return tf.distribute.cluster_resolver.TFConfigClusterResolver()


STRATEGIES = {
    "mirrored": _mirrored,
    "multi_worker": _multi_worker,
    "parameter_server": _parameter_server,
}


def main(argv: Sequence[str] | None = None) -> None:
    """Trains as the flags say and prints the total line."""
    flags = peer.parser("peers.keras_peer", __doc__, MODELS)
    flags.add_argument(
        "--xla",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="compile by XLA on one device, as Keras does by default",
    )
    flags.add_argument(
        "--strategy",
        choices=list(STRATEGIES),
        default="mirrored",
        help="all but mirrored share num_devices x batch_size examples among the "
        "workers of TF_CONFIG",
    )
    options = flags.parse_args(argv)
    print(peer.total_line(options, train(options)), flush=True)


if __name__ == "__main__":
    main()
