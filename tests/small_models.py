"""The models of the table as small ones that a test can train."""

import dataclasses
import functools
from collections.abc import Callable, Hashable

import models
from models.model import Model

# Row of the table -> the shape of an example small enough to run in a test, large
# enough for every layer to have something to do.  Others take their own inputs'.
SHAPES = {
    "trivial": (4, 4, 3),
    "mlp": (8, 8, 1),
    "lenet": (8, 8, 1),
    "cifar10_tutorial": (8, 8, 3),
    "alexnet_cifar10": (8, 8, 3),
    "resnet20": (16, 16, 3),
    "resnet20_v2": (16, 16, 3),
    "tf_cnn_resnet20": (16, 16, 3),
    "tf_cnn_resnet20_v2": (16, 16, 3),
    "densenet40_k12": (16, 16, 3),
    "alexnet": (67, 67, 3),
    "vgg11": (32, 32, 3),
    "vgg16": (32, 32, 3),
    "overfeat": (79, 79, 3),
    "googlenet": (32, 32, 3),
    "mobilenet": (64, 64, 3),
    "nasnet_cifar10": (16, 16, 3),
    "nasnet": (80, 80, 3),
    "inception4": (75, 75, 3),
    "inception3": (107, 107, 3),
    "tf_cnn_inception3": (75, 75, 3),
    "resnet18": (64, 64, 3),
    "resnet50": (64, 64, 3),
    "resnet50_v1.5": (64, 64, 3),
    "resnet50_v2": (64, 64, 3),
    "tf_cnn_resnet50_v2": (64, 64, 3),
    "official_resnet18": (64, 64, 3),
    "official_resnet18_v2": (64, 64, 3),
    "official_resnet50": (64, 64, 3),
    "official_resnet50_v2": (64, 64, 3),
    "lstm_lm": (3,),
    "transformer_lm": (6,),
}

# Rows made of the same blocks as another, only wider.
_WIDER = [
    *("densenet100_k24", "nasnetlarge"),
    *("lstm_lm_medium", "lstm_lm_large"),
    *(f"gpt2_{size}" for size in ("124m", "355m", "774m", "1.5b")),
]


def shortened(model: Model) -> Model:
    """The model without the blocks that repeat the one before them.

    A block of another rate, as NASNet's cells have for dropping paths, repeats it, too.
    """
    blocks = [model.blocks[0]]
    for name, block in model.blocks[1:]:
        if _key(block, rates=False) != _key(blocks[-1][1], rates=False):
            blocks.append((name, block))
    return dataclasses.replace(model, blocks=blocks, num_parameters=0)


def _key(block, *, rates: bool = True):
    """Equal for blocks that do the same; without `rates`, whatever their fractions."""
    if not isinstance(block, functools.partial):
        return block
    options = block.keywords.items()
    compared = [(k, v) for k, v in options if rates or not isinstance(v, float)]
    return _key(block.func, rates=rates), block.args, tuple(sorted(compared))


def _chain(name: str):
    """Equal for models that are the same when shortened."""
    model = models.get(name)
    blocks = shortened(model).blocks
    return model.layers, tuple(_key(block) for _, block in blocks)


def _function(block):
    return _function(block.func) if isinstance(block, functools.partial) else block


def _functions(name: str):
    """Equal for models whose blocks differ only in numbers."""
    model = models.get(name)
    return model.layers, frozenset(_function(block) for _, block in model.blocks)


def _first(key: Callable[[str], Hashable]) -> list[str]:
    """The first row of the table for each key."""
    first = {key(name): name for name in reversed(models.MODELS)}
    return [name for name in models.MODELS if name in first.values()]


# Rows that are not the same when shortened; others, such as deeper networks, only
# repeat blocks.
DISTINCT = [name for name in _first(_chain) if name not in _WIDER]

# Of the rows for images those whose blocks are not other rows' with other numbers.
IMAGES = [
    name for name in _first(_functions) if models.get(name).inputs.kind == "images"
]
