"""Translates a command line of tf_cnn_benchmarks to one of `towers.train`.

    translation = translate(settings, models=models.MODELS, gpus=False)
    translation.arguments  # ["--model=lenet", "--batch_size=32", ...]
    print(translation.line)

tf_cnn_benchmarks counts epochs in its own constants and rounds them to steps; here they
are written as the epochs at which the same steps begin.
"""

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from flags import config, field, tf_cnn_flags, tf_cnn_models, tf_cnn_rules
from flags.problem import Problem, SettingError, wrong_setting
from flags.tf_cnn_models import TheirModel
from flags.tf_cnn_rates import rates_of
from flags.tf_cnn_run import DEFAULT_WARMUP, TheirRun, num_steps

_MOST_EVALUATIONS = 1000


class Translation(NamedTuple):
    """What to run instead.

    Attributes:
      settings: of `towers.train`, by name, in the order of the line.
      environment: variables to set before TensorFlow is imported.
      notes: sentences on flags that have no effect.
    """

    settings: Mapping[str, Any]
    environment: Mapping[str, str]
    notes: tuple[str, ...]

    @property
    def arguments(self) -> list[str]:
        """The arguments of `towers.train`."""
        return [
            f"--{n}={','.join(map(str, v)) if isinstance(v, tuple) else v}"
            for n, v in self.settings.items()
        ]

    @property
    def line(self) -> str:
        """The command line, as it is typed in a shell."""
        variables = [f"{n}={field.quote(v)}" for n, v in self.environment.items()]
        flags = [field.spell(n, v) for n, v in self.settings.items()]
        return " ".join([*variables, "python -m towers.train", *flags])


def translate(
    flags: Mapping[str, Any], *, models: Collection[str], gpus: bool
) -> Translation:
    """Translates settings.

    Args:
      flags: every flag of tf_cnn_benchmarks by name; `tf_cnn_rules.broken_rules` found
        nothing wrong with them.
      models: names of the models that there are here.
      gpus: whether this machine has GPUs.

    Raises:
      SettingError: what is wrong, or is not here.
    """
    defaults = {name: row.default for name, row in tf_cnn_flags.FLAGS.items()}
    changed = {n: flags[n] for n, default in defaults.items() if flags[n] != default}
    rules = tf_cnn_rules.IDLE_WITHOUT
    idle = [p for rule in rules if (p := rule.problem(flags, changed))]
    used = {**flags, **{p.setting: defaults[p.setting] for p in idle}}
    dataset = _dataset(used)
    model = _model(used, dataset, models)
    run = TheirRun(used, dataset, model, gpus)
    settings: dict[str, Any] = {"model": model.here}
    for part in (
        *(_data, _devices, _variables, _length, _evaluation, _optimizer, rates_of),
        *(_start, _copied),
    ):
        settings |= part(run)
    settings |= dict(model.settings)
    notes = [f"--{p.setting} has no effect: it {_sentence(p)}" for p in idle]
    notes += [
        f"--{name} sets nothing here: {tf_cnn_flags.FLAGS[name].words}"
        for name in changed
        if tf_cnn_flags.FLAGS[name].effect == tf_cnn_flags.NO_EFFECT
    ]
    return Translation(settings, _environment(run), tuple(notes))


def _sentence(problem: Problem) -> str:
    return problem.sentence().partition(": ")[2]


def _dataset(flags: Mapping[str, Any]) -> str:
    """The name of the data set, which is found in the folder's name if not given."""
    name, folder = flags["data_name"], flags["data_dir"]
    names = (*tf_cnn_models.EXAMPLES, *tf_cnn_models.NOT_HERE)
    if not name and folder:
        name = next((known for known in names if known in folder), "")
        if not name:
            words = f"no data set's name is in it ({', '.join(names)})"
            raise wrong_setting("data_dir", folder, words, "add `data_name`")
    name = name or "imagenet"
    if name in tf_cnn_models.NOT_HERE:
        words = f"{tf_cnn_models.NOT_HERE[name]} is not among the models"
        raise wrong_setting("data_name", name, words, "choose imagenet or cifar10")
    return name


def _model(
    flags: Mapping[str, Any], dataset: str, models: Collection[str]
) -> TheirModel:
    name, rows = flags["model"], tf_cnn_models.MODELS[dataset]
    here = name not in tf_cnn_models.NOT_HERE.values()
    if here and name not in rows:
        near = field.did_you_mean(name, rows) or f"choose from {', '.join(rows)}"
        raise wrong_setting("model", name, f"no such model of {dataset}", near)
    if not here or rows[name].here not in models:
        remedy = "`python -m towers.models` lists those that are"
        raise wrong_setting("model", name, "is not among the models here", remedy)
    return rows[name]


def _data(run: TheirRun) -> dict[str, Any]:
    """The data set, and what is done to its images."""
    data: dict[str, Any] = {"data_name": "synthetic"}
    if folder := run.flags["data_dir"]:
        data = {"data_name": run.dataset, "data_dir": folder, **_images(run)}
    elif run.model.examples == 0:  # images
        data["synthetic_pixels"] = "unscaled"
    if run.dataset == "cifar10":
        data["num_classes"] = tf_cnn_models.CLASSES[run.dataset]
    return data | {"batch_size": run.batch_size}


_OF_FILES = ("resize_method", "distort_color_in_yiq", "fuse_decode_and_crop")


def _images(run: TheirRun) -> dict[str, Any]:
    """What is done to images that are read."""
    flags, defaults = run.flags, tf_cnn_flags.FLAGS
    if run.dataset == "cifar10":
        row = {"input_preprocessor": "tf_cnn_benchmarks_cifar"}
        return {**row, "augment": flags["distortions"]}
    if flags["input_preprocessor"] != "default":
        row = {"input_preprocessor": flags["input_preprocessor"]}
        return {**row, "background_class": True}
    name = "tf_cnn_benchmarks_ml_perf" if flags["ml_perf"] else "tf_cnn_benchmarks"
    images = {"input_preprocessor": name, "background_class": True}
    changed = {n: flags[n] for n in _OF_FILES if flags[n] != defaults[n].default}
    return {**images, "color_distortions": flags["distortions"], **changed}


def _devices(run: TheirRun) -> dict[str, Any]:
    flags: dict[str, Any] = {"device": run.device}
    on_gpus = run.device == "gpu"
    if run.model.examples == 0:
        layout = run.flags["data_format"] or ("NCHW" if on_gpus else "NHWC")
        flags["data_format"] = layout
    return flags


def _variables(run: TheirRun) -> dict[str, Any]:
    """Where variables are, and how gradients are added."""
    flags, mode = run.flags, run.mode
    settings: dict[str, Any] = {"variable_update": mode}
    on_gpus = run.device == "gpu" and flags["local_parameter_device"] == "gpu"
    if mode in ("distributed_all_reduce", "collective_all_reduce"):
        settings["variable_update"] = "replicated"
    if mode == "replicated" and not flags["all_reduce_spec"]:
        if flags["hierarchical_copy"]:
            settings["all_reduce_spec"] = "hierarchical"
        elif on_gpus:
            settings["all_reduce_spec"] = "psgpu"
    alone = mode == "independent"
    if mode == "parameter_server" and on_gpus and not flags["job_name"]:
        settings["local_parameter_device"] = "gpu"
    between = mode in ("parameter_server", "distributed_replicated")
    between = between and bool(flags["job_name"]) and not flags["staged_vars"]
    if between and not flags["use_fp16"]:
        settings["replication"] = "between_graph"
    if flags["use_fp16"] and not alone:
        sent = mode == "replicated" and flags["compact_gradient_transfer"]
        settings["compact_gradient_transfer"] = str(bool(sent)).lower()
    if run.adds_gradients > 1 and not alone:
        settings["gradient_factor"] = float(run.adds_gradients)
    together = flags["cross_replica_sync"] and not alone
    if flags["num_gpus"] > 1 and together and not flags["job_name"]:
        settings["batch_norm_averages"] = "first_tower"
    return settings


def _length(run: TheirRun) -> dict[str, Any]:
    if run.flags["eval"]:
        return {}
    batches, epochs = run.flags["num_batches"], run.flags["num_epochs"]
    settings: dict[str, Any] = {"num_batches": run.num_steps(batches, epochs)}
    settings["stop_on_nan"] = False
    if run.flags["backbone_model_path"]:
        settings["init_checkpoint"] = run.flags["backbone_model_path"]
    if run.warmup_steps != DEFAULT_WARMUP:
        settings["num_warmup_batches"] = run.warmup_steps
    return settings


def _evaluation(run: TheirRun) -> dict[str, Any]:
    """When and on how much a run evaluates."""
    flags = run.flags
    if not (flags["eval"] or run.evaluates):
        return {}
    settings: dict[str, Any] = {}
    if flags["eval_batch_size"]:
        settings["eval_batch_size"] = flags["eval_batch_size"]
    length = flags["num_eval_batches"], flags["num_eval_epochs"]
    if length == (None, None):
        length = flags["num_batches"], flags["num_epochs"]
    size = (flags["eval_batch_size"] or run.batch_size) * flags["num_gpus"]
    settings["num_eval_batches"] = num_steps(
        *length, size * run.workers, run.in_evaluation
    )
    if flags["eval"]:
        return settings | {"eval_dir": flags["eval_dir"]}
    last = run.num_steps(flags["num_batches"], flags["num_epochs"])
    steps = sorted({step for step in _evaluated(run, last) if 0 < step < last})
    if len(steps) > _MOST_EVALUATIONS:
        words = f"would be {len(steps)} evaluations"
        remedy = f"write larger steps, for at most {_MOST_EVALUATIONS}"
        raise SettingError(
            Problem("eval_during_training_every_n_steps", None, words, remedy)
        )
    if steps:
        name = "eval_during_training_at_specified_steps"
        settings[name] = tuple(step + run.warmup_steps for step in steps)
    return settings | {"eval_at_end": True}


def _evaluated(run: TheirRun, last: int) -> Iterator[int]:
    """The timed steps after which training pauses for an evaluation."""
    flags, prefix = run.flags, "eval_during_training_"
    if every := flags[f"{prefix}every_n_steps"]:
        yield from range(every, last, every)
    yield from flags[f"{prefix}at_specified_steps"]
    epochs = list(flags[f"{prefix}at_specified_epochs"])
    if each := flags[f"{prefix}every_n_epochs"]:
        whole = last * run.local_batch / run.per_epoch
        epochs += [each * number for number in range(1, math.ceil(whole / each))]
    for epoch in epochs:
        yield num_steps(None, epoch, run.local_batch, run.per_epoch)


def _optimizer(run: TheirRun) -> dict[str, Any]:
    flags = run.flags
    return {"optimizer": flags["optimizer"], "weight_decay": flags["weight_decay"]}


def _start(run: TheirRun) -> dict[str, Any]:
    """The checkpoint that a run starts from."""
    path = run.flags["backbone_model_path"]
    return {"init_checkpoint": path} if path else {}


def _copied(run: TheirRun) -> dict[str, Any]:
    """The flags that are taken as they are, if they differ from their default here."""
    defaults = config.all_flags()
    copied = {}
    for name, row in tf_cnn_flags.FLAGS.items():
        value = run.flags[name]
        if row.effect != tf_cnn_flags.SAME or name == "data_dir" or value in ("", ()):
            continue
        if value is not None and value != defaults[name].default:
            copied[name] = value
    return copied


def _environment(run: TheirRun) -> dict[str, str]:
    """The environment variables that tf_cnn_benchmarks sets."""
    flags, variables = run.flags, {}
    if flags["mkl"]:
        names = ("kmp_blocktime", "kmp_affinity", "kmp_settings")
        variables = {name.upper(): str(flags[name]) for name in names}
        if flags["num_intra_threads"]:
            variables["OMP_NUM_THREADS"] = str(flags["num_intra_threads"])
    if run.device != "gpu":
        return variables
    if flags["winograd_nonfused"]:
        variables["TF_ENABLE_WINOGRAD_NONFUSED"] = "1"
    if flags["autotune_threshold"]:
        variables["TF_AUTOTUNE_THRESHOLD"] = str(flags["autotune_threshold"])
    variables["TF_SYNC_ON_FINISH"] = str(int(flags["sync_on_finish"]))
    mode, threads = flags["gpu_thread_mode"], flags["per_gpu_thread_count"] or 2
    variables["TF_GPU_THREAD_MODE"] = mode
    if mode != "global":
        count = threads * (flags["num_gpus"] if mode == "gpu_shared" else 1)
        variables["TF_GPU_THREAD_COUNT"] = str(count)
    if flags["use_unified_memory"]:
        variables["TF_FORCE_UNIFIED_MEMORY"] = "1"
    return variables
