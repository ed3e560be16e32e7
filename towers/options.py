"""The options of a train graph, besides its model, data and devices."""

import dataclasses

import tensorflow as tf

from models.initial_values import InitialValues
from models.validation import AT_LEAST_0, COUNT, check, one_of
from towers.compute import sync_batch_norm
from towers.gradients.exchange import GradientExchange
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.loss_scale import LossScaling
from towers.variable_update import between_graph
from towers.variable_update.modes import DEFAULT


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a train graph, besides its model, data, optimizer and placement.

    Attributes:
      batch_size: examples per tower and step.
      data_format: `NHWC` or `NCHW`.
      dtype: of activations, and of weights in the layers' products.
      seed: of initial values and dropout.
      variable_update: a row of `modes.VARIABLE_UPDATES`.
      exchange: the settings of gradient exchange that the mode reads.
      limit: how many examples of the stream to train on; None for all.
      epochs: length of the training, of which `nn.progress` is the share that is done.
      xla_compile: whether XLA compiles each tower as a whole.
      pipeline: how towers are cut into stages and micro-batches; None if they are not.
      accumulate_steps: batches of `batch_size` that a tower computes one after another
        in each step.
      batch_norm: the examples whose statistics batch norm takes, a row of
        `sync_batch_norm.BATCH_NORM`.
      batch_norm_averages: the towers whose batch statistics the moving averages of
        batch norm follow: the mean over `all_towers`, or the `first_tower`.
      loss_scaling: of float16; None if the loss is not scaled.
      shards: which layers are sharded over each tower's devices; None if none is.
      trainable: regular expression in the names of the variables that are trained.
      initial_values: of the layers' weights.
      class_weight: factor of the weight of each class's examples; () for none.
      forward_only: whether a step is the towers' forward pass alone, as in evaluation;
        it changes no variable but the counters.
      purpose: of the graph, see `between_graph`.
    """

    batch_size: int
    data_format: str = "NHWC"
    dtype: tf.DType = tf.float32
    seed: int = 1234
    variable_update: str = DEFAULT
    exchange: GradientExchange = GradientExchange()  # noqa: RUF009 - frozen
    limit: int | None = None
    epochs: float = 1.0
    xla_compile: bool = False
    pipeline: Pipeline | None = None
    accumulate_steps: int = 1
    batch_norm: str = "micro_batch"
    batch_norm_averages: str = "all_towers"
    loss_scaling: LossScaling | None = None
    shards: Shards | None = None
    trainable: str = ""
    initial_values: InitialValues = InitialValues()  # noqa: RUF009 - frozen
    class_weight: tuple[float, ...] = ()
    forward_only: bool = False
    purpose: int = between_graph.TRAIN

    def __post_init__(self) -> None:
        check(
            self,
            batch_size=COUNT,
            accumulate_steps=COUNT,
            epochs=AT_LEAST_0,
            data_format=one_of(("NHWC", "NCHW")),
            batch_norm=one_of(sync_batch_norm.BATCH_NORM),
            batch_norm_averages=one_of(("all_towers", "first_tower")),
        )
        if self.pipeline and self.accumulate_steps > 1:
            pieces = self.pipeline.micro_batches * self.accumulate_steps
            raise ValueError(
                f"Options.accumulate_steps is {self.accumulate_steps}, and does not go "
                "with a pipeline; micro-batches add up the same way, so write "
                f"batch_size={self.tower_batch} and "
                f"Pipeline(micro_batches={pieces})"
            )
        if self.pipeline and self.xla_compile:
            raise ValueError(
                "Options.xla_compile is True, and does not go with a pipeline, whose "
                "passes are functions of their own; leave one of them out"
            )

    @property
    def tower_batch(self) -> int:
        """Examples per tower and step."""
        return self.batch_size * self.accumulate_steps
