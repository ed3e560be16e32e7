"""One command line for all tasks of a cluster: how a task of each role reads it."""

import dataclasses
from collections.abc import Collection
from typing import Any

from flags import config, parse

# What the clients of a cluster need not agree in: each has its own disk, devices and
# threads, and only the controller saves, evaluates and reports.
_OWN_SECTIONS = ("cluster", "devices", "evaluation", "output")
_OWN_FLAGS = ("data_dir", "datasets_num_private_threads", "pipeline_report")
_SHARED_FLAGS = ("replication", "num_gpus", "xla", "xla_compile")

# Seconds between two looks of an evaluator for a checkpoint, unless it is told.
_EVALUATOR_LOOKS = 5

# What is said of the devices of all tasks, which need not hold for an evaluator's own.
_TRAINING_LAYOUT = ("variable_placement", "partition_bytes", "all_reduce_spec")


def for_evaluator(settings: config.Config) -> config.Config:
    """The settings of a task that evaluates the checkpoints of the others.

    Args:
      settings: of the command line of all tasks.

    Returns:
      those with `--eval`, an interval, and a layout that fits its own devices.
    """
    interval = settings.evaluation.eval_interval_secs or _EVALUATOR_LOOKS
    evaluation = dataclasses.replace(
        settings.evaluation, eval=True, eval_interval_secs=interval
    )
    default = type(settings.variables)()
    variables = dataclasses.replace(
        settings.variables,
        **{name: getattr(default, name) for name in _TRAINING_LAYOUT},
    )
    stages = settings.stages
    if settings.devices.num_gpus % stages.num_stages:
        stages = type(stages)(
            shard_classifier=stages.shard_classifier,
            shard_embeddings=stages.shard_embeddings,
        )
    return dataclasses.replace(
        settings, evaluation=evaluation, variables=variables, stages=stages
    )


def for_follower(settings: config.Config) -> config.Config:
    """The settings of a client that trains beside the controller.

    Args:
      settings: of the command line of all tasks.

    Returns:
      those without what only the controller does: to save, evaluate and report.
    """
    return dataclasses.replace(
        settings,
        output=type(settings.output)(check_flags=settings.output.check_flags),
        evaluation=type(settings.evaluation)(),
    )


def agreed(settings: config.Config) -> tuple[str, ...]:
    """The flags in which all clients of a cluster must agree, as `--name=value`."""
    own = {
        name
        for name, flag in config.all_flags(type(settings)).items()
        if flag.section in _OWN_SECTIONS or name in _OWN_FLAGS
    }
    return tuple(parse.arguments(settings, without=own.difference(_SHARED_FLAGS)))


def _defaults(section: Any, names: Collection[str]) -> dict[str, Any]:
    default = type(section)()
    return {name: getattr(default, name) for name in names}
