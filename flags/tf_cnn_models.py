"""The models of tf_cnn_benchmarks: batch sizes, learning rates, and their names here.

Read from models/*.py at the commit that `flags.tf_cnn_flags` names.  There a rate
changes at a step; `epochs` are those of the sources, and `whole_steps` says how many
steps the sources count to an epoch.
"""

from collections.abc import Mapping
from typing import NamedTuple

# Images of an epoch of training, and of evaluation.
EXAMPLES = {"imagenet": (1_281_167, 50_000), "cifar10": (50_000, 10_000)}

# Outputs of the classifier, of which the first or last is no class of the data.
CLASSES = {"imagenet": 1001, "cifar10": 11}

# Data set of a model that is not here -> the model.
NOT_HERE = {"librispeech": "deepspeech2", "coco": "ssd300"}


class Rates(NamedTuple):
    """A learning rate.

    Attributes:
      rates: one more than `epochs`, at which they change.
      epochs: in the training data.
      per_examples: global batch size that the rates are for, and to which they are
        proportional; 0 if they do not depend on it.
      warmup_epochs: of a linear growth from 0.
      whole_steps: whether an epoch has as many steps as fit into it.
      split: whether the rate is divided by the number of GPUs where gradients are
        added, and `--resnet_base_lr` replaces the first.
      decay_epochs: the rate is multiplied by 0.1 each time that so many have passed; 0
        if it is not.
    """

    rates: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    per_examples: int = 0
    warmup_epochs: float = 0.0
    whole_steps: bool = False
    split: bool = False
    decay_epochs: float = 0.0


_CONSTANT = Rates((0.005,))


class TheirModel(NamedTuple):
    """A model.

    Attributes:
      here: its name in `models.MODELS`.
      batch_size: per GPU, if none is given.
      rates: the learning rate, if no flag is about it.
      settings: further settings of `towers.train`, as (name, value).
      examples: of an epoch of synthetic data here, if not those of `EXAMPLES`.
    """

    here: str
    batch_size: int = 32
    rates: Rates = _CONSTANT
    settings: tuple[tuple[str, str | bool | float], ...] = ()
    examples: int = 0


_RESNET = Rates(
    (0.128, 0.0128, 0.00128, 0.000128, 0.0000128),
    (30, 60, 80, 90),
    per_examples=256,
    warmup_epochs=5,
    split=True,
)
_OFFICIAL = Rates(
    (0.0125, 0.00125, 0.000125, 0.0000125, 0.00000125),
    (30, 60, 80, 90),
    per_examples=32,
)
_CIFAR_RESNET = Rates((0.1, 0.01, 0.001, 0.0002), (82, 123, 300), whole_steps=True)
_DENSENET = Rates((0.1, 0.01, 0.001, 0.0001), (150, 225, 300), whole_steps=True)
_ALEXNET_CIFAR = Rates((0.1,), decay_epochs=100)

# How the layers of its builder start; `ncf` and the official networks have their own.
_STARTS = (
    ("conv_initializer", "lecun_normal"),
    ("dense_initializer", "truncated_normal"),
)

# What recipes of NASNets have, and tf_cnn_benchmarks has not.
_PLAIN = (("ema_decay", 0.0), ("gradient_clip_norm", 0.0))


def _model(here: str, batch_size: int = 32, rates: Rates = _CONSTANT) -> TheirModel:
    return TheirModel(here, batch_size, rates, _STARTS)


# Data set -> name there -> the model.
MODELS: Mapping[str, Mapping[str, TheirModel]] = {
    "imagenet": {
        **{name: _model(name) for name in ("trivial", "lenet", "overfeat")},
        **{name: _model(name) for name in ("googlenet", "inception4")},
        "alexnet": _model("alexnet", 512),
        **{name: _model(name, 64) for name in ("vgg11", "vgg16", "vgg19")},
        "inception3": _model("tf_cnn_inception3"),
        "resnet50": _model("resnet50", 64, _RESNET),
        "resnet50_v1.5": TheirModel(
            "resnet50_v1.5", 64, _RESNET, (*_STARTS, ("zero_gamma", False))
        ),
        "resnet50_v2": _model("tf_cnn_resnet50_v2", 64, _RESNET),
        "resnet101": _model("resnet101", 32, _RESNET),
        "resnet101_v2": _model("tf_cnn_resnet101_v2", 32, _RESNET),
        "resnet152": _model("resnet152", 32, _RESNET),
        "resnet152_v2": _model("tf_cnn_resnet152_v2", 32, _RESNET),
        **{
            f"official_resnet{depth}{suffix}": TheirModel(
                f"official_resnet{depth}{suffix}", 128 if depth == 50 else 32, _OFFICIAL
            )
            for depth in (18, 34, 50, 101, 152, 200)
            for suffix in ("", "_v2")
        },
        "mobilenet": TheirModel("mobilenet"),
        "nasnet": TheirModel("nasnet", settings=_PLAIN),
        "nasnetlarge": TheirModel("nasnetlarge", 16, settings=_PLAIN),
        "ncf": TheirModel("ncf", 2048, Rates((0.0005,)), examples=99_308_850),
    },
    "cifar10": {
        "alexnet": _model("alexnet_cifar10", 128, _ALEXNET_CIFAR),
        "trivial": _model("trivial_cifar10"),
        **{
            f"resnet{depth}{suffix}": _model(
                f"tf_cnn_resnet{depth}{suffix}", 128, _CIFAR_RESNET
            )
            for depth in (20, 32, 44, 56, 110)
            for suffix in ("", "_v2")
        },
        **{
            name: _model(name, 64, _DENSENET)
            for name in ("densenet40_k12", "densenet100_k12", "densenet100_k24")
        },
        "nasnet": TheirModel("nasnet_cifar10", 32, Rates((0.025,)), _PLAIN),
    },
}
