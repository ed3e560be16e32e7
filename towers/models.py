"""The main that lists models: name, trained parameters, inputs, and what each is.

python -m towers.models              all models of the project
python -m towers.models mlp my.py:net  these

Parameters are those with the number of classes of the model's own inputs.
"""

import argparse
import functools
import sys
from collections.abc import Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from models.model import Model, run_blocks
from towers.data import nests
from towers.data.examples import leaves
from towers.errors import collected

v1 = tf.compat.v1


def main(argv: Sequence[str] | None = None) -> int:
    """Lists what the command line asks for; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m towers.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="MODEL", help="as --model has it")
    names = parser.parse_args(argv).names or list(models.MODELS)
    try:
        for name in names:
            print(row(name, models.get(name)), flush=True)
    except ValueError as error:
        return collected.refuse_settings(error)
    except OSError as error:
        return collected.not_printed(error)
    return 0


def row(name: str, model: Model) -> str:
    """The line about a model."""
    specs = leaves((model.inputs.features,))
    reads = ", ".join(
        f"{leaf.removeprefix('features')} {spec.dtype.name} {list(spec.shape)}".strip()
        for leaf, spec in specs
    )
    return f"{name:20} {parameters(model):>13,}  {reads:26} {summary(name)}".rstrip()


def parameters(model: Model) -> int:
    """The number of trained parameters, with the classes of the model's inputs."""
    inputs = model.inputs
    nn = model.new_layers(training=True, num_classes=inputs.num_classes)
    with tf.Graph().as_default():
        specs = nests.batch_of(inputs.features, 2)
        features = nests.placeholders("features", specs)
        run_blocks(model.blocks, inputs.prepare(features, nn), nn)
        return sum(v.shape.num_elements() for v in v1.trainable_variables())


def summary(name: str) -> str:
    """The first line of the docstring of the function that makes a model."""
    make = models.MODELS.get(name)
    if isinstance(make, functools.partial):
        make = make.func
    return ((make and make.__doc__) or "").partition("\n")[0]


if __name__ == "__main__":
    exit_status = main()
    collected.flush()
    sys.exit(exit_status)
