"""Checks of settings about data against the model and the data."""

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from flags.config import Config
from flags.images import ImageFlags
from flags.problem import wrong_setting
from models.model import Model
from towers.data import preprocessing
from towers.data.source import classes


def check_images(config: Config, model: Model) -> None:
    """Refuses flags about images if the model does not read images.

    Args:
      config: the settings.
      model: the model.

    Raises:
      ValueError: a flag is set, and the model does not read images.
    """
    kind = model.inputs.kind
    images = vars(config.images)
    defaults = {name: getattr(ImageFlags, name) for name in images}
    changed = {name: images[name] for name in images if images[name] != defaults[name]}
    if config.data.augment is not None:
        changed = {"augment": config.data.augment, **changed}
    if kind == "images":
        changed = {}
    if config.model.data_format is not None and not model.inputs.has_images:
        changed = {"data_format": config.model.data_format, **changed}
    for name, value in changed.items():
        words = f"{model.name} reads {kind}, not images"
        raise wrong_setting(name, value, words, "leave it out")


def check_augment(config: Config, model: Model) -> None:
    """Refuses augmentation if the preprocessing has none.

    Args:
      config: the settings.
      model: the model.

    Raises:
      ValueError: it has none.
    """
    chosen, augment = config.images.input_preprocessor, config.data.augment
    name = chosen or model.inputs.preprocessing
    row = preprocessing.PREPROCESSING.get(name)  # None for a user's own data
    if augment and not (row is None or row.distorts):
        whose = "the" if chosen else f"{model.name}'s"
        words = f"{whose} preprocessing, {name}, has no augmentation"
        raise wrong_setting("augment", True, words, "leave it out")


def check_input_only(config: Config, source: Any) -> None:
    """Refuses to time the reading of data that are not read.

    Args:
      config: the settings.
      source: of training.

    Raises:
      ValueError: the data are synthetic.
    """
    if config.training.input_only and source.name == "synthetic":
        words = "synthetic data are not read"
        raise wrong_setting("input_only", True, words, "name a data set: `data_name`")


def check_class_weight(
    class_weight: Sequence[float], model: Model, source: Any
) -> None:
    """Refuses weights of classes that do not fit the data.

    Args:
      class_weight: the flag.
      model: the model.
      source: of training.

    Raises:
      ValueError: labels are not classes, the number of classes is another, or all
        weights are 0.
    """
    if not class_weight:
        return
    number, labels, problem = classes(source, model), source.labels, ""
    remedy = "leave it out"
    one_class = isinstance(labels, tf.TensorSpec) and labels.dtype.is_integer
    if not one_class or labels.shape.rank or not isinstance(number, int):
        problem = "needs labels that are one class, an integer, for each example"
        remedy = "give the examples weights instead"
    elif len(class_weight) != number:
        problem = f"has {len(class_weight)} weights, and the data {number} classes"
        remedy = "write one for each class"
    elif not any(class_weight):
        problem = "is 0 for each class, so nothing could be learnt"
    if problem:
        raise wrong_setting("class_weight", tuple(class_weight), problem, remedy)
