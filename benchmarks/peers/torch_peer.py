"""PyTorch on the same models: one process, or several under DDP over gloo.

    python -m benchmarks.peers.torch_peer --model=lenet --num_devices=4 --batch_size=8

Needs only PyTorch, so an interpreter without TensorFlow can run it.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import distributed, multiprocessing, nn
from torch.nn import functional

from benchmarks.peers import peer


def _conv(
    inputs: int, filters: int, kernel: int, strides: int = 1, *, relu: bool = True
) -> nn.Sequential:
    """Convolution without bias, batch norm, and ReLU if `relu`."""
    modules = [
        nn.Conv2d(inputs, filters, kernel, strides, (kernel - 1) // 2, bias=False),
        nn.BatchNorm2d(filters, eps=1e-5, momentum=0.1),
    ]
    return nn.Sequential(*modules, *([nn.ReLU(inplace=True)] if relu else []))


class Identity(nn.Module):
    """A shortcut without parameters: strided, with zeros for the missing channels."""

    def __init__(self, missing: int, strides: int):
        super().__init__()
        self._missing = missing
        self._strides = strides

    def forward(self, x):
        """Picks every `strides`-th pixel."""
        x = x[:, :, :: self._strides, :: self._strides]
        return functional.pad(x, (0, 0, 0, 0, self._missing // 2, self._missing // 2))


class Residual(nn.Module):
    """A residual unit: ReLU of the sum of a path and a shortcut."""

    def __init__(self, path: nn.Module, shortcut: nn.Module):
        super().__init__()
        self.path = path
        self.shortcut = shortcut

    def forward(self, x):
        """[batch, channels, height, width] -> the unit's output."""
        return functional.relu(self.path(x) + self.shortcut(x), inplace=True)


def mlp() -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 200),
        nn.ReLU(inplace=True),
        nn.Linear(200, 200),
        nn.ReLU(inplace=True),
        nn.Linear(200, 10),
    )


def lenet(size: int = 28, channels: int = 3, num_classes: int = 1001) -> nn.Module:
    """Two convolutions and a dense layer, for square images of `size` pixels a side."""
    modules = []
    for inputs, filters in ((channels, 32), (32, 64)):
        modules += [nn.Conv2d(inputs, filters, 5, padding=2), nn.ReLU(inplace=True)]
        modules += [nn.MaxPool2d(2)]
    pixels = (size // 4) ** 2
    modules += [nn.Flatten(), nn.Linear(64 * pixels, 512), nn.ReLU(inplace=True)]
    return nn.Sequential(*modules, nn.Linear(512, num_classes))


def lenet_digits() -> nn.Module:
    """The same, for the digits that ship with this project."""
    return lenet(8, 1, 10)


def alexnet() -> nn.Module:
    """Five convolutions and three dense layers."""
    modules = []
    for inputs, filters, kernel, strides, pool in (
        (3, 64, 11, 4, True),
        (64, 192, 5, 1, True),
        (192, 384, 3, 1, False),
        (384, 384, 3, 1, False),
        (384, 256, 3, 1, True),
    ):
        padding = (kernel - 1) // 2 if strides == 1 else 0
        modules.append(nn.Conv2d(inputs, filters, kernel, strides, padding))
        modules.append(nn.ReLU(inplace=True))
        modules += [nn.MaxPool2d(3, 2)] if pool else []
    modules.append(nn.Flatten())
    for inputs in (256 * 6 * 6, 4096):
        modules += [nn.Linear(inputs, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5)]
    return nn.Sequential(*modules, nn.Linear(4096, 1001))


def resnet20() -> nn.Module:
    """He et al.'s for CIFAR-10, with identities that have no parameters."""
    modules, inputs = [_conv(3, 16, 3)], 16
    for filters in (16, 32, 64):
        for _ in range(3):
            strides = 1 if filters == inputs else 2
            path = nn.Sequential(
                _conv(inputs, filters, 3, strides),
                _conv(filters, filters, 3, relu=False),
            )
            shortcut = Identity(filters - inputs, strides)
            modules.append(Residual(path, shortcut if strides > 1 else nn.Identity()))
            inputs = filters
    modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 10)]
    return nn.Sequential(*modules)


def resnet50() -> nn.Module:
    """He et al.'s for ImageNet, version 1: strides in the 1 x 1 convolutions."""
    # `ceil_mode` is TensorFlow's SAME: the last window hangs over the edge.
    modules, inputs = [_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True)], 64
    for filters, units in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for unit in range(units):
            strides = 2 if filters > 64 and unit == 0 else 1
            path = nn.Sequential(
                _conv(inputs, filters, 1, strides),
                _conv(filters, filters, 3),
                _conv(filters, 4 * filters, 1, relu=False),
            )
            shortcut = nn.Identity()
            if unit == 0:
                shortcut = _conv(inputs, 4 * filters, 1, strides, relu=False)
            modules.append(Residual(path, shortcut))
            inputs = 4 * filters
    modules += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1001)]
    return nn.Sequential(*modules)


class TorchModel(NamedTuple):
    """A model."""

    network: Callable[[], nn.Module]  # images -> logits
    shape: tuple[int, int, int]  # of an image, channels first
    num_classes: int


MODELS = {
    "alexnet": TorchModel(alexnet, (3, 227, 227), 1001),
    "lenet": TorchModel(lenet, (3, 28, 28), 1001),
    "lenet_digits": TorchModel(lenet_digits, (1, 8, 8), 10),
    "mlp": TorchModel(mlp, (1, 28, 28), 10),
    "resnet20": TorchModel(resnet20, (3, 32, 32), 10),
    "resnet50": TorchModel(resnet50, (3, 224, 224), 1001),
}


def train(rank: int, options: argparse.Namespace, meeting: str) -> None:
    """Trains on one batch over and over; process 0 prints the total line.

    Args:
      rank: of this process.
      options: the flags.
      meeting: path of the file for the processes' rendezvous.
    """
    count = options.num_devices
    # By default PyTorch would let every process use all cores.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // count))
    row = MODELS[options.model]
    memory_format = torch.channels_last if options.nhwc else torch.contiguous_format
    network = row.network().to(memory_format=memory_format)
    if count > 1:
        distributed.init_process_group(
            "gloo", init_method=f"file://{meeting}", rank=rank, world_size=count
        )
        network = nn.parallel.DistributedDataParallel(
            network, gradient_as_bucket_view=True
        )
    optimizer = torch.optim.SGD(network.parameters(), options.learning_rate)
    images = torch.rand(options.batch_size, *row.shape)
    images = images.to(memory_format=memory_format)
    labels = torch.randint(row.num_classes, [options.batch_size])
    begun = 0.0
    for step in range(options.num_warmup_batches + options.num_batches):
        if step == options.num_warmup_batches:
            if count > 1:
                distributed.barrier()
            begun = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.autocast):
            loss = functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
    if count > 1:
        distributed.barrier()
    seconds = time.perf_counter() - begun
    if count > 1:
        distributed.destroy_process_group()
    if rank == 0:
        print(peer.total_line(options, seconds), flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Trains as the flags say, in as many processes, and prints the total line."""
    flags = peer.parser("peers.torch_peer", __doc__, MODELS)
    flags.add_argument(
        "--nhwc",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="channels last in memory, which PyTorch advises for CPUs",
    )
    flags.add_argument(
        "--autocast",
        action="store_true",
        help="compute in bfloat16 where PyTorch would",
    )
    options = flags.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        arguments = (options, os.path.join(folder, "meeting"))
        if options.num_devices == 1:
            train(0, *arguments)
        else:
            multiprocessing.spawn(train, arguments, options.num_devices)


if __name__ == "__main__":
    main()
