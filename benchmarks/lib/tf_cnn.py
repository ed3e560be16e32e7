"""Runs the drivers of tf_cnn_benchmarks, and translates its flags."""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import models
from benchmarks.lib import process
from benchmarks.peers.systems import ENVIRONMENT, Places
from flags import config, tf_cnn_translation
from flags import parse as flags_parse
from flags.tf_cnn_translation import Translation

SYSTEM = "tf_cnn_benchmarks"
_DRIVERS = process.ROOT / "benchmarks" / "peers"


def translation_of(flags: Mapping[str, Any]) -> Translation:
    """What `towers.train` is given to do the same as tf_cnn_benchmarks with flags."""
    argv = [SYSTEM, *(f"--{name}={value}" for name, value in flags.items())]
    settings = config.flat(flags_parse.parse(argv, {}, config.TfCnnBenchmarksConfig))
    return tf_cnn_translation.translate(settings, models=models.MODELS, gpus=False)


def run_driver(
    name: str,
    arguments: Sequence[Mapping[str, Any]],
    path: str,
    *others: str,
    places: Places,
    timeout: float,
    packages: Sequence[str] = (),
) -> str:
    """Runs a driver in a process; returns its last line, which says what is missing.

    Args:
      name: of its file in benchmarks/peers.
      arguments: written to `path`, its first argument, as JSON.
      path: of a file.
      *others: more arguments.
      places: where tf_cnn_benchmarks is.
      timeout: in seconds.
      packages: folders of more packages for it.
    """
    with open(path, "w", encoding="utf-8") as file:
        json.dump(arguments, file)
    scripts = places.tf_cnn_benchmarks
    environment = {
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join([scripts, *packages]),
        "TF_USE_LEGACY_KERAS": "1",
        "TF_ENABLE_ONEDNN_OPTS": os.environ.get("TF_ENABLE_ONEDNN_OPTS", "1"),
    }
    argv = [places.tf_cnn_python, str(_DRIVERS / f"{name}.py"), path, *others]
    command = process.Command(argv, environment, scripts)
    return process.run(command, timeout=timeout).complaint
