"""A run's settings as one frozen `Config`, and the check of these settings.

    config = make(model="resnet20", num_gpus=4, num_epochs=2.0)
    problems = check(config, {"optimizer": OPTIMIZERS})
    config.devices.num_gpus

`flags.parse` makes the same from a command line.  `VerifyConfig` is of another program.
"""

import dataclasses
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, ClassVar, TypeVar, overload

from flags import (
    batch_sizes,
    cluster,
    devices,
    field,
    images,
    optimizer,
    output,
    predict,
    rules,
    sections,
    stages,
    tf_cnn_benchmarks,
    tf_cnn_flags,
    tf_cnn_rules,
    variables,
    verify,
)
from flags.problem import Problem, mention


@dataclasses.dataclass(frozen=True)
class Config:
    """All settings of a run, by section; `make` fills in the defaults."""

    program: ClassVar[str] = "towers.train"
    commands: ClassVar[tuple[str, ...]] = (
        "--num_gpus=4",
        "--model=resnet50 --num_gpus=8 --batch_size=64",
        "--num_epochs=5 --train_dir=run --save_model_steps=100",
    )

    model: sections.ModelFlags
    data: sections.DataFlags
    images: images.ImageFlags
    devices: devices.DeviceFlags
    cluster: cluster.ClusterFlags
    stages: stages.StagesFlags
    variables: variables.VariablesFlags
    training: sections.TrainingFlags
    optimizer: optimizer.OptimizerFlags
    evaluation: sections.EvaluationFlags
    output: output.OutputFlags


@dataclasses.dataclass(frozen=True)
class VerifyConfig:
    """All settings of `towers.verify`."""

    program: ClassVar[str] = "towers.verify"
    commands: ClassVar[tuple[str, ...]] = ("--model=lenet", "--model=mlp --device=cpu")

    model: sections.ModelFlags
    data: sections.DataFlags
    images: images.ImageFlags
    optimizer: optimizer.OptimizerFlags
    verify: verify.VerifyFlags


@dataclasses.dataclass(frozen=True)
class PredictConfig:
    """All settings of `towers.predict`."""

    program: ClassVar[str] = "towers.predict"
    commands: ClassVar[tuple[str, ...]] = (
        "--model=lenet --train_dir=run --out=predictions.npz",
    )

    model: sections.ModelFlags
    data: sections.DataFlags
    images: images.ImageFlags
    devices: devices.DeviceFlags
    stages: stages.StagesFlags
    predict: predict.PredictFlags


@dataclasses.dataclass(frozen=True)
class TfCnnBenchmarksConfig:
    """All settings of `towers.tf_cnn_benchmarks`."""

    program: ClassVar[str] = "towers.tf_cnn_benchmarks"
    commands: ClassVar[tuple[str, ...]] = (
        "--model=resnet50 --num_gpus=8 --batch_size=64",
        "--model=resnet50 --num_gpus=8 --batch_size=64 --print_flags",
    )

    tf_cnn_benchmarks: tf_cnn_flags.Settings


# Every program's.
KINDS = (Config, VerifyConfig, PredictConfig, TfCnnBenchmarksConfig)
Settings = Config | VerifyConfig | PredictConfig | TfCnnBenchmarksConfig
OfProgram = TypeVar("OfProgram", bound=Settings)


def all_flags(kind: type[Settings] = Config) -> dict[str, field.Flag]:
    """Every flag of a program by its name, in the order of the sections."""
    return {
        flag.name: flag
        for section in dataclasses.fields(kind)
        for flag in field.flags_of(section.name, typing.cast(type, section.type))
    }


@overload
def make(**settings: Any) -> Config:
    """Makes the settings of `towers.train`."""


@overload
def make(kind: type[OfProgram], /, **settings: Any) -> OfProgram:
    """Makes the settings of another program."""


def make(kind: type[Any] = Config, /, **settings: Any) -> Any:
    """Makes a `Config` from settings by name; the others have their defaults.

    It checks the names, and `check` the values.

    Args:
      kind: the class to make, with its sections.
      **settings: name -> value.

    Raises:
      ValueError: there is no setting of that name.
    """
    types = typing.get_type_hints(kind)
    names = [section.name for section in dataclasses.fields(kind)]
    by_section: dict[str, dict[str, Any]] = {name: {} for name in names}
    flags = all_flags(kind)
    for name, value in settings.items():
        if name not in flags:
            everything = f"`python -m {kind.program} --helpfull` lists them"
            hint = field.did_you_mean(name, flags) or everything
            raise ValueError(f"{name}: no such flag; {hint}")
        by_section[flags[name].section][name] = value
    return kind(**{name: types[name](**by_section[name]) for name in names})


def table_flags(kind: type[Settings]) -> list[str]:
    """The flags of a program that the rules of `flags.rules` apply to.

    They do not apply to the section `verify`, whose flags are lists of values, and to
    the flags of tf_cnn_benchmarks.
    """
    others = ("verify", tf_cnn_flags.SECTION)
    return [n for n, flag in all_flags(kind).items() if flag.section not in others]


def flat(config: Settings) -> dict[str, Any]:
    """All settings by name; `make(**flat(config))` equals `config`."""
    return {
        name: getattr(getattr(config, flag.section), name)
        for name, flag in all_flags(type(config)).items()
    }


def check(
    config: Settings, choices: rules.Choices, *, unread: Collection[str] = ()
) -> list[Problem]:
    """Returns everything that is wrong with the settings.

    Args:
      config: the settings.
      choices: flag -> the names that it can have.  If those of `variable_update` are a
        mapping to each mode's facts, the rules of modes are checked, too.
      unread: flags whose text on the command line could not be read as a value.
    """
    flags, settings = all_flags(type(config)), flat(config)
    assert set(choices) <= set(flags), f"choices for unknown flags: {set(choices)}"
    wrong = {}
    for name, value in settings.items():
        if words := _value_problem(flags[name], value, choices.get(name, ())):
            wrong[name] = Problem(name, value, words)
    # If a flag's value is wrong by itself, what rules say about the flag is left out:
    # it may not hold for the right value.
    unusable = set(wrong) | set(unread)
    usable = {name: v for name, v in settings.items() if name not in unusable}
    changed = {n: value for n, value in usable.items() if value != flags[n].default}
    rows = rules.rows(choices, table_flags(type(config)))
    broken = list(rules.broken(rows, usable, changed))
    broken += [problem for rule in _RULES[type(config)] for problem in rule(changed)]
    if isinstance(config, VerifyConfig):
        broken += _verified_exchange(changed, rules.modes_of(choices))
    return [
        *wrong.values(),
        *(problem for problem in broken if unusable.isdisjoint(problem.settings)),
    ]


def _value_problem(flag: field.Flag, value: Any, names: Collection[str]) -> str:
    """What is wrong with a value by itself; empty if nothing."""
    problem = flag.problem(value, names)
    ours = flag.section != tf_cnn_flags.SECTION
    if ours and isinstance(value, str) and value not in names:
        return tf_cnn_benchmarks.VALUES.get(flag.name, {}).get(value, problem)
    return problem


# The rules that rows of `flags.rules` cannot express.  Each function takes the settings
# that differ from their default, by name.

_Given = Mapping[str, Any]


def _learning_rate(flags: _Given) -> Iterator[Problem]:
    decay = ("num_epochs_per_decay", "learning_rate_decay_factor")
    schedule = flags.get("piecewise_learning_rate_schedule")
    if "learning_rate_schedule" in flags:  # which says what it needs itself
        return
    if schedule is None:
        base = ("init_learning_rate", *decay)
        missing = [mention(name) for name in base if name not in flags]
        for name in (*decay, "minimum_learning_rate"):
            if name in flags and missing:
                needed = field.listing(missing, "and")
                yield Problem(name, flags[name], f"needs {needed}")
        lowest = flags.get("minimum_learning_rate", 0.0)
        if not missing and lowest > flags["init_learning_rate"]:
            first = mention("init_learning_rate", flags["init_learning_rate"])
            yield Problem("minimum_learning_rate", lowest, f"is above {first}")
        return
    try:
        optimizer.parse_piecewise_rates(schedule)
    except ValueError as error:
        yield Problem("piecewise_learning_rate_schedule", schedule, str(error))


def _regexes(flags: _Given) -> Iterator[Problem]:
    """Regular expressions of the names of variables."""
    checks: dict[str, Callable[[str], object]] = {
        "trainable": optimizer.check_regex,
        "learning_rate_factors": optimizer.parse_factors,
    }
    for name in checks.keys() & flags.keys():
        try:
            checks[name](flags[name])
        except ValueError as error:
            yield Problem(name, flags[name], str(error))


def _gpus(flags: _Given) -> Iterator[Problem]:
    indices = flags.get("gpu_indices", ())
    if len(set(indices)) < len(indices):
        yield Problem("gpu_indices", indices, "names a GPU twice")
    num_gpus = flags.get("num_gpus", devices.DeviceFlags.num_gpus)
    if indices and len(indices) != num_gpus:
        words = f"names {len(indices)} GPUs for `num_gpus={num_gpus}`"
        yield Problem("gpu_indices", indices, words)


_WHOLE_BATCH = ("tower", "sync")


def _compact(flags: _Given) -> Iterator[Problem]:
    """`true` and `false` need 16-bit compute, whose dtype they choose or do not."""
    name = "compact_gradient_transfer"
    narrow = "compute_dtype" in flags or "use_fp16" in flags
    if flags.get(name) in ("true", "false") and not narrow:
        remedy = "to round float32 gradients on their way, name the dtype: "
        words = "needs 16 bits in `compute_dtype`"
        yield Problem(name, flags[name], words, f"{remedy}`{name}=bfloat16`")


def _verified_exchange(
    flags: _Given, modes: Mapping[str, rules.ModeFacts]
) -> Iterator[Problem]:
    """A setting that no compared mode reads has no effect, and is refused."""
    chosen = flags.get("variable_update", modes)
    for name, names in rules.readers(modes, by_all=False).items():
        if name in flags and not set(chosen) & set(names):
            which = " or ".join(names)
            yield Problem(name, flags[name], f"needs {which} in `variable_update`")


def _stages(flags: _Given) -> Iterator[Problem]:
    """The devices are a multiple of the shards; shards and stages are equally many.

    `planning` checks that the devices are a multiple of the stages.
    """
    gpus = flags.get("num_gpus", devices.DeviceFlags.num_gpus)
    for name in _shards(flags):
        each = flags.get(name, 1)
        if gpus % each:
            below, above = gpus // each * each, -(-gpus // each) * each
            fits = [str(n) for n in range(1, gpus + 1) if gpus % n == 0]
            enough = f"{below} or {above}" if below else above
            remedy = f"write `num_gpus={enough}`, or `{name}={' or '.join(fits)}`"
            words = f"is not a multiple of `{name}={each}`"
            yield Problem("num_gpus", gpus, words, remedy)
    shards, other = flags.get("shard_classifier", 1), flags.get("shard_embeddings", 1)
    both = "and both are devices of a tower"
    if 1 != shards != other != 1:
        words = f"is not `shard_embeddings={other}`, {both}"
        yield Problem("shard_classifier", shards, words, "write the same number twice")
    stages = flags.get("num_stages", 1)
    for name in _shards(flags):
        count = flags.get(name, 1)
        if 1 != stages != count != 1:
            words = f"is not `num_stages={stages}`, {both}"
            yield Problem(name, count, words, f"write `{name}={stages}`")


def _whole_batch_norm(flags: _Given) -> Iterator[Problem]:
    """Statistics of a whole batch need the forward pass of all its micro-batches."""
    norm, schedule = flags.get("batch_norm"), flags.get("schedule", "1f1b")
    several = flags.get("num_micro_batches", 1) > 1
    if norm in _WHOLE_BATCH and several and schedule != "gpipe":
        each = "sync_micro_batch" if norm == "sync" else "micro_batch"
        words = "needs all micro-batches of a stage before one goes on, and"
        words += f" `schedule={schedule}` sends one back before"
        remedy = f"write `schedule=gpipe`, or `batch_norm={each}`"
        yield Problem("batch_norm", norm, words, remedy)


def _verified_pipelines(flags: _Given) -> Iterator[Problem]:
    """Settings of pipelines have no effect with `pipelines=none`, and are refused."""
    if flags.get("pipelines") == "none":
        for name in ("num_stages", "num_micro_batches", "schedule", "recompute"):
            if name in flags:
                yield Problem(name, flags[name], "does not go with `pipelines=none`")


def _verified_batch_norm(flags: _Given) -> Iterator[Problem]:
    """Batches of accumulation run one after another: none has all examples."""
    norm, rounds = flags.get("batch_norm"), flags.get("accumulate_steps", (1,))
    if norm in _WHOLE_BATCH and max(rounds) > 1:
        words = f"does not go with `batch_norm={norm}`"
        yield Problem("accumulate_steps", rounds, words, "write `accumulate_steps=1`")


def _shards(flags: _Given) -> list[str]:
    """The flags whose value is a number of devices of each tower."""
    if "local_cluster" in flags or "job_name" in flags:
        return ["shard_classifier"]
    return ["shard_classifier", "shard_embeddings"]


def _prediction(flags: _Given) -> Iterator[Problem]:
    """Predictions need a checkpoint and a file to write."""
    for name in ("train_dir", "out"):
        if name not in flags:
            yield Problem(name, None, "is needed", f"write --{name}=...")


_RULES = {
    Config: (
        *(_learning_rate, _regexes, _gpus, _stages, _compact, _whole_batch_norm),
        *(cluster.problems, output.shared_paths, batch_sizes.problems),
    ),
    VerifyConfig: (_learning_rate, _regexes, _verified_pipelines, _verified_batch_norm),
    PredictConfig: (_gpus, _prediction),
    TfCnnBenchmarksConfig: (tf_cnn_rules.broken_rules,),
}
