"""Networks that are others in tf_cnn_benchmarks than by their papers.

`tf_cnn_X` is what tf_cnn_benchmarks trains by `--model=X`, layer by layer, with its
settings (commit 8fb7907 of github.com/tensorflow/benchmarks).  Read from its sources:

* `resnet20` and the other networks for CIFAR-10 have no rectifier in the stem, and an
  eleventh class that no image has.
* In `resnet20_v2` the first unit, too, normalises and rectifies, after the stem has
  done so; the normalisations before units and before the classifier have no scale, and
  other constants than those between the convolutions.
* `inception3` has no auxiliary head.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from models import inception, resnet
from models.layers import Layers
from models.model import Images, Model

# Of the batch norm before a unit and before the classifier, in version 2.
_NORM: Mapping[str, Any] = {"momentum": 0.999, "epsilon": 0.001, "scale": False}


def linear_stem(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """32 x 32 -> 32 x 32, without a rectifier."""
    return nn.batch_norm(nn.conv(x, 16, 3, use_bias=False))


def cifar_resnet(depth: int, *, version: int = 1) -> Model:
    """ResNet for CIFAR-10.

    Args:
      depth: 20, 32, 44, 56 or 110.
      version: 1, or 2 with pre-activated units.
    """
    model = resnet.cifar_resnet(depth, version=version)
    assert isinstance(model.inputs, Images)
    (stem, stem_block), *units, (last, last_block) = model.blocks
    parameters = model.num_parameters + 64 + 1  # of the eleventh class
    if version == 1:
        stem_block = linear_stem
    else:
        options = {"first": False, **_NORM}
        units = [(name, functools.partial(unit, **options)) for name, unit in units]
        last_block = functools.partial(last_block, **_NORM)
        # The first unit's offsets; the scales of the others and of the classifier.
        parameters += 16 - len(units) // 3 * (16 + 32 + 64)
    return dataclasses.replace(
        model,
        name=f"tf_cnn_{model.name}",
        blocks=((stem, stem_block), *units, (last, last_block)),
        inputs=dataclasses.replace(model.inputs, num_classes=11),
        recipe=dataclasses.replace(
            model.recipe,
            schedule=dataclasses.replace(model.recipe.schedule, warmup_epochs=0),
            optimizer="sgd",
            weight_decay=4e-5,
            published="",
        ),
        num_parameters=parameters,
    )


def inception3() -> Model:
    """Inception-v3 without its auxiliary head."""
    return dataclasses.replace(
        inception.inception3(head=False), name="tf_cnn_inception3"
    )
