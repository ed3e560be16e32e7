"""Models by name, and a user's own by the function that returns it."""

import difflib
import functools
from collections.abc import Callable

from models import (
    alexnet,
    cifar10_tutorial,
    densenet,
    googlenet,
    imagenet_resnet,
    inception,
    inception4,
    lenet,
    load,
    lstm_lm,
    mlp,
    mobilenet,
    nasnet,
    ncf,
    official_resnet,
    overfeat,
    resnet,
    tf_cnn,
    transformer_lm,
    trivial,
    user_model,
    vgg,
)
from models.inputs import Images, Inputs, Pairs, Tokens
from models.model import Model, Recipe, Schedule
from models.user_errors import ChoiceError

__all__ = [
    "MODELS",
    "Images",
    "Inputs",
    "Model",
    "Pairs",
    "Recipe",
    "Schedule",
    "Tokens",
    "get",
]

# name -> builder.  A new model is one function and one row.
MODELS: dict[str, Callable[[], Model]] = {
    "trivial": trivial.trivial,
    "trivial_cifar10": trivial.trivial_cifar10,
    "mlp": mlp.mlp,
    "lenet": lenet.lenet,
    "cifar10_tutorial": cifar10_tutorial.cifar10_tutorial,
    "alexnet_cifar10": alexnet.alexnet_cifar10,
    **{
        f"resnet{depth}{suffix}": functools.partial(
            resnet.cifar_resnet, depth, version=version
        )
        for depth in (20, 32, 44, 56, 110)
        for suffix, version in (("", 1), ("_v2", 2))
    },
    **{
        f"densenet{depth}_k{growth}": functools.partial(
            densenet.densenet, depth, growth
        )
        for depth, growth in ((40, 12), (100, 12), (100, 24))
    },
    "alexnet": alexnet.alexnet,
    **{f"vgg{depth}": functools.partial(vgg.vgg, depth) for depth in (11, 16, 19)},
    "overfeat": overfeat.overfeat,
    "googlenet": googlenet.googlenet,
    "inception3": inception.inception3,
    "inception4": inception4.inception4,
    "mobilenet": mobilenet.mobilenet,
    "nasnet_cifar10": nasnet.nasnet_cifar10,
    "nasnet": functools.partial(nasnet.nasnet, nasnet.MOBILE),
    "nasnetlarge": functools.partial(nasnet.nasnet, nasnet.LARGE),
    **{
        f"resnet{depth}": functools.partial(imagenet_resnet.imagenet_resnet, depth)
        for depth in (18, 34, 50, 101, 152)
    },
    "resnet50_v1.5": functools.partial(
        imagenet_resnet.imagenet_resnet, 50, version=1.5
    ),
    **{
        f"resnet{depth}_v2": functools.partial(
            imagenet_resnet.imagenet_resnet, depth, version=2
        )
        for depth in (50, 101, 152)
    },
    **{
        f"official_resnet{depth}{suffix}": functools.partial(
            official_resnet.official_resnet, depth, version=version
        )
        for depth in (18, 34, 50, 101, 152, 200)
        for suffix, version in (("", 1), ("_v2", 2))
    },
    "tf_cnn_inception3": tf_cnn.inception3,
    **{
        f"tf_cnn_resnet{depth}_v2": functools.partial(tf_cnn.imagenet_resnet, depth)
        for depth in (50, 101, 152)
    },
    **{
        f"tf_cnn_resnet{depth}{suffix}": functools.partial(
            tf_cnn.cifar_resnet, depth, version=version
        )
        for depth in (20, 32, 44, 56, 110)
        for suffix, version in (("", 1), ("_v2", 2))
    },
    "lstm_lm": functools.partial(lstm_lm.lstm_lm, "small"),
    **{
        f"lstm_lm_{size}": functools.partial(lstm_lm.lstm_lm, size)
        for size in ("medium", "large")
    },
    "ncf": ncf.ncf,
    "transformer_lm": transformer_lm.transformer_lm,
    **{
        f"gpt2_{size}": functools.partial(transformer_lm.gpt2, size)
        for size in transformer_lm.GPT2
    },
}

# Models of tf_cnn_benchmarks that are not here.
_NOT_HERE = ("deepspeech2", "ssd300")


def get(name: str) -> Model:
    """The model of a name.

    Args:
      name: a row of `MODELS`, or `package.module:function` or
        `path/to/file.py:function` for a function of the user's that takes nothing and
        returns a `Model`.

    Raises:
      ChoiceError: there is no such model, and the sentence offers the nearest names; or
        that of the user is none.
    """
    if name in MODELS:
        return MODELS[name]()
    if ":" in name:
        return user_model.get(name)
    if name in _NOT_HERE:
        words = "this model of tf_cnn_benchmarks is not here now"
        remedy = "python -m towers.models lists those that are"
        raise ChoiceError("model", name, f"{words}; {remedy}")
    near = difflib.get_close_matches(name, MODELS, n=3)
    offer = "python -m towers.models lists them"
    if near:
        offer = f"did you mean {', '.join(near)}?"
    words = f"no such model; {offer} (one of your own is {load.FORMS})"
    raise ChoiceError("model", name, words)
