"""What the command lines of several benchmarks share."""

import argparse
import math
import os
import shutil
import sys

from benchmarks.lib import cases
from benchmarks.peers.systems import Places


def parser_for(name: str, description: str) -> argparse.ArgumentParser:
    """The parser of `python -m benchmarks.NAME`; its help begins with the docstring."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def positive(text: str) -> int:
    """An int of at least 1; argparse turns the error into a sentence."""
    return _at_least(1, text)


def natural(text: str) -> int:
    """An int of at least 0."""
    return _at_least(0, text)


def positives(text: str) -> list[int]:
    """The numbers of `1,2,4`, each at least 1."""
    return [positive(part) for part in text.split(",")]


def above_0(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and finite")
    return value


def below_1(text: str) -> float:
    """A number of at least 0 and less than 1."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to below 1")
    return value


def _at_least(least: int, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < least:
        raise argparse.ArgumentTypeError(f"{value} is not at least {least}")
    return value


def program(text: str) -> str:
    """The name or path of a program that can be started."""
    if not shutil.which(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no program")
    return text


def tf_cnn_scripts(text: str) -> str:
    """The folder of tf_cnn_benchmarks.py, from it or a checkout that it is part of."""
    for folder in (text, os.path.join(text, "scripts", "tf_cnn_benchmarks")):
        if os.path.isfile(os.path.join(folder, "tf_cnn_benchmarks.py")):
            return os.path.abspath(folder)
    raise argparse.ArgumentTypeError(
        f"no tf_cnn_benchmarks.py in {text!r}; give a checkout of tensorflow/benchmarks"
    )


def writable(text: str) -> str:
    """The path, or prefix of paths, of files to write; its folder must exist."""
    folder = os.path.dirname(text) or "."
    if not os.path.isdir(folder):
        raise argparse.ArgumentTypeError(f"there is no folder {folder}")
    if not os.access(folder, os.W_OK):
        raise argparse.ArgumentTypeError(f"nothing can be written in {folder}")
    return text


def one_case(text: str) -> cases.BenchmarkCase:
    """The case of `lenet:4x8`; argparse turns the error into a sentence."""
    try:
        return cases.BenchmarkCase.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def list_of_cases(text: str) -> list[cases.BenchmarkCase]:
    """The cases of `lenet:1x32,lenet:4x8`; argparse turns the error into a sentence."""
    try:
        return cases.parse_list(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_places(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say where this project and tf_cnn_benchmarks run."""
    parser.add_argument(
        "--python",
        type=program,
        default=sys.executable,
        help="the Python that runs this project and Keras",
    )
    parser.add_argument(
        "--tf_cnn_benchmarks",
        type=tf_cnn_scripts,
        metavar="PATH",
        help="a checkout of tensorflow/benchmarks, or its scripts/tf_cnn_benchmarks",
    )
    parser.add_argument(
        "--tf_cnn_python",
        type=program,
        help="a Python that has TensorFlow and tf-keras (that of --python)",
    )


def places_of(options: argparse.Namespace, torch_python: str | None = None) -> Places:
    """Where the systems are, from the flags of `add_places`."""
    return Places(
        python=options.python,
        torch_python=torch_python or options.python,
        tf_cnn_benchmarks=options.tf_cnn_benchmarks or "",
        tf_cnn_python=options.tf_cnn_python or options.python,
    )
