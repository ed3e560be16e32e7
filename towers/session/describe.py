"""The description of a run: the printed header, and the facts for the log."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tensorflow as tf

from towers.compute.copy_tower import at_a_time
from towers.compute.sufficient_factors import Factors
from towers.compute.sync_batch_norm import BATCH_NORM
from towers.evaluation.eval_settings import during_training
from towers.graph import Options, TrainGraph
from towers.layout import parts, processor
from towers.layout.gpus import plural
from towers.layout.parts import Parts
from towers.layout.placement import Placement
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import RECOMPUTE, Pipeline
from towers.pipelines import recompute
from towers.pipelines.pipeline import PipelineTemplate
from towers.pipelines.tower_copies import AnyTemplate
from towers.planning import Plan
from towers.variable_update.base import VariableUpdate

v1 = tf.compat.v1

# Rows that say nothing about a forward pass.
_OF_TRAINING = (
    *("Trainable", "Rate factors", "Update", "Reduction", "Recompute"),
    "Weight decay",
)
_OF_NETWORKS = ("Optimizer", "Parameters")

# `--elastic` -> what changes with the workers in batch norm's statistics, where they
# are those of each tower, and where of all towers.
_CHANGES = {
    "keep_batch": ("; a tower's batch changes with the workers", ""),
    "scale_lr": ("", "; their number changes with the workers"),
}


def header(plan: Plan, built: TrainGraph) -> list[tuple[str, str]]:
    """(title, text) of each row: those of tf_cnn_benchmarks, then others."""
    rows = _rows(plan, built)
    if not plan.options.forward_only:
        return rows
    networks = _OF_NETWORKS if plan.config.training.input_only else ()
    if built.mode.constants:
        rows.append(("Frozen", "the variables are constants of the graph"))
    return [row for row in rows if row[0] not in (*_OF_TRAINING, *networks)]


def _rows(plan: Plan, built: TrainGraph) -> list[tuple[str, str]]:
    """The rows of a training."""
    steps = plan.num_steps if plan.num_batches is None else plan.num_batches
    examples = plan.options.limit or steps * plan.examples_per_step
    epochs = examples / plan.source.num_examples
    num_towers = plan.placement.num_towers
    spec = built.mode.all_reduce_spec
    reduction = f"mean over the examples of {plural(num_towers, 'tower')}"
    if (factor := plan.update.gradient_factor) != 1:
        reduction += f", times {factor:g}"
    images = plan.model.inputs.has_images
    words = getattr(plan.source, "resuming", "")
    rows = [
        ("Model", plan.model.name),
        ("Dataset", plan.source.name),
        *([("Resuming", words)] if words else []),
        ("Mode", _mode(plan)),
        ("SingleSess", str(plan.placement.clients == 1)),
        (
            "Batch size",
            f"{sum(plan.options.tower_batches(num_towers))} global\n"
            + _per_device(plan.options),
        ),
        ("Num batches", str(steps)),
        ("Num epochs", f"{epochs:.2f}"),
        ("Devices", _devices(plan.placement)),
        *_at_a_time(built),
        *_clients(plan.placement),
        *_backup(plan.options),
        *_elastic(plan),
        ("NUMA bind", "False"),
        *([("Data format", plan.options.data_format)] if images else []),
        ("Compute dtype", _compute_dtype(plan)),
        ("Optimizer", plan.update.optimizer),
        ("Variables", plan.options.variable_update),
        *([("AllReduce", spec)] if spec else []),
        ("Parameters", f"{built.template.parameters} on {_devices_of(built)}"),
        *_trained(plan, built),
        ("Update", built.mode.description),
        ("Reduction", reduction if built.mode.joined else "none"),
        *_factors(built),
    ]
    if not built.mode.together:
        rows += _asynchronous(plan)
    rows += _pipeline(plan.options.pipeline, built.template)
    rows += _shards(built.mode.wholes)
    if any(not rule.is_state for rule, _ in built.template.statistics):
        joined = built.mode.joined and plan.options.batch_norm_averages != "first_tower"
        words = _batch_norm(plan.options, joined=joined)
        changes = _CHANGES.get(plan.config.cluster.elasticity, ("",) * 2)
        changing = changes[BATCH_NORM[plan.options.batch_norm].towers]
        rows.append(("Batch norm", words + changing))
    if scaling := plan.options.loss_scaling:
        how = f"doubled every {scaling.grow_every} good steps, halved at a bad one"
        how = how if scaling.grow_every else "fixed"
        rows.append(("Loss scale", f"{scaling.initial:g}, {how}"))
    if plan.update.weight_decay:
        decay, where = plan.update.weight_decay, plan.update.place.words
        rows.append(("Weight decay", f"{decay:g}, {where}"))
    return rows


def _elastic(plan: Plan) -> list[tuple[str, str]]:
    """What happens when workers are lost or join, if the run is elastic."""
    words = {
        "keep_towers": "the towers of lost workers move to others",
        "keep_batch": "the batch of a step is divided among the workers that are there",
        "scale_lr": "the batch of a tower stays; the learning rate is that of "
        f"{plural(plan.options.nominal_workers, 'worker')}, and is proportional to "
        "their number",
    }
    kind = plan.config.cluster.elasticity
    return [("Elastic", words[kind])] if kind in words else []


def _mode(plan: Plan) -> str:
    """What a step does, in tf_cnn_benchmarks' words."""
    if plan.options.forward_only:
        alone = plan.config.training.input_only
        return "input only" if alone else "forward only"
    evaluates = during_training(plan.config.evaluation)
    return "training + evaluation" if evaluates else "training"


def _trained(plan: Plan, built: TrainGraph) -> list[tuple[str, str]]:
    """What is trained and at which rates, if that is not all at one."""
    mode, rows = built.mode, []
    trained = dict.fromkeys(map(parts.whole_name, built.template.trainable))
    if plan.options.trainable:
        followed = {rule.variable for rule, _ in built.template.statistics}
        names = dict.fromkeys(map(parts.whole_name, mode.variables))
        frozen = [name for name in names if name not in {*trained, *followed}]
        words = f"{_counted(mode, trained)}; frozen: {_counted(mode, frozen)}"
        rows.append(("Trainable", words))
    factors = plan.update.learning_rate_factors
    lines = [
        f"{factors[regex]:g} for {regex}: {_counted(mode, names)}"
        for regex, names in plan.update.factors(trained).items()
    ]
    return [*rows, ("Rate factors", "\n".join(lines))] if lines else rows


def _counted(mode: VariableUpdate, names: Collection[str]) -> str:
    """How many variables, and their parameters together."""
    size = sum(mode.held(name).shape.num_elements() for name in names)
    return f"{plural(len(names), 'variable')}, {plural(size, 'parameter')}"


def _compute_dtype(plan: Plan) -> str:
    """The compute dtype, and whether it is slow on this CPU."""
    dtype = plan.options.dtype
    words = f"{dtype.name}, variables float32"
    if plan.placement.kind == "gpu" and dtype == tf.float32:
        full = not plan.config.devices.tensor_float_32
        words = f"float32, products {'float32' if full else 'TensorFloat-32'}"
    if plan.placement.kind == "cpu" and processor.lacks_kernels(dtype.name):
        words += "\nconvolutions in it are slow: this CPU has no instructions for it"
    return words


def _asynchronous(plan: Plan) -> list[tuple[str, str]]:
    """The learning rate of an asynchronous update, and the bound on its staleness."""
    exchange = plan.options.exchange
    rate = f"for an update by {plan.options.tower_batch} examples"
    if exchange.staleness_lr:
        rate += ", divided by its staleness where that is above 1"
    place = f"{plan.placement.num_towers} updates take the place of one synchronous"
    bound, staleness = exchange.max_staleness, "no bound"
    if bound is not None:
        staleness = f"at most {plural(bound, 'update')}"
    return [
        ("Learning rate", f"{rate}; {place} step"),
        ("Staleness", staleness),
    ]


def _backup(options: Options) -> list[tuple[str, str]]:
    """How many workers a step does not wait for."""
    if options.backup is None:
        return []
    what = "taken again" if options.backup.replay else "skipped"
    return [("Backup workers", f"{options.backup.count}; dropped examples are {what}")]


def _clients(placement: Placement) -> list[tuple[str, str]]:
    """The number of clients, if there are several."""
    if placement.clients == 1:
        return []
    each = plural(len(placement.towers), "tower")
    return [
        ("Replication", f"between graphs: {placement.clients} clients, {each} each")
    ]


def in_short(plan: Plan, built: TrainGraph) -> str:
    """The run in a few words, as the title of a picture."""
    num_towers = plural(plan.placement.num_towers, "tower")
    spec = built.mode.all_reduce_spec
    words = [plan.model.name, num_towers, plan.options.variable_update]
    if plan.options.pipeline:
        words[1] += f" of {plural(plan.options.pipeline.stages, 'stage')}"
    return ", ".join(words + ([spec] if spec else []))


def _factors(built: TrainGraph) -> list[tuple[str, str]]:
    """The number of gradients that are sent as factors, and their size."""
    factored = [g for g in built.towers[0].gradients if isinstance(g, Factors)]
    if not factored:
        return []
    small, large = (
        sum(t.shape.num_elements() * t.dtype.size for t in tensors) / 1e6
        for tensors in (
            [side for gradient in factored for side in (gradient.left, gradient.right)],
            [gradient.whole for gradient in factored],
        )
    )
    of = plural(len(factored), "gradient")
    return [("Factors", f"{of} as {small:.3g} instead of {large:.3g} MB per tower")]


def _at_a_time(built: TrainGraph) -> list[tuple[str, str]]:
    """How many towers compute at the same time, if not all do."""
    most = at_a_time(built.template, built.placement)
    return [("At a time", f"{plural(most, 'tower')}, one per core")] if most else []


def _devices(placement: Placement) -> str:
    """The device of each tower, or the list of devices of its stages."""
    if len(placement.devices) == len(placement.towers):
        return str(list(placement.towers))
    return str([list(stages) for stages in placement.stages])


def _pipeline(how: Pipeline | None, template: AnyTemplate) -> list[tuple[str, str]]:
    """How towers are cut into stages, if they are."""
    if how is None:
        return []
    assert isinstance(template, PipelineTemplate)
    stages = [
        f"{k}: {', '.join(_range(c.blocks) for c in template.chunks[k :: how.stages])}"
        for k in range(how.stages)
    ]
    order = SCHEDULES[how.schedule].description
    chosen = template.pipeline.chosen
    names = [name for chunk in template.chunks for name in chunk.blocks]
    how_again = recompute.words(template.pipeline, names) if chosen else ""
    return [
        ("Stages", "\n".join(stages)),
        ("Micro-batches", f"{how.micro_batches} per tower, {how.schedule}: {order}"),
        ("Recompute", how_again or RECOMPUTE[how.recompute]),
    ]


def _shards(wholes: Mapping[str, Parts]) -> list[tuple[str, str]]:
    """Which variables are sharded, and over which devices."""
    lines = []
    for name, whole in wholes.items():
        sizes = ", ".join(str(part.shape[whole.axis]) for part in whole)
        where = ", ".join(part.device for part in whole)
        of = "rows" if whole.axis == 0 < len(whole.shape) - 1 else "columns"
        lines.append(f"{name}: {sizes} {of} on {where}")
    return [("Shards", "\n".join(lines))] if lines else []


def _range(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"


def _batch_norm(options: Options, *, joined: bool = True) -> str:
    """The statistics that batch norm normalizes with, and those that are saved."""
    reach, piece = BATCH_NORM[options.batch_norm], ""
    towers = " and towers" if joined else " of the first tower"
    if options.pipeline and options.pipeline.micro_batches > 1:
        piece, pieces = "micro-batch", "micro-batches"
    elif options.accumulate_steps > 1:
        piece, pieces = "round", "rounds"
    if reach.towers and (reach.micro_batches or not piece):
        return "statistics of all towers' batches as one; these are saved"
    if reach.towers:
        return (
            f"statistics per {piece}, of all towers as one; saved: the mean over the "
            f"{pieces}"
        )
    if piece and not reach.micro_batches:
        return f"statistics per {piece}; saved: the mean over the {pieces}{towers}"
    of = f", of all its {pieces} as one" if piece else ""
    whose = "the mean over the towers" if joined else "the first tower's"
    return f"statistics per tower{of}; saved: {whose}"


def _per_device(options: Options) -> str:
    sizes = options.tower_batch_sizes or (options.batch_size,)
    each, rounds = ", ".join(map(str, sizes)), options.accumulate_steps
    if rounds == 1:
        return f"{each} per device"
    of_step = ", ".join(str(size * rounds) for size in sizes)
    return f"{of_step} per device, in {rounds} rounds of {each}"


def _devices_of(built: TrainGraph) -> str:
    variables = built.graph.get_collection(v1.GraphKeys.TRAINABLE_VARIABLES)
    return ", ".join(sorted({variable.device for variable in variables}))


def facts(plan: Plan, built: TrainGraph) -> dict[str, Any]:
    """The facts that `benchmark_run.log` contains."""
    settings = {
        name: value
        for section in vars(plan.config).values()
        for name, value in vars(section).items()
    }
    return {
        "model_name": plan.model.name,
        "dataset": {"name": plan.source.name},
        "test_id": plan.config.output.benchmark_test_id,
        "devices": list(plan.placement.devices),
        "num_parameters": built.template.parameters,
        "run_parameters": settings,
    }
