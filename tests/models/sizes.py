"""Published sizes of the models for images."""

import tensorflow as tf

from models.layers import Layers
from models.model import Model, run_blocks

# Row of the table -> multiply-adds of one image, in billions.  They are torchvision's
# `_ops` for vgg, inception3, mobilenet, resnet18, resnet34 and version 1.5; of the
# table of models of osmr/imgclsmob, which counts some of the batch norm, for the other
# resnets of ImageNet and for inception4; those of papers on pruning for resnet20, -56
# and -110; those of section 3.2 of its paper for overfeat.  The others are counted
# layer by layer.
MULTIPLY_ADDS = {
    "trivial": 0.00426,
    "trivial_cifar10": 0.0000481,
    "mlp": 0.0001988,
    "lenet": 0.01404,
    "cifar10_tutorial": 0.01847,
    "alexnet_cifar10": 0.03278,
    "resnet20": 0.04055,
    "resnet32": 0.06886,
    "resnet44": 0.09717,
    "resnet56": 0.12549,
    "resnet110": 0.25289,
    "densenet40_k12": 0.2648,
    "densenet100_k12": 1.7695,
    "densenet100_k24": 6.889,
    "alexnet": 0.8388,
    "vgg11": 7.609,
    "vgg16": 15.47,
    "vgg19": 19.632,
    "overfeat": 2.81,
    "googlenet": 1.58,
    "inception3": 5.713,
    "mobilenet": 0.301,
    # With the auxiliary head.
    "nasnet_cifar10": 0.5443 + 0.0024,
    "nasnet": 0.564 + 0.0034,
    "nasnetlarge": 23.8 + 0.0136,
    "inception4": 12.305,
    "resnet18": 1.814,
    "resnet34": 3.664,
    "resnet50": 3.869,
    "resnet101": 7.587,
    "resnet152": 11.305,
    "resnet50_v1.5": 4.089,
    # The projection of the first stage adds 0.013 billion.
    "official_resnet18": 1.814 + 0.013,
    "official_resnet34": 3.664 + 0.013,
    "official_resnet50": 4.089,
    "official_resnet101": 7.801,
    "official_resnet152": 11.514,
    "official_resnet200": 15.04,
}


def multiply_adds(name: str) -> float:
    """Of a row of the table, in billions; tf_cnn_benchmarks' and version 2's alike."""
    return MULTIPLY_ADDS[name.removeprefix("tf_cnn_").removesuffix("_v2")]


def layers_of(model: Model, *, num_classes: int) -> Layers:
    """The `nn` of a tower that trains."""
    return model.new_layers(training=True, num_classes=num_classes)


def graph(model: Model, *, num_classes: int) -> tf.Graph:
    """One image of the model's own size through the model, in training."""
    with tf.Graph().as_default() as built:
        x = tf.zeros([1, *model.inputs.shape])
        model.run(x, layers_of(model, num_classes=num_classes))
    return built


def block_shapes(model: Model, *, num_classes: int) -> dict[str, tuple[int, ...]]:
    """Block -> the shape of one image, or the first part of it, after that block."""
    shapes = {}
    with tf.Graph().as_default():
        nn = layers_of(model, num_classes=num_classes)
        x = tf.zeros([1, *model.inputs.shape])
        for block in model.blocks:
            x = run_blocks([block], x, nn)
            shapes[block[0]] = tuple(tf.nest.flatten(x)[0].shape[1:])
    return shapes
