"""The networks that tf_cnn_benchmarks and this project are compared on."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np


class SharedNetwork(NamedTuple):
    """A network of both.

    Attributes:
      theirs, data_name: flags of tf_cnn_benchmarks.
      size: of the images.
      batch_size: per tower, for two cores and 16 GB of memory.
      rate: the learning rate, so small that rounding errors do not grow much.
      chaotic: whether they do so at every useful rate.
    """

    theirs: str
    data_name: str
    size: int
    batch_size: int
    rate: float
    chaotic: bool = False


NETS: Mapping[str, SharedNetwork] = {
    "lenet": SharedNetwork("lenet", "imagenet", 28, 16, 0.005),
    "alexnet": SharedNetwork("alexnet", "imagenet", 227, 4, 0.0002),
    "alexnet_cifar10": SharedNetwork("alexnet", "cifar10", 32, 16, 0.005),
    "resnet20": SharedNetwork("resnet20", "cifar10", 32, 16, 0.001),
    "resnet20_v2": SharedNetwork("resnet20_v2", "cifar10", 32, 16, 0.001),
    "resnet50": SharedNetwork("resnet50", "imagenet", 224, 2, 0.001, True),
    "resnet50_v1.5": SharedNetwork("resnet50_v1.5", "imagenet", 224, 2, 0.001, True),
    "inception3": SharedNetwork("inception3", "imagenet", 299, 2, 0.001, True),
    "vgg11": SharedNetwork("vgg11", "imagenet", 224, 2, 0.0002),
}
CLASSES = {"imagenet": 1001, "cifar10": 11}  # of tf_cnn_benchmarks


class TrainingCase(NamedTuple):
    """A network, how it is trained, and how the two are compared.

    Attributes:
      net: a name of `NETS`.
      variable_update, num_gpus, optimizer: flags of tf_cnn_benchmarks.
      plain_gradients: whether the gradients here are TensorFlow's own.
      each_step: whether each step here begins where theirs does.
    """

    net: str
    variable_update: str
    num_gpus: int
    optimizer: str
    plain_gradients: bool = False
    each_step: bool = False

    def __str__(self) -> str:
        return f"{self.net} {self.variable_update} x{self.num_gpus} {self.optimizer}"

    @property
    def how(self) -> str:
        """How the two are compared, in words; empty: from the start to the end."""
        words = self.each_step * ["each step"]
        return ", ".join(words + self.plain_gradients * ["plain gradients"])

    def flags(self, steps: int) -> dict[str, Any]:
        """The flags of tf_cnn_benchmarks that both sides are given."""
        net = NETS[self.net]
        return {
            "model": net.theirs,
            "data_name": net.data_name,
            "variable_update": self.variable_update,
            "num_gpus": self.num_gpus,
            "batch_size": net.batch_size,
            "num_batches": steps,
            "num_warmup_batches": 0,
            "optimizer": self.optimizer,
            "init_learning_rate": net.rate,
            "device": "cpu",
            "local_parameter_device": "cpu",
            "data_format": "NHWC",
            "num_intra_threads": 1,  # sums in one order
            # It rewrites x / 49 as x * (1 / 49), which is rounded otherwise.
            "enable_optimizations": False,
        }


def random_batches(case: TrainingCase, steps: int) -> dict[str, np.ndarray]:
    """Random images and labels, as the driver takes them."""
    net = NETS[case.net]
    rng = np.random.default_rng(1)
    shape = steps, case.num_gpus, net.batch_size
    size = (*shape, net.size, net.size, 3)
    return {
        "images": 0.5 * rng.standard_normal(size, np.float32),
        "labels": rng.integers(0, CLASSES[net.data_name] - 1, shape, np.int32),
    }
