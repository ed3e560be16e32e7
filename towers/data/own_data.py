"""The user's own data, from a function: `--data_name=path/to/file.py:function`.

def data(split):  # "train", or what is evaluated: "validation"
    features, labels = ...
    return towers.data.from_arrays(features, labels)
"""

import inspect
import os

from flags.problem import wrong_setting
from models import load, user_errors
from towers.data.example_source import ExampleSource
from towers.data.examples import Examples
from towers.data.source import Request

# The split that is evaluated if no flag names one.
_EVALUATED = "validation"


def is_function(name: str) -> bool:
    """Whether `--data_name=name` names a function; `cifar10:3.0.2` and paths do not."""
    place, _, function = name.rpartition(":")
    words = place.endswith(".py") or all(map(str.isidentifier, place.split(".")))
    return words and function.isidentifier() and not os.path.exists(name)


def get(
    name: str, request: Request, split: str | None, training: bool
) -> ExampleSource:
    """The source of the examples that a user's function returns.

    Args:
      name: `path/to/file.py:function` or `package.module:function`, as for
        `models.load.load_function`.
      request: what the network needs.
      split: the function's argument; None for `train`, or for evaluation `validation`.
      training: whether examples are shuffled and augmented.

    Raises:
      ValueError: there is no such function, it fails, or it does not return examples
        that the network can read.
    """
    if request.data_dir:
        raise wrong_setting(
            "data_dir",
            request.data_dir,
            f"is where TFDS keeps its data sets, and {name} is a function",
            "leave it out",
        )
    split = split or ("train" if training else _EVALUATED)
    examples = examples_of(name, split)
    try:
        if examples.by_vocabulary and request.vocabulary:
            examples = examples.by_vocabulary(request.vocabulary)
        source = ExampleSource(examples, request, training=training)
    except ValueError as error:
        call = f"{name.rpartition(':')[2]}({split!r})"
        raise wrong_setting("data_name", name, f"{call}: {error}") from error
    source.name = os.path.basename(name)
    return source


def examples_of(name: str, split: str) -> Examples:
    """The result of a user's function for a split.

    Raises:
      ValueError: there is no such function, it fails, or it returns something else.
    """
    function = load.load_function("data_name", name)
    function_name = name.rpartition(":")[2]
    call = f"{function_name}({split!r})"
    try:
        inspect.signature(function, follow_wrapped=False).bind(split)
    except TypeError as error:
        words = f"{function_name} is to take the name of a split and return its "
        raise wrong_setting("data_name", name, f"{words}examples: {error}") from error
    except ValueError:  # some functions in C have no signature
        pass
    try:
        examples = function(split)
    except Exception as error:  # a user's code may raise anything
        words = f"{call} failed: {user_errors.sentence(error, function)}"
        raise wrong_setting("data_name", name, words) from error
    if not isinstance(examples, Examples):
        raise wrong_setting(
            "data_name",
            name,
            f"{call} returned {type(examples).__name__}",
            "return what a function of towers.data makes, as from_arrays or "
            "from_source",
        )
    return examples
