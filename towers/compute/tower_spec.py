"""What every tower computes, and how the model's blocks are traced for it."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import tensorflow as tf

from models.initial_values import InitialValues
from models.layers import Layers, Rows
from models.model import Model
from towers.compute import kernels
from towers.compute.sync_batch_norm import SharedStatistics, StatisticsExchanges
from towers.compute.variable_getter import VariablePlaceholders
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class TowerSpec:
    """What every tower computes; plain data, no devices.

    Attributes:
      model: what is trained.
      num_classes: of the data set.
      training: whether it has dropout, batch statistics and gradients.
      data_format: `NHWC` or `NCHW`.
      dtype: of activations.
      seed: of dropout.
      kind: `cpu` or `gpu`, on which towers run.
      compiled: whether XLA compiles the tower as a whole.
      pipeline: how the tower is cut into stages and micro-batches; None if it is not.
      joined: how many batches share batch norm's statistics.
      loss_scaled: whether gradients are those of the loss times a scale, an input.
      shards: which layers are sharded over the tower's devices; None if none is.
      trainable: regular expression in the names of the variables that are trained.
      initial_values: of the layers.
      rows: of a stateful model, of all towers; None: those of this tower's batch, which
        then begin with zeros in each step.
      predicts: whether the tower's metrics are the last block's outputs and its loss
        is 0; labels and weights are then not used.
    """

    model: Model
    num_classes: int | tuple[int, int]
    training: bool = True
    data_format: str = "NHWC"
    dtype: tf.DType = tf.float32
    seed: int = 0
    kind: str = "cpu"
    compiled: bool = False
    pipeline: Pipeline | None = None
    joined: SharedStatistics = SharedStatistics()  # noqa: RUF009 - frozen
    loss_scaled: bool = False
    shards: Shards | None = None
    trainable: str = ""
    initial_values: InitialValues = InitialValues()  # noqa: RUF009 - frozen
    rows: Rows | None = None
    predicts: bool = False


def new_layers(
    task: TowerSpec,
    batch: Mapping[str, Any],
    variables: VariablePlaceholders,
    exchanges: StatisticsExchanges,
) -> Layers:
    """The `nn` of a traced model or a part of it.

    Args:
      task: what a tower computes.
      batch: placeholders, from `nests.batch_placeholders`.
      variables: of the trace.
      exchanges: takes what batch norm exchanges.
    """
    nn = task.model.new_layers(
        training=task.training,
        num_classes=task.num_classes,
        data_format=task.data_format,
        dtype=task.dtype,
        seed=task.seed,
        first_example=batch["first"],
    )
    nn.joined = exchanges.joined(task.joined)
    nn.lookup, nn.trains = variables.lookup, variables.trains
    nn.initial_values = task.initial_values
    if task.training:
        nn.progress = batch["progress"]
    nn.rows = task.rows or nn.rows
    return nn


@contextlib.contextmanager
def running(task: TowerSpec, variables: VariablePlaceholders) -> Iterator[None]:
    """The context in which blocks are traced: variable getter and gradient kernels."""
    kind = "" if task.compiled else task.kind  # XLA has its own kernels
    with (
        v1.variable_scope("", custom_getter=variables.get, use_resource=True),
        kernels.gradients(kind=kind, dtype=task.dtype, apart=bool(task.pipeline)),
    ):
        yield
