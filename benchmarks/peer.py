"""What the peers' programs have in common: flags, and the line at the end."""

import argparse
from collections.abc import Iterable


def parser(description: str, models: Iterable[str]) -> argparse.ArgumentParser:
    """The flags of a peer's program, to which it may add its own."""
    flags = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    flags.add_argument("--model", choices=list(models), default="lenet")
    flags.add_argument("--num_devices", type=int, default=1)
    flags.add_argument("--batch_size", type=int, default=32, help="per device")
    flags.add_argument("--num_batches", type=int, default=100, help="timed steps")
    flags.add_argument(
        "--num_warmup_batches", type=int, default=10, help="before them, at least 1"
    )
    flags.add_argument("--learning_rate", type=float, default=1e-5)
    return flags


def total_line(options: argparse.Namespace, seconds: float) -> str:
    """tf_cnn_benchmarks' line: what all devices did in the timed steps.

    Args:
      options: the flags.
      seconds: that the timed steps took.
    """
    examples = options.num_devices * options.batch_size * options.num_batches
    return f"total images/sec: {examples / seconds:.2f}"
