"""The class `Model`, which files in `models/` and users' functions return.

A model is a chain of named blocks.  It is code for a single device, without devices,
towers, clusters, flags or optimizers.  To run it whole, loop over the blocks; to make
the stages of a pipeline, cut the list.

    def features(x, nn):
        x = nn.conv(x, 32, 3, activation=tf.nn.relu)
        return nn.max_pool(x, 2, 2)

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes)

    def tiny():
        return Model(
            name="tiny",
            blocks=(("features", features), ("logits", logits)),
            inputs=Images(shape=(28, 28, 1), num_classes=10),
            recipe=Recipe(batch_size=32, schedule=Schedule(rates=(0.01,))),
        )
"""

import dataclasses
import inspect
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from models import comparisons, metric_checks
from models.inputs import Classes, Images, Inputs, Pairs, Tokens
from models.layers import Layers, Rows
from models.logits import cross_entropy, in_top_k
from models.recipe import Recipe, Schedule  # noqa: F401 - model files take both here
from models.user_errors import blamed
from models.validation import (
    check,
    check_takes,
)

# Names of the arguments of a model's `layers`.
_SETTINGS = inspect.signature(Layers).parameters

# A block maps x to x: a tensor [batch, ...] or a nest (dict, tuple) of such tensors, of
# which the first gets the features.  Its second argument is the `Layers` of the tower
# that runs it.
Block = Callable[[Any, Layers], Any]


def run_blocks(blocks: Sequence[tuple[str, Block]], x: Any, nn: Layers) -> Any:
    """Runs blocks one after another, each in the variable scope of its name.

    Args:
      blocks: a model's `blocks`, or a contiguous part of them.
      x: the input of the first block, of static shape.
      nn: their layers.

    Returns:
      The outputs of the last block.

    Raises:
      ValueError: a block fails, or returns something that is not a tensor or a nest of
        tensors of static shapes; the sentence names it.
    """
    for name, block in blocks:

        def which(name: str = name, x: Any = x) -> str:
            shapes = tf.nest.map_structure(lambda t: tuple(t.shape), x)
            return f"block {name!r} on {shapes}"

        updates = _num_updates()
        scope = tf.compat.v1.variable_scope(name)
        with scope, blamed(which), comparisons.comparisons_refused():
            x = block(x, nn)
        _check_beside(name, nn, _num_updates() - updates)
        parts = tf.nest.flatten(x)
        if x is None or not parts:
            raise ValueError(f"block {name!r} returned {x}; return what it makes of x")
        for part in parts:
            _check_part(name, part)
    return x


def _num_updates() -> int:
    """How many operations a trainer of TensorFlow 1 would run beside the step's."""
    key = tf.compat.v1.GraphKeys.UPDATE_OPS
    return len(tf.compat.v1.get_default_graph().get_collection(key))


def _check_beside(name: str, nn: Layers, num_updates: int) -> None:
    """Looks at what a block leaves beside what it returns."""
    if num_updates:
        raise ValueError(
            f"block {name!r} adds to the collection 'update_ops', which is not read; "
            "moving averages follow what is appended to nn.statistics"
        )
    if nn.open_states:
        raise ValueError(
            f"block {name!r} asks for initial_state of {', '.join(nn.open_states)} and "
            "keeps none; call nn.final_state in the same scope"
        )
    here = tf.compat.v1.get_default_graph()
    if any(statistic.value.graph is not here for statistic in nn.statistics):
        raise ValueError(
            f"block {name!r} takes statistics of a batch, or keeps a state, inside a "
            "branch, a loop or a tf.function, where variables cannot follow them; put "
            "the batch norm or nn.final_state outside"
        )


def _check_part(name: str, x: Any) -> None:
    """Looks at one of the tensors that a block returned."""
    if not isinstance(x, tf.Tensor):
        raise ValueError(
            f"block {name!r} returned {type(x).__name__}; return a tensor, or a dict "
            "or tuple of tensors"
        )
    if not x.shape.is_fully_defined():
        raise ValueError(
            f"block {name!r} returned a tensor of shape {x.shape}, all of which must "
            "be known before it runs; it is not behind operations like tf.boolean_mask "
            "and tf.py_function"
        )


def softmax_cross_entropy(
    outputs: Any, labels: tf.Tensor, smoothing: float = 0.0
) -> tf.Tensor:
    """Per-example cross entropy, in float32 whatever the compute dtype.

    Args:
      outputs: logits, float [batch, classes], or sharded (see `models.logits`).
      labels: int [batch], each in [0, classes).
      smoothing: as of `models.logits.cross_entropy`.

    Returns:
      float32 [batch].
    """
    return cross_entropy(outputs, labels, smoothing)


def top_k_accuracy(outputs: Any, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """Whether the label is the best, or among the five best, of each example.

    Args:
      outputs: logits, float [batch, classes], or sharded (see `models.logits`).
      labels: int [batch].

    Returns:
      `top_1_accuracy` and `top_5_accuracy`, float32 [batch] of zeros and ones.
    """
    return {
        f"top_{k}_accuracy": tf.cast(in_top_k(outputs, labels, k), tf.float32)
        for k in (1, 5)
    }


def nothing_derived(values: Mapping[str, Any]) -> dict[str, Any]:
    """No further numbers."""
    del values
    return {}


def no_pictures(outputs: Any, labels: Any) -> dict[str, tf.Tensor]:
    """No pictures of the examples."""
    del outputs, labels
    return {}


@dataclasses.dataclass(frozen=True)
class Model:
    """A chain of blocks with its loss, metrics, input and recipe.

    Attributes:
      name: as in `--model`.
      blocks: (name, block) pairs; names are unique and prefix the variables' names.
      inputs: of the first block, a class of `models.inputs`.
      recipe: how it is trained.
      loss: (outputs of the last block, labels) -> float32 [batch], per example; of a
        sequence the mean over its tokens, which are as many in every example.
      metrics: (outputs, labels) -> {name: float32 [batch]}, per example.  A wider
        metric, float32 or float64 [batch, ...], is for evaluation only.
      derived: {`loss` or metric: its mean over an evaluation, or the sum (a float64
        array [...]) of a wider metric} -> further numbers, as the perplexity is, and
        pictures, uint8 arrays [height, width, 1 or 3].
      pictures: (outputs, labels) -> {name: [batch, height, width, 1 or 3]}, uint8 or
        floats in [0, 1]: of the first examples of each evaluation, shown in a grid.
      stateful: whether blocks pass a state from step to step (`nn.initial_state`); then
        examples are read in their own order, in as many rows as a step has examples.
      layers: makes the `nn` of each tower; `models.layers.Layers` or a subclass.
      num_parameters: number of trainable parameters for these `inputs`; 0 if unknown.
    """

    name: str
    blocks: Sequence[tuple[str, Block]]
    inputs: Inputs | Images | Tokens | Pairs
    recipe: Recipe
    loss: Callable[[Any, Any], tf.Tensor] = softmax_cross_entropy
    metrics: Callable[[Any, Any], dict[str, tf.Tensor]] = top_k_accuracy
    derived: Callable[[Mapping[str, Any]], dict[str, Any]] = nothing_derived
    pictures: Callable[[Any, Any], dict[str, tf.Tensor]] = no_pictures
    layers: Callable[..., Layers] = Layers
    num_parameters: int = 0
    stateful: bool = False

    def __post_init__(self) -> None:
        check(self)
        if not self.name.isprintable() or not self.name:
            raise ValueError(f"Model.name is {self.name!r}, and must be one line")
        names = [name for name, _ in self.blocks]
        if not names or len(set(names)) != len(names):
            raise ValueError(
                f"model {self.name!r} needs blocks with unique names, not {names}"
            )
        for name in names:
            if not metric_checks.NAME.fullmatch(name):
                raise ValueError(
                    f"model {self.name!r}: {name!r} cannot be the name of a block; "
                    "write letters, digits and _, and begin with no _"
                )
        self._check_functions()

    def _check_functions(self) -> None:
        """Checks the functions' arguments now, as some are called much later."""
        mine = f"of model {self.name!r}"
        for name, block in self.blocks:
            check_takes(f"block {name!r} {mine}", block, "x", "nn")
        for name in ("loss", "metrics", "pictures"):
            check_takes(f"{name} {mine}", getattr(self, name), "outputs", "labels")
        check_takes(f"derived {mine}", self.derived, "values")
        check_takes(f"layers {mine}", self.layers, **_SETTINGS)

    def new_layers(self, **settings: Any) -> Layers:
        """The `nn` of a tower.

        Args:
          **settings: those of `models.layers.Layers`.

        Raises:
          ValueError: `layers` fails, or makes something else.
        """
        with blamed(lambda: f"layers of model {self.name!r}", self.layers):
            nn = self.layers(**settings)
            initialized = vars(Layers(**settings)).keys() <= set(dir(nn))
            if not isinstance(nn, Layers) or not initialized:
                raise ValueError(
                    f"made {type(nn).__name__}; make a models.layers.Layers, or of "
                    "a subclass that calls super().__init__"
                )
        # Until a tower says otherwise, each step is an epoch of the batch's rows.
        nn.rows = Rows(0, 1) if self.stateful else None
        return nn

    def run(self, x: Any, nn: Layers) -> Any:
        """The outputs of the whole chain; see `run_blocks`."""
        return run_blocks(self.blocks, x, nn)

    def measure(
        self, outputs: Any, labels: Any, *, num_classes: Classes, batch_size: int
    ) -> dict[str, tf.Tensor]:
        """`loss` and the metrics of each example.

        Args:
          outputs: of the last block.
          labels: nest of tensors [batch, ...].
          num_classes: of the data set.
          batch_size: examples in the batch.

        Returns:
          float32 [batch] each; wider metrics [batch, ...].

        Raises:
          ValueError: labels or classes are not those that the model is for; loss or
            metrics fail, or are not numbers of each example.
        """
        self.inputs.check_fit("labels", labels)
        if self.loss is softmax_cross_entropy:
            self._check_logits(outputs, num_classes, batch_size)
        of_loss = blamed(lambda: f"the loss of model {self.name!r}", self.loss)
        with of_loss, comparisons.comparisons_refused():
            values = {"loss": self.loss(outputs, labels)}
        for name, value in self._named("metrics", outputs, labels).items():
            values[name] = value
        for name, value in values.items():
            metric_checks.check_value(self.name, name, value, batch_size)
        return values

    def show(
        self, outputs: Any, labels: Any, *, batch_size: int
    ) -> dict[str, tf.Tensor]:
        """The pictures of each example.

        Args:
          outputs: of the last block.
          labels: nest of tensors [batch, ...].
          batch_size: examples in the batch.

        Returns:
          float32 [batch, height, width, 1 or 3] each, from 0 (black) to 1.

        Raises:
          ValueError: `pictures` fails, or returns something else than pictures.
        """
        pictures = self._named("pictures", outputs, labels)
        for name, images in pictures.items():
            metric_checks.check_picture(self.name, name, images, batch_size)
        return {
            name: tf.image.convert_image_dtype(images, tf.float32)
            for name, images in pictures.items()
        }

    def with_derived(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The means and sums of an evaluation and what is derived from them.

        Raises:
          ValueError: `derived` fails, or returns neither numbers nor pictures.
        """
        with blamed(lambda: f"what model {self.name!r} derives from means"):
            derived = {
                str(name): metric_checks.number_or_picture(name, value)
                for name, value in self.derived(values).items()
            }
        return {**values, **derived}

    def _named(self, function: str, outputs: Any, labels: Any) -> Mapping[str, Any]:
        """What `metrics` or `pictures` returns."""
        call = getattr(self, function)
        of_call = blamed(lambda: f"the {function} of model {self.name!r}", call)
        with of_call, comparisons.comparisons_refused():
            values = call(outputs, labels)
        if not isinstance(values, Mapping) or "loss" in values:
            raise ValueError(
                f"the {function} of model {self.name!r} must be a dict from names to "
                f"tensors, none of them loss, not {reprlib.repr(values)}"
            )
        return values

    def _check_logits(
        self, outputs: Any, num_classes: Classes, batch_size: int
    ) -> None:
        shape: Any = getattr(outputs, "shape", ())
        if len(shape) != 2 or not isinstance(num_classes, int):
            raise ValueError(
                f"model {self.name!r} returns {shape or type(outputs).__name__}, and "
                "its loss takes [batch, classes]; return that, or give it another loss"
            )
        if shape[0] != batch_size:
            raise ValueError(
                f"model {self.name!r} returns {shape} from its last block, "
                f"{self.blocks[-1][0]!r}, on a batch of {batch_size}; return one row "
                "of logits for each example"
            )
        if shape[-1] < num_classes:
            raise ValueError(
                f"the data set has {num_classes} classes, and model {self.name!r} "
                f"tells {shape[-1]} apart: give its last layer nn.num_classes "
                "outputs, or name a data set with fewer classes"
            )
