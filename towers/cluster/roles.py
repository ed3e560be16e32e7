"""The settings of tasks with different roles, from one command line of all tasks."""

import dataclasses

from flags import config, parse
from flags.problem import Problem

# Sections in which the clients of a cluster may differ: each has its own disk, devices
# and threads, and only the controller saves, evaluates and reports.  `_SHARED_FLAGS`
# are exceptions, which determine the graph or its results.
_OWN_SECTIONS = ("cluster", "devices", "evaluation", "output")
_OWN_FLAGS = ("data_dir", "datasets_num_private_threads", "pipeline_report")
_SHARED_FLAGS = (
    *("replication", "num_gpus", "xla", "xla_compile"),
    *("backup_workers", "dropped_examples"),
    *("tensor_float_32", "deterministic_ops", "batchnorm_persistent"),
)

# Flags that determine what a worker of an elastic run needs for the controller's graph:
# its data set, devices and kernels.
_WORKER_FLAGS = ("model", "data_name", "train_split", *_SHARED_FLAGS)

# Seconds between an evaluator's checks for a new checkpoint, by default.
_EVALUATOR_LOOKS = 5

# Flags about the devices of a whole cluster; an evaluator has only its own.
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
      the settings without saving, evaluations and reports, which the controller does.
    """
    return dataclasses.replace(
        settings,
        output=type(settings.output)(check_flags=settings.output.check_flags),
        evaluation=type(settings.evaluation)(),
    )


def is_controllers(problem: Problem) -> bool:
    """Whether flags contradict each other that only the controller reads.

    The value of a single flag is checked by every task.
    """
    flags = config.all_flags(config.Config)
    sections = {flags[name].section for name in problem.settings if name in flags}
    return len(problem.settings) > 1 and sections <= {"evaluation", "output"}


def agreed(settings: config.Config) -> tuple[str, ...]:
    """The flags in which all clients of a cluster must agree, as `--name=value`."""
    own_flags = {
        name
        for name, flag in config.all_flags(type(settings)).items()
        if flag.section in _OWN_SECTIONS or name in _OWN_FLAGS
    }
    return tuple(parse.arguments(settings, without=own_flags.difference(_SHARED_FLAGS)))


def agreed_by_workers(settings: config.Config) -> tuple[str, ...]:
    """The flags in which the controller and workers of an elastic run must agree."""
    others = set(config.all_flags(type(settings))).difference(_WORKER_FLAGS)
    return tuple(parse.arguments(settings, without=others))
