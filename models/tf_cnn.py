"""Networks that are others in tf_cnn_benchmarks than by their papers.

`tf_cnn_X` is what tf_cnn_benchmarks trains by `--model=X`, layer by layer, with its
settings (commit 8fb7907 of github.com/tensorflow/benchmarks).  Read from its sources:

* `resnet20` and the other networks for CIFAR-10 have no rectifier in the stem, and an
  eleventh class that no image has.
* In `resnet20_v2` the first unit, too, normalises and rectifies, after the stem has
  done so; the normalisations before units and before the classifier have no scale, and
  other constants than those between the convolutions.  So it is in `resnet50_v2`.
* `inception3` has no auxiliary head, and averages by a pool, which rounds otherwise.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from models import imagenet_resnet as papers
from models import inception, resnet
from models.layers import Layers
from models.model import Block, Images, Model

Blocks = Sequence[tuple[str, Block]]

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
    (stem, _), *rest = model.blocks
    parameters = model.num_parameters + 64 + 1  # of the eleventh class
    if version == 2:
        # The first unit's offsets; the scales of the others and of the classifier.
        parameters += 16 - (len(rest) - 1) // 3 * (16 + 32 + 64)
    return dataclasses.replace(
        model,
        name=f"tf_cnn_{model.name}",
        blocks=((stem, linear_stem), *rest) if version == 1 else _normed(model.blocks),
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


def _normed(blocks: Blocks) -> Blocks:
    """The blocks of a network of version 2 with tf_cnn_benchmarks' normalisations."""
    stem, *units, (last, block) = blocks
    options = {"first": False, **_NORM}
    return (
        stem,
        *((name, functools.partial(unit, **options)) for name, unit in units),
        (last, functools.partial(block, **_NORM)),
    )


def imagenet_resnet(depth: int) -> Model:
    """ResNet of version 2 for ImageNet.

    Args:
      depth: 50, 101 or 152.
    """
    model = papers.imagenet_resnet(depth, version=2)
    # The first unit's offsets; the scales of the others and of the classifier.
    counts = zip(papers.UNITS[depth], (256, 512, 1024, 2048))
    more = 64 - sum(count * channels for count, channels in counts)
    return dataclasses.replace(
        model,
        name=f"tf_cnn_{model.name}",
        blocks=_normed(model.blocks),
        recipe=dataclasses.replace(
            model.recipe, optimizer="sgd", weight_decay=4e-5, published=""
        ),
        num_parameters=model.num_parameters + more,
    )


def pooled_logits(x: tf.Tensor, nn: Layers) -> tf.Tensor:
    """One number per class, from square maps that a pool averages."""
    return nn.dense(nn.flatten(nn.avg_pool(x, x.shape[2], 1, "VALID")), nn.num_classes)


def inception3() -> Model:
    """Inception-v3 without its auxiliary head."""
    model = inception.inception3(head=False)
    *blocks, (last, _) = model.blocks
    return dataclasses.replace(
        model, name="tf_cnn_inception3", blocks=(*blocks, (last, pooled_logits))
    )
