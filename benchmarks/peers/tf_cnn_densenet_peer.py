"""tf_cnn_benchmarks, with its DenseNets.

    cd scripts/tf_cnn_benchmarks && python .../tf_cnn_densenet_peer.py --model=...

It makes each model with an argument `params`, which the functions for its DenseNets do
not take, so that these models end with an error.  Here they take it; all else is its
own.  Its modules have names of packages of this project, so this file is run as a
program and imports nothing from here.
"""

import functools
import importlib
import os
import runpy
import sys

_LAYERS = {"densenet40_k12": 12, "densenet100_k12": 32, "densenet100_k24": 32}


def main() -> None:
    """Replaces the functions, and runs the program."""
    sys.path[0] = os.getcwd()
    densenet = importlib.import_module("models.densenet_model")
    for name, layers in _LAYERS.items():
        growth = int(name.rpartition("_k")[2])
        make = functools.partial(
            densenet.DensenetCifar10Model, name, (layers, layers, layers), growth
        )
        setattr(densenet, f"create_{name}_model", make)
    runpy.run_path("tf_cnn_benchmarks.py", run_name="__main__")


if __name__ == "__main__":
    main()
