"""Small models that train on data sets in files, for `--model=` and tests."""

import dataclasses

import tensorflow as tf

from models import language
from models.inputs import Tokens
from models.model import Images, Model, Recipe, Schedule
from models.sequences import SequenceLayers

_RECIPE = Recipe(batch_size=12, schedule=Schedule((0.1,)), num_epochs=2)

# Folder of `make_imagenet` -> the model, and settings; without a `data_name` it is the
# folder, else that is `data_dir`.
LAYOUTS: dict[str, tuple[str, dict[str, str]]] = {
    "tfrecords": ("images", {"data_name": "imagenet"}),
    "folders": ("images", {}),
    "tfds": ("images", {"data_name": "imagenet2012"}),
    "cifar10": ("images", {"input_preprocessor": "imagenet"}),
    "cifar100_binary": ("images", {"input_preprocessor": "tf_cnn_benchmarks"}),
    "ptb": ("tokens", {}),
    "lm1b": ("tokens", {}),
    "movielens/ml-1m": ("ncf", {}),
}


def settings_of(layout: str, root: str) -> tuple[str, dict[str, str]]:
    """The model of a layout, and the settings that name the data.

    Args:
      layout: a row of `LAYOUTS`.
      root: where `make_imagenet` has written.
    """
    model, settings = LAYOUTS[layout]
    key = "data_dir" if "data_name" in settings else "data_name"
    return model, {**settings, key: f"{root}/{layout}"}


def images() -> Model:
    """Dense layers, without batch norm, which depends on the number of towers."""

    def hidden(x, nn):
        return nn.dropout(nn.dense(nn.flatten(x), 8, activation=tf.nn.relu), 0.5)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return Model(
        name="images",
        blocks=(("hidden", hidden), ("logits", logits)),
        inputs=Images((16, 16, 3), 1000, preprocessing="tf_cnn_benchmarks"),
        recipe=_RECIPE,
    )


def tokens() -> Model:
    """Predicts a word from the one before it."""

    def embedding(x, nn):
        start = tf.compat.v1.random_normal_initializer(stddev=0.5)
        return nn.embedding(x, nn.variable("words", [nn.num_classes, 6], start))

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return Model(
        name="tokens",
        blocks=(("embedding", embedding), ("logits", logits)),
        inputs=Tokens(length=5, num_classes=20, preprocessing="words"),
        recipe=_RECIPE,
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_token,
        layers=SequenceLayers,
    )


def recurrent() -> Model:
    """Predicts a word from all before it in its row; its cells keep their state."""
    model = tokens()
    embedding, logits = model.blocks

    def cells(x, nn):
        start = tf.compat.v1.random_uniform_initializer(-0.5, 0.5)
        return nn.lstm(x, 4, initializer=start, stateful=True)

    blocks = (embedding, ("cells", cells), logits)
    return dataclasses.replace(model, name="recurrent", blocks=blocks, stateful=True)
