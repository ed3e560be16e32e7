"""A user's own model, from the function that returns it."""

import dataclasses
import inspect
from typing import Any

from models import load
from models.inputs import Images, Pairs, Tokens
from models.model import Model, Recipe, Schedule
from models.user_errors import ChoiceError, SignatureError, sentence

# What stands in for methods.
_FUNCTIONS = {
    Model: "blocks, loss, metrics, derived, pictures and layers",
    Recipe: "decayed",
}


def get(name: str) -> Model:
    """The model that a user's function returns.

    Args:
      name: `package.module:function` or `path/to/file.py:function`, as for
        `load.load_function`.

    Raises:
      ChoiceError: there is no such function, it fails, or its model is not valid.
    """
    builder = load.load_function("model", name)
    function_name = name.rpartition(":")[2]
    try:
        # What a decorator wraps may take something else.
        inspect.signature(builder, follow_wrapped=False).bind()
    except TypeError as error:
        words = f"{function_name} is to take nothing and return a models.Model, but it "
        raise ChoiceError("model", name, f"{words}wants more: {error}") from error
    except ValueError:  # some that are written in C do not say what they take
        pass
    try:
        model = builder()
    except Exception as error:  # a user's code may raise anything
        raise ChoiceError("model", name, sentence(error)) from error
    if not isinstance(model, Model):
        words = f"{function_name} returned {type(model).__name__}, not a models.Model"
        raise ChoiceError("model", name, words)
    try:
        _check_whole(model)
    except Exception as error:
        words = f"{function_name} returned no whole model: {sentence(error, builder)}"
        raise ChoiceError("model", name, words) from error
    return model


def _check_whole(model: Model) -> None:
    """Looks at what a class of the user's may have made of the contract's.

    Raises:
      ValueError: a field is absent or wrong, or a method is not the contract's.
    """
    Model.__post_init__(model)  # a subclass may have one that does not look
    checked: tuple[Any, ...] = (Images, Pairs, Recipe, Schedule, Tokens)
    for part in (model.inputs, model.recipe, model.recipe.schedule):
        for kind in checked:
            if isinstance(part, kind):
                kind.__post_init__(part)
    for whole, base in ((model, Model), (model.recipe, Recipe)):
        for kind in type(whole).__mro__:
            if issubclass(kind, base) and kind is not base:
                _check_subclass(kind, base)


def _check_subclass(kind: type, base: type) -> None:
    """A field may have another default; of methods not every mode calls each."""
    fields = {field.name for field in dataclasses.fields(base)}
    members = {name for name in vars(base) if not name.startswith("_")} | fields
    fields &= inspect.get_annotations(kind).keys()
    for name in sorted(members & vars(kind).keys() - fields):
        raise SignatureError(
            f"{kind.__name__}.{name} is not for a subclass to change; hand "
            f"{base.__name__}(...) functions as {_FUNCTIONS[base]}",
            vars(kind)[name],
        )
