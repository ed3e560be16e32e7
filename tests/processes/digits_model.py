"""Models of the digits with augmentation, batch norm, dropout and an EMA."""

from collections.abc import Callable

import tensorflow as tf

from models.model import Images, Model, Recipe, Schedule


def small_model() -> Model:
    """A model that learns in a few steps."""
    return _model("small", tf.nn.relu, batch_size=16, learning_rate=0.05)


def smooth_model() -> Model:
    """A model in which rounding grows little, for runs that differ in it alone.

    It has no ReLU and no max pooling: at their kinks rounding decides.
    """
    return _model("smooth", tf.nn.tanh, batch_size=8, learning_rate=0.02)


def _model(
    name: str, activation: Callable, *, batch_size: int, learning_rate: float
) -> Model:
    def block(x, nn):
        x = nn.batch_norm(nn.conv(x, 8, 3, use_bias=False), activation=activation)
        return nn.dropout(nn.flatten(x), 0.2)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return Model(
        name=name,
        blocks=(("block", block), ("logits", logits)),
        inputs=Images(
            (6, 6, 1), 10, preprocessing="cifar_tutorial", data_name="digits"
        ),
        recipe=Recipe(
            batch_size=batch_size,
            schedule=Schedule((learning_rate,)),
            num_epochs=3,
            weight_decay=1e-3,
            ema_decay=0.9,
        ),
    )
