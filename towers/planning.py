"""Makes the parts of a run from settings: model, data, devices, optimizer, options."""

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import tensorflow as tf

from flags.config import Config
from flags.problem import SettingError, wrong_setting
from flags.sections import TrainingFlags
from models.model import Model
from models.recipe import Recipe
from towers import graph
from towers.callbacks.user_callbacks import CallbackSource, callbacks_of
from towers.checkpoints import nominal_workers
from towers.compute.precision import compute_dtype
from towers.compute.tower import check_batch_norm
from towers.data import checks, input_only, inputs, memory_check, row_order
from towers.errors import output_paths
from towers.errors.collected import CollectedErrors
from towers.evaluation import eval_settings
from towers.gradients.exchange import GradientExchange
from towers.layout import batch_sizes, placement
from towers.layout.cluster_spec import LAUNCHER, ClusterSpec
from towers.layout.gpus import Gpus
from towers.layout.stages import Pipeline
from towers.optimizers.from_recipe import update_from_recipe
from towers.optimizers.optimizer import Update
from towers.options import chosen
from towers.pipelines import cutting, recompute_choice
from towers.variable_update import between_graph
from towers.variable_update.backup_workers import BackupWorkers
from towers.variable_update.modes import mode_of, towers_per_step

# (settings, model) -> the sources of training and of evaluation.
SourceFinder = Callable[
    [Any, Any], tuple[inputs.NamedSource, inputs.NamedSource | None]
]

DEFAULT_NUM_BATCHES = 100  # of tf_cnn_benchmarks
DEFAULT_WARMUP = 10


@dataclasses.dataclass(frozen=True)
class Plan:
    """The parts of a run, ready to be put into a graph.

    Attributes:
      config: the settings.
      model: that is trained.
      placement: devices.
      source: of training batches.
      eval_source: of the evaluation split, or None where nothing is evaluated.
      update: optimizer, learning rate, weight decay.
      options: of the train graph.
      eval_batch_size: per tower; by default as many as in training, on average, as a
        small device may have no memory for the largest batch.
      num_warmup: untimed first steps.
      num_batches: timed steps, or None when `options.limit` ends the run.
      callbacks: the user's, or what makes them.
    """

    config: Config
    model: Model
    placement: placement.Placement
    source: inputs.NamedSource
    eval_source: inputs.NamedSource | None
    update: Update
    options: graph.Options
    eval_batch_size: int
    num_warmup: int
    num_batches: int | None
    callbacks: CallbackSource = ()

    @property
    def examples_per_step(self) -> int:
        """Examples that the towers that step together consume."""
        number = self.placement.num_towers
        together = towers_per_step(self.options.variable_update, number)
        return sum(self.options.tower_batches(number)[:together])

    @property
    def num_steps(self) -> int:
        """Global step at which an uninterrupted run ends."""
        if self.num_batches is not None:
            return self.num_warmup + self.num_batches
        assert self.options.limit is not None  # then it ends the run
        return -(-self.options.limit // self.examples_per_step)

    @property
    def parts(self) -> dict[str, Any]:
        """The arguments of `graph.build`."""
        names = ("model", "source", "update", "placement", "options")
        return {name: getattr(self, name) for name in names}

    def steps(self, epochs: float, begin: float = 0.0) -> int:
        """The global step at which so many epochs have passed since `begin`, rounded
        up."""
        steps = begin + epochs * self.source.num_examples / self.examples_per_step
        return math.ceil(round(steps, 6))  # 2.015 x 1000 / 5 is a little above 403


def make(
    config: Config,
    get_model: Callable[[str], Model],
    cluster: ClusterSpec | None = None,
    *,
    watched: ClusterSpec | None = None,
    find_sources: SourceFinder | None = None,
    callbacks: CallbackSource = (),
) -> Plan:
    """Finds the model, the devices and the data that settings name.

    Reading the data set opens TensorFlow's first session, which sets the threads of the
    whole process.  So a main calls `cluster.sessions.settle_process` before.

    Args:
      config: settings that `check` found nothing wrong with.
      get_model: `--model` -> the model.
      cluster: the cluster to train on; None for this process alone.
      watched: for a plan of an evaluator, the cluster whose checkpoints it evaluates,
        as far as it is known; it determines the last step.
      find_sources: a function in place of `sources_of`.
      callbacks: callbacks in place of those of `--callbacks`.

    Raises:
      PlanError: with everything that is wrong.
    """
    findings = CollectedErrors()
    model = findings.get(lambda: _model(config, get_model))
    where = findings.get(lambda: placement_of(config, cluster))
    exchange = where and findings.get(lambda: _exchange(config, where))
    find = partial(row_order.find_in_rows, find_sources or sources_of, where)
    sources = model and findings.get(lambda: find(config, model))
    if model:
        num_towers = where.num_towers if where else config.devices.num_gpus
        sizes = findings.get(lambda: _sizes(config, model, num_towers, watched)) or [1]
        fit = partial(_check_data, sizes=sizes, where=where, cluster=cluster)
        findings.get(lambda: fit(config, model, sources and sources[0]))
        mode = mode_of(config.variables)
        pipeline = findings.get(lambda: _pipeline(config, model, sizes, cluster))
        workers, of_all = nominal_workers.find_nominal(config, cluster, sum(sizes))
        per_step = of_all * towers_per_step(mode, num_towers) // num_towers
        epochs = _epochs(config, model.recipe, sources and sources[0], of_all)
        callbacks = findings.get(partial(callbacks_of, config, callbacks)) or ()
        make_update = partial(update_from_recipe, epochs=epochs)
        update = findings.get(lambda: make_update(config.optimizer, model, per_step))
    for check in output_paths.checks(config):
        findings.get(check)
    findings.get(lambda: _check_on_cluster(config, cluster))
    trains = where and watched is None and not config.evaluation.eval
    late = trains and findings.get(lambda: BackupWorkers.of(config.cluster, where))
    findings.check()
    apart = _steps_apart(mode, num_towers, watched)
    limit, warmup, num_batches = _length(config.training, model.recipe, sources[0])
    plan = Plan(
        config=config,
        model=model,
        placement=where,
        source=sources[0],
        eval_source=sources[1],
        update=update.adjustable() if callbacks else update,
        options=graph.Options(
            exchange=exchange,
            limit=limit,
            epochs=epochs,
            pipeline=pipeline,
            backup=late or None,
            nominal_workers=workers,
            **chosen(config, where.kind, sizes, images=model.inputs.has_images),
        ),
        eval_batch_size=config.evaluation.eval_batch_size or sum(sizes) // len(sizes),
        num_warmup=warmup * apart,
        num_batches=num_batches and num_batches * apart,
        callbacks=callbacks,
    )
    findings.get(lambda: between_graph.check_steps(where, plan.num_steps))
    findings.check()
    return plan


def _sizes(
    config: Config, model: Model, num_towers: int, watched: ClusterSpec | None
) -> tuple[int, ...]:
    """Examples of each tower, per round."""
    trains = watched is None and not config.evaluation.eval
    default = model.recipe.batch_size
    return batch_sizes.of_towers(config, default, num_towers, trains=trains)


def _steps_apart(mode: str, num_towers: int, watched: ClusterSpec | None) -> int:
    """Steps of asynchronous towers in place of one of synchronous ones; else 1."""
    in_training = num_towers * (len(watched.with_towers) or 1 if watched else 1)
    return in_training // towers_per_step(mode, in_training)


def _model(config: Config, get_model: Callable[[str], Model]) -> Model:
    model = get_model(config.model.model)
    row_order.check_elastic(model, config.cluster.elasticity)
    return input_only.input_reader(model) if config.training.input_only else model


def _check_data(
    config: Config,
    model: Model,
    source: inputs.NamedSource | None,
    *,
    sizes: Sequence[int],
    where: placement.Placement | None,
    cluster: ClusterSpec | None,
) -> None:
    """Checks flags that apply to some kinds of data only.

    Raises:
      PlanError: with everything that is wrong.
    """
    findings = CollectedErrors()
    get = findings.get
    get(lambda: checks.check_images(config, model))
    if source:
        norm = config.variables.batch_norm
        get(lambda: checks.check_augment(config, model))
        get(lambda: checks.check_input_only(config, source))
        weights = config.training.class_weight
        get(lambda: checks.check_class_weight(weights, model, source))
        get(lambda: check_batch_norm(norm, model, source))
        flags = {
            "real": source.name != "synthetic",
            "in_epochs": _in_epochs(config.training),
            "shared": cluster is not None and cluster.role != LAUNCHER,
        }
        get(lambda: eval_settings.check(config.evaluation, **flags))
        if where and cluster is None:
            size, count = math.ceil(sum(sizes) / len(sizes)), where.num_towers
            get(lambda: memory_check.check_batches(config, size, count, source))
        if cluster and not cluster.between:
            get(lambda: inputs.check_other_tasks(source))
    findings.check()


def _check_on_cluster(config: Config, cluster: ClusterSpec | None) -> None:
    """Raises ValueError for flags that work in one process only."""
    value = config.variables.local_parameter_device
    if cluster is not None and value != "cpu":
        raise wrong_setting(
            "local_parameter_device",
            value,
            "does not work on a cluster, whose variables are on the ps tasks",
            "leave it out",
        )


def placement_of(
    config: Config, cluster: ClusterSpec | None = None
) -> placement.Placement:
    """Which devices hold what.

    Args:
      config: the settings.
      cluster: the cluster to train on; None for this process alone.

    Raises:
      ValueError: there are no such devices, or too few.
    """
    devices, flags = config.devices, config.stages
    shards = max(flags.shard_classifier, flags.shard_embeddings)
    gpus = Gpus.of(devices)
    if cluster is not None:
        cutting.check_tables(flags, config.variables.variable_update, cluster)
        workers = len(cluster.workers)
        cutting.check_devices(devices.num_gpus, flags.num_stages, workers)
        if config.cluster.local_cluster and placement.kind_of(devices.device) == "gpu":
            visible = len(tf.config.list_physical_devices("GPU"))
            gpus.check_workers(devices.num_gpus, workers, visible)
        return placement.on_cluster(
            cluster,
            devices.num_gpus,
            kind=devices.device,
            gpus=gpus,
            num_stages=flags.num_stages,
            num_shards=flags.shard_classifier,
        )
    cutting.check_devices(devices.num_gpus, flags.num_stages)
    return placement.local(
        devices.num_gpus,
        kind=devices.device,
        parameters=config.variables.local_parameter_device,
        gpus=gpus,
        num_stages=flags.num_stages,
        # A number that is not a multiple is reported separately.
        num_shards=1 if devices.num_gpus % shards else shards,
    )


def _pipeline(
    config: Config,
    model: Model,
    sizes: Sequence[int],
    cluster: ClusterSpec | None,
) -> Pipeline | None:
    """How towers are cut into stages.

    Blocks are timed on the CPU only.  The devices of a cluster are not here, and a call
    on a GPU returns when its kernels are launched, not when they end.
    """
    flags = config.stages
    gpus = cluster is None and config.devices.device != "cpu"
    local_gpus = gpus and tf.config.list_physical_devices("GPU")
    if flags.recompute == "auto" and flags.memory_limit is None and not local_gpus:
        raise SettingError(recompute_choice.NO_LIMIT)
    unfit = [size for size in sizes if size % flags.num_micro_batches]
    batch_size = (unfit or sizes)[0]
    return cutting.plan(flags, model, batch_size, timed=not (cluster or local_gpus))


def _exchange(config: Config, where: placement.Placement) -> GradientExchange:
    """The settings of gradient exchange, checked against the devices."""
    exchange = GradientExchange.of(config.variables, compute_dtype(config.model))
    exchange.check_effects(where)
    exchange.check_devices(where)
    return exchange


def sources_of(
    config: Config, model: Model
) -> tuple[inputs.NamedSource, inputs.NamedSource | None]:
    """The source of training and that of evaluation (None if nothing is evaluated)."""
    data = config.data
    name = data.data_name or model.inputs.data_name
    if not data.data_name:
        inputs.check_default(name, data, model.name)
    request = inputs.Request.of(config, model)
    source = inputs.get(name, request, split=data.train_split, training=True)
    in_epochs = _in_epochs(config.training)
    if name == "synthetic" or not eval_settings.wanted(config.evaluation, in_epochs):
        return source, None
    split = config.evaluation.eval_split
    request = dataclasses.replace(request, vocabulary=source.vocabulary)
    return source, inputs.get(name, request, split=split, training=False)


def _in_epochs(training: TrainingFlags) -> bool:
    """Whether the length of a training is in epochs, or the recipe's."""
    return training.num_batches is None and not training.trains_nothing


def _epochs(
    config: Config, recipe: Recipe, source: inputs.NamedSource | None, of_all: int
) -> float:
    """The length of the training, in epochs; 1 if the source could not be made.

    Each tower takes `num_batches` steps, by itself or together with the others;
    `of_all` is the number of examples of one step of every tower.
    """
    if not source:
        return 1.0
    limit, warmup, num_batches = _length(config.training, recipe, source)
    if num_batches is not None:
        return (warmup + num_batches) * of_all / source.num_examples
    assert limit is not None  # then it ends the run
    return limit / source.num_examples


def _length(
    training: TrainingFlags, recipe: Recipe, source: inputs.NamedSource
) -> tuple[int | None, int, int | None]:
    """(limit in examples or None, warm-up steps, timed steps or None with a limit)."""
    num_batches, num_epochs = training.num_batches, training.num_epochs
    if num_batches is None and num_epochs is None:
        # On real data, training without a stated length is the recipe's, whole.
        real = source.name != "synthetic" and not training.trains_nothing
        num_epochs = recipe.num_epochs if real else None
        num_batches = None if real else DEFAULT_NUM_BATCHES
    warmup = training.num_warmup_batches
    limit = max(1, round(num_epochs * source.num_examples)) if num_epochs else None
    limit = limit and row_order.whole_steps(limit, source)
    return limit, DEFAULT_WARMUP if warmup is None else warmup, num_batches
