"""The model of `--input_only`: it takes its batches and computes nothing."""

from typing import Any

import tensorflow as tf

from models.layers import Layers
from models.model import Model
from models.recipe import Recipe, Schedule


def input_reader(model: Model) -> Model:
    """A model without variables that has the inputs of another.

    Its towers wait until their features are on their device.  The loss is 0.

    Args:
      model: whose inputs, batch size and length of a training it has.
    """
    recipe = model.recipe
    return Model(
        name=model.name,
        blocks=(("input", _arrived),),
        inputs=model.inputs,
        recipe=Recipe(
            batch_size=recipe.batch_size,
            schedule=Schedule(rates=(0.0,)),
            num_epochs=recipe.num_epochs,
            optimizer="sgd",
        ),
        loss=_zero,
        metrics=_nothing,
    )


def _arrived(x: Any, nn: Layers) -> Any:
    del nn
    return tf.nest.map_structure(tf.identity, x)


def _zero(outputs: Any, labels: Any) -> tf.Tensor:
    """Float32 zeros [batch], once the outputs are there."""
    del labels
    tensors = tf.nest.flatten(outputs)
    with tf.control_dependencies(tensors):
        return tf.zeros(tensors[0].shape[:1])


def _nothing(outputs: Any, labels: Any) -> dict[str, tf.Tensor]:
    del outputs, labels
    return {}
