"""The model contract: what a file in `models/` (or a user's own) hands over.

A model is a chain of named blocks.  It is single-device code: no word of devices,
towers, clusters, flags or optimizers.  Running it whole is a loop over the blocks;
cutting the list gives the stages of a pipeline.

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
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from models.examples import Images, Pairs, Tokens
from models.layers import Layers
from models.logits import cross_entropy, in_top_k

# A block maps x to x: a tensor [batch, ...] or a tuple of such tensors, float unless it
# is the first that reads tokens.  Its second argument is the `Layers` of the tower that
# runs it.
Block = Callable[[Any, Layers], Any]


def run_blocks(blocks: Sequence[tuple[str, Block]], x: Any, nn: Layers) -> Any:
    """Runs blocks one after another, each in the variable scope of its name.

    Args:
      blocks: a model's `blocks`, or a contiguous piece of them.
      x: what the first of them reads, of static shape.
      nn: their layers.

    Returns:
      What the last of them returns.

    Raises:
      ValueError: a block does not fit what it reads; the sentence names it.
    """
    for name, block in blocks:
        with tf.compat.v1.variable_scope(name):
            try:
                x = block(x, nn)
            except ValueError as error:
                shapes = tf.nest.map_structure(lambda t: tuple(t.shape), x)
                reason = str(error).strip().splitlines()[0]
                raise ValueError(f"block {name!r} on {shapes}: {reason}") from error
        if x is None:
            raise ValueError(f"block {name!r} returned None; return what it makes of x")
    return x


def softmax_cross_entropy(outputs: Any, labels: tf.Tensor) -> tf.Tensor:
    """Per-example cross entropy, in float32 whatever the compute dtype.

    Args:
      outputs: logits, float [batch, classes], or in pieces as `models.logits` has it.
      labels: int [batch], each in [0, classes).

    Returns:
      float32 [batch].
    """
    return cross_entropy(outputs, labels)


def top_k_accuracy(outputs: Any, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """Whether the label is the best, or among the five best, of each example.

    Args:
      outputs: logits, float [batch, classes], or in pieces as `models.logits` has it.
      labels: int [batch].

    Returns:
      `top_1_accuracy` and `top_5_accuracy`, float32 [batch] of zeros and ones.
    """
    return {
        f"top_{k}_accuracy": tf.cast(in_top_k(outputs, labels, k), tf.float32)
        for k in (1, 5)
    }


def nothing_derived(means: Mapping[str, float]) -> dict[str, float]:
    """No numbers beside the means."""
    del means
    return {}


def decay_all(name: str) -> bool:
    """Weight decay on every trainable variable but those of normalisation layers."""
    return "/batch_norm" not in name and "/layer_norm" not in name


@dataclasses.dataclass(frozen=True)
class Schedule:
    """A piecewise constant learning rate over epochs, as plain data.

    Attributes:
      rates: the rates, one more than `epochs`.
      epochs: where the rate changes; the rate is `rates[i]` before `epochs[i]`.
      per_examples: 0, or the global batch size that the rates are meant for: the
        rate then grows linearly with the global batch (Goyal et al. 2017).
      warmup_epochs: the rate grows linearly from 0 over these epochs.
    """

    rates: tuple[float, ...]
    epochs: tuple[float, ...] = ()
    per_examples: int = 0
    warmup_epochs: float = 0.0


@dataclasses.dataclass(frozen=True)
class Recipe:
    """How the model is trained to its published result; every field has a flag.

    Attributes:
      batch_size: examples per tower.
      schedule: the learning rate.
      num_epochs: length of a full training.
      optimizer: a row of `towers.updates.optimizer.OPTIMIZERS`.
      weight_decay: L2 factor, applied once at the update: gradient += factor x value.
      decayed: which variables (by name) the weight decay touches.
      ema_decay: 0, or the decay of the moving averages that evaluation reads.
      clip_norm: 0, or the size that the norm of all mean gradients does not exceed.
      published: the published result and its source, in words.
    """

    batch_size: int
    schedule: Schedule
    num_epochs: float = 90.0
    optimizer: str = "momentum"
    weight_decay: float = 0.0
    decayed: Callable[[str], bool] = decay_all
    ema_decay: float = 0.0
    clip_norm: float = 0.0
    published: str = ""


@dataclasses.dataclass(frozen=True)
class Model:
    """A chain of blocks with its loss, metrics, input and recipe.

    Attributes:
      name: as `--model` takes it.
      blocks: (name, block) pairs; names are unique and prefix the variables' names.
      inputs: what the first block reads, of `models.examples`.
      recipe: how it is trained.
      loss: (outputs of the last block, labels) -> float32 [batch], per example; of a
        sequence the mean over its tokens, which are as many in every example.
      metrics: (outputs, labels) -> {name: float32 [batch]}, per example.
      derived: {`loss` or metric: its mean over an evaluation} -> further numbers that
        are functions of means, as the perplexity is.
      layers: makes the `nn` of each tower; `models.layers.Layers` or one like it.
      num_parameters: trainable ones, for `inputs` as they stand here; 0: not counted.
    """

    name: str
    blocks: Sequence[tuple[str, Block]]
    inputs: Images | Tokens | Pairs
    recipe: Recipe
    loss: Callable[[Any, tf.Tensor], tf.Tensor] = softmax_cross_entropy
    metrics: Callable[[Any, tf.Tensor], dict[str, tf.Tensor]] = top_k_accuracy
    derived: Callable[[Mapping[str, float]], dict[str, float]] = nothing_derived
    layers: Callable[..., Layers] = Layers
    num_parameters: int = 0

    def __post_init__(self):
        names = [name for name, _ in self.blocks]
        if not names or len(set(names)) != len(names):
            raise ValueError(
                f"model {self.name!r} needs blocks with unique names, not {names}"
            )

    def run(self, x: Any, nn: Layers) -> Any:
        """The outputs of the whole chain; see `run_blocks`.

        Raises:
          ValueError: the softmax is over fewer classes than the data set has.
        """
        outputs = run_blocks(self.blocks, x, nn)
        if self.loss is softmax_cross_entropy and outputs.shape[-1] < nn.num_classes:
            raise ValueError(
                f"the data set has {nn.num_classes} classes, and model {self.name!r} "
                f"tells {outputs.shape[-1]} apart: give its last layer nn.num_classes "
                "outputs, or name a data set with fewer classes"
            )
        return outputs
