"""Checks of combinations of a plan's parts that rules on flags alone cannot see."""

import functools

from flags.config import Config
from flags.problem import wrong_setting
from models.model import Model
from towers.compute.tower import check_batch_norm
from towers.data import memory_check, nests
from towers.data.example_source import ExampleSource
from towers.data.inputs import NamedSource
from towers.data.preprocessing import PREPROCESSING
from towers.errors import memory_limits
from towers.errors.collected import CollectedErrors
from towers.evaluation import eval_settings
from towers.layout.cluster_spec import LAUNCHER, ClusterSpec
from towers.layout.placement import Placement
from towers.variable_update.modes import DEFAULT


def check_tables(config: Config, tasks: ClusterSpec) -> None:
    """Raises ValueError unless each part of a table has a ps task of its own."""
    shards, stages = config.stages.shard_embeddings, config.stages.num_stages
    mode = config.variables.variable_update
    if shards > 1 and mode != DEFAULT:
        raise wrong_setting(
            "shard_embeddings",
            shards,
            f"on a cluster rows are on ps tasks, where `variable_update={mode}` has "
            "none",
            f"write `variable_update={DEFAULT}`",
        )
    count = len(tasks.jobs.get("ps", ()))
    if shards > max(count, 1):
        remedy = f"write {count} or fewer" if count > 1 else "give it as many"
        raise wrong_setting(
            "shard_embeddings", shards, f"the cluster has {count} ps tasks", remedy
        )
    if shards > 1 and stages > 1:
        raise wrong_setting(
            "num_stages",
            stages,
            "stages keep rows on their own devices, not on ps tasks",
            "leave out `shard_embeddings`",
        )


def check_on_cluster(config: Config) -> None:
    """Raises ValueError for flags that work in one process only."""
    if (value := config.variables.local_parameter_device) != "cpu":
        raise wrong_setting(
            "local_parameter_device",
            value,
            "does not work on a cluster, whose variables are on the ps tasks",
            "leave it out",
        )


def check_data(
    config: Config,
    model: Model,
    sources: tuple[NamedSource, NamedSource | None] | None,
    *,
    where: Placement | None,
    tasks: ClusterSpec | None,
) -> None:
    """Checks flags that apply to some kinds of data only.

    Args:
      config: the settings.
      model: that is trained.
      sources: of training and evaluation; None if they cannot be had.
      where: the graph lies; None if it cannot be placed.
      tasks: of the cluster, if it is trained on one.

    Raises:
      PlanError: with everything that does not fit.
    """
    findings, norm = CollectedErrors(), config.variables.batch_norm
    findings.get(lambda: _images(config, model))
    if sources:
        source, _ = sources
        findings.get(lambda: _distortions(config, model))
        findings.get(lambda: check_batch_norm(norm, model, source))
        settings = {
            "real": source.name != "synthetic",
            "in_epochs": config.training.num_batches is None,
            "shared": tasks is not None and tasks.role != LAUNCHER,
        }
        findings.get(lambda: eval_settings.check(config.evaluation, **settings))
        if where and tasks is None:
            findings.get(lambda: _room(config, model, where.num_towers, source))
        if tasks and not tasks.between:
            findings.get(lambda: _of_one_process(source))
    findings.check()


def _of_one_process(source: NamedSource) -> None:
    """Refuses data that other tasks of an in-graph cluster cannot read."""
    if isinstance(source, ExampleSource) and source.examples.in_python:
        raise wrong_setting(
            "data_name",
            source.name,
            "Python reads it, which only the process that builds the graph can run",
            "write `replication=between_graph`, where each worker builds its own, or "
            "make the data by towers.data.from_files",
        )


def _images(config: Config, model: Model) -> None:
    """Refuses flags that only images give a meaning."""
    kind = model.inputs.kind
    for name, value in (
        ("data_format", config.model.data_format),
        ("distortions", config.data.distortions),
    ):
        fits = model.inputs.has_images if name == "data_format" else kind == "images"
        if value is not None and not fits:
            words = f"{model.name} reads {kind}, not images"
            raise wrong_setting(name, value, words, "leave it out")


def _distortions(config: Config, model: Model) -> None:
    """Refuses to distort by a preprocessing that has no distortions."""
    name = model.inputs.preprocessing
    row = PREPROCESSING.get(name)  # none where data is its own
    if config.data.distortions and not (row is None or row.distorts):
        words = f"{model.name}'s preprocessing, {name}, has no distortions"
        raise wrong_setting("distortions", True, words, "leave it out")


def _room(config: Config, model: Model, num_towers: int, source: NamedSource) -> None:
    """Checks that the batches of a step, all read by this process, fit in memory."""
    size, rounds = config.data.batch_size, config.variables.accumulate_steps
    factors = {"batch_size": size or model.recipe.batch_size, "num_gpus": num_towers}
    prefetch = config.data.datasets_prefetch_buffer_size
    check = functools.partial(
        memory_check.check,
        example_bytes=nests.num_bytes((source.features, source.labels)),
        prefetch=0 if source.name == "synthetic" else prefetch,
        limits=memory_limits.of_process(),
    )
    check(factors | {"accumulate_steps": rounds})
    if size := config.evaluation.eval_batch_size:
        check({"eval_batch_size": size, "num_gpus": num_towers})
