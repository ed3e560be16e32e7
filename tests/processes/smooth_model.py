"""A model in which rounding grows little, for runs that differ in it alone."""

import tensorflow as tf

from models.model import Images, Model, Recipe, Schedule


def smooth_model() -> Model:
    """A model of the digits with augmentation, batch norm, dropout and an EMA."""

    def block(x, nn):
        # No ReLU and no max pooling: at their kinks rounding decides.
        x = nn.batch_norm(nn.conv(x, 8, 3, use_bias=False), activation=tf.nn.tanh)
        return nn.dropout(nn.flatten(x), 0.2)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return Model(
        name="smooth",
        blocks=(("block", block), ("logits", logits)),
        inputs=Images(
            (6, 6, 1), 10, preprocessing="cifar_tutorial", data_name="digits"
        ),
        recipe=Recipe(
            batch_size=8,
            schedule=Schedule((0.02,)),
            num_epochs=3,
            weight_decay=1e-3,
            ema_decay=0.9,
        ),
    )
