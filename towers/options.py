"""The options of a train graph, besides its model, data and devices."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from flags.config import Config
from flags.sections import TrainingFlags
from models.initial_values import InitialValues
from models.validation import AT_LEAST_0, COUNT, check, one_of
from towers.compute import sync_batch_norm
from towers.compute.precision import compute_dtype
from towers.gradients.exchange import GradientExchange
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.loss_scale import LossScaling
from towers.variable_update import between_graph
from towers.variable_update.backup_workers import BackupWorkers
from towers.variable_update.modes import DEFAULT, mode_of


@dataclasses.dataclass(frozen=True)
class Options:
    """The options of a train graph, besides its model, data, optimizer and placement.

    Attributes:
      batch_size: examples per tower and step; the largest if they differ.
      tower_batch_sizes: for each tower of all clients, if they differ; else ().
      keeps_batch_sizes: whether checkpoints have them, so that a resumed run takes the
        same.
      times_towers: whether the graph adds up how long each tower takes.
      nominal_workers: of an elastic run in which the learning rate is proportional to
        the number of workers, the number for which it is given; else 0.  Checkpoints
        have it.
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
      elastic: whether the graph may be replaced by one for other workers in the middle
        of the training.
      backup: how steps go on without the slowest clients; None if they wait for all.
      purpose: of the graph, see `between_graph`.
    """

    batch_size: int
    tower_batch_sizes: tuple[int, ...] = ()
    keeps_batch_sizes: bool = False
    times_towers: bool = False
    nominal_workers: int = 0
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
    elastic: bool = False
    backup: BackupWorkers | None = None
    purpose: int = between_graph.TRAIN

    def __post_init__(self) -> None:
        check(
            self,
            batch_size=COUNT,
            tower_batch_sizes=COUNT,
            accumulate_steps=COUNT,
            epochs=AT_LEAST_0,
            data_format=one_of(("NHWC", "NCHW")),
            batch_norm=one_of(sync_batch_norm.BATCH_NORM),
            batch_norm_averages=one_of(("all_towers", "first_tower")),
        )
        if sizes := tuple(self.tower_batch_sizes):
            object.__setattr__(self, "batch_size", max(sizes))
            equal = min(sizes) == max(sizes)
            object.__setattr__(self, "tower_batch_sizes", () if equal else sizes)
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
        """Examples per tower and step; the largest if they differ."""
        return self.batch_size * self.accumulate_steps

    def kept_batch_sizes(self, num_towers: int) -> tuple[int, ...]:
        """The sizes that checkpoints have, one for each tower; () for none."""
        return self.sizes(num_towers) if self.keeps_batch_sizes else ()

    def sizes(self, num_towers: int) -> tuple[int, ...]:
        """Examples of each tower, per round of accumulation."""
        return self.tower_batch_sizes or (self.batch_size,) * num_towers

    @property
    def multiple(self) -> int:
        """What every batch size is a multiple of: the micro-batches."""
        return self.pipeline.micro_batches if self.pipeline else 1

    def tower_batches(self, num_towers: int) -> tuple[int, ...]:
        """Examples per step of each tower.

        Args:
          num_towers: of all clients.

        Raises:
          ValueError: there are sizes for another number of towers.
        """
        sizes = self.sizes(num_towers)
        if len(sizes) != num_towers:
            raise ValueError(
                f"Options.tower_batch_sizes has {len(sizes)} sizes, and there are "
                f"{num_towers} towers; give one for each"
            )
        return tuple(size * self.accumulate_steps for size in sizes)


def chosen(
    config: Config, kind: str, sizes: Sequence[int], *, images: bool
) -> dict[str, Any]:
    """The options of the train graph that are settings themselves.

    Args:
      config: the settings.
      kind: `cpu` or `gpu`.
      sizes: examples of each tower, per round.
      images: whether the model reads images, so that there is a data format.
    """
    dtype, forward_only = compute_dtype(config.model), config.training.trains_nothing
    # On an H200, resnet50 is 1.12 times as fast in NCHW in float32, 0.80 and 0.72 times
    # in bfloat16 and float16; oneDNN and Eigen are fastest in NHWC (1.6 times).
    fastest = "NCHW" if kind == "gpu" and dtype == tf.float32 else "NHWC"
    return {
        "batch_size": max(sizes),
        "tower_batch_sizes": tuple(sizes),
        "times_towers": config.variables.rebalance > 0,
        "variable_update": mode_of(config.variables),
        "data_format": config.model.data_format or (fastest if images else "NHWC"),
        "dtype": dtype,
        "seed": config.training.tf_random_seed,
        "trainable": config.optimizer.trainable or "",
        "initial_values": _initial_values(config.training),
        "class_weight": config.training.class_weight,
        "xla_compile": config.devices.xla_compile,
        "accumulate_steps": config.variables.accumulate_steps,
        "batch_norm": config.variables.batch_norm,
        "batch_norm_averages": config.variables.batch_norm_averages,
        "loss_scaling": None if forward_only else LossScaling.of(config.model),
        "forward_only": forward_only,
        "elastic": config.cluster.elastic != "false",
        "shards": Shards.of(config.stages),
    }


def _initial_values(flags: TrainingFlags) -> InitialValues:
    return InitialValues(
        flags.conv_initializer, flags.dense_initializer, flags.zero_gamma
    )
