"""How large a model is at its published image size."""

from typing import NamedTuple

import tensorflow as tf

from models.layers import Layers
from models.model import Model
from towers.compute import flops

v1 = tf.compat.v1


class Size(NamedTuple):
    """Of a model, for one image."""

    parameters: int  # trained
    multiply_adds: float  # billions
    products: int  # convolutions and matrix products


def layers_of(model: Model, *, num_classes: int) -> Layers:
    """The `nn` of a tower that trains."""
    return model.new_layers(training=True, num_classes=num_classes)


def graph(model: Model, *, num_classes: int) -> tf.Graph:
    """One image of the model's own size through the model, in training."""
    with tf.Graph().as_default() as built:
        x = tf.zeros([1, *model.inputs.shape])
        model.run(x, layers_of(model, num_classes=num_classes))
    return built


def measure(model: Model, *, num_classes: int) -> Size:
    """The model's size with as many classes as it was published for."""
    with graph(model, num_classes=num_classes).as_default() as built:
        counts = [v.shape.num_elements() for v in v1.trainable_variables()]
    types = [op.type for op in built.get_operations()]
    products = types.count("Conv2D") + types.count("MatMul")
    return Size(sum(counts), flops.of_graph(built) / 2e9, products)
