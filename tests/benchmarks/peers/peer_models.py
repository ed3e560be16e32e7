"""This project's models as the benchmarks run them, for tests of the peers' models."""

import dataclasses

import models
from benchmarks.peers.systems import OUR_MODELS
from models.model import Images, Model

_DIGITS = Images(shape=(8, 8, 1), num_classes=10)


def ours(name: str) -> Model:
    """The model of a benchmark's case, with the inputs that it has there."""
    if name not in OUR_MODELS:
        return models.get(name)
    model, data_name = OUR_MODELS[name]
    return dataclasses.replace(models.get(model), inputs={"digits": _DIGITS}[data_name])
