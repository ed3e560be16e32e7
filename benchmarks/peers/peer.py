"""What the peers' programs share: flags and the last line that they print."""

import argparse
import time
from collections.abc import Callable, Iterable

from benchmarks.lib.options import above_0, parser_for, positive


def parser(
    name: str, description: str, models: Iterable[str]
) -> argparse.ArgumentParser:
    """The flags of the peer's program `benchmarks.NAME`, which may add its own."""
    flags = parser_for(name, description)
    flags.add_argument("--model", choices=list(models), default="lenet")
    flags.add_argument("--num_devices", type=positive, default=1)
    flags.add_argument("--batch_size", type=positive, default=32, help="per device")
    flags.add_argument("--num_batches", type=positive, default=100, help="timed steps")
    flags.add_argument(
        "--num_warmup_batches",
        type=positive,
        default=10,
        help="steps before the timed ones, at least 1",
    )
    flags.add_argument("--learning_rate", type=above_0, default=1e-5)
    return flags


def input_parser(
    name: str, description: str, kinds: Iterable[str]
) -> argparse.ArgumentParser:
    """The arguments of the program `benchmarks.NAME`, which reads images.

    Args:
      name: of the program.
      description: its help.
      kinds: of preprocessing.
    """
    arguments = parser_for(name, description)
    arguments.add_argument("folder")
    arguments.add_argument("kind", choices=list(kinds))
    for count in ("batch_size", "num_warmup_batches", "num_batches"):
        arguments.add_argument(count, type=positive)
    return arguments


def input_line(arguments: argparse.Namespace, read: Callable[[], object]) -> str:
    """The line `total images/sec: ...` of a function that reads a batch of images.

    Args:
      arguments: of `input_parser`.
      read: the function.
    """
    for _ in range(arguments.num_warmup_batches):
        read()
    begun = time.perf_counter()
    for _ in range(arguments.num_batches):
        read()
    images = arguments.num_batches * arguments.batch_size
    return f"total images/sec: {images / (time.perf_counter() - begun):.2f}"


def total_line(options: argparse.Namespace, seconds: float) -> str:
    """The line `total images/sec: ...` of all devices, as in tf_cnn_benchmarks.

    Args:
      options: the flags.
      seconds: that the timed steps took.
    """
    examples = options.num_devices * options.batch_size * options.num_batches
    return f"total images/sec: {examples / seconds:.2f}"
