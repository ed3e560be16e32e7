"""A run's settings as one frozen `Config`, and the rules that they must keep.

    config = make(model="resnet20", num_gpus=4, num_epochs=2.0)
    errors = check(config, {"optimizer": OPTIMIZERS})
    config.devices.num_gpus

Pure Python: `flags.parse` makes the same `Config` from a command line.  A program with
other flags has a dataclass of its own, as `VerifyConfig`.
"""

import dataclasses
import os
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from flags import (
    cluster,
    field,
    optimizer,
    rules,
    sections,
    stages,
    tf_cnn_benchmarks,
    variables,
    verify,
)


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
    devices: sections.DeviceFlags
    cluster: cluster.ClusterFlags
    stages: stages.StagesFlags
    variables: variables.VariablesFlags
    training: sections.TrainingFlags
    optimizer: optimizer.OptimizerFlags
    evaluation: sections.EvaluationFlags
    output: sections.OutputFlags


@dataclasses.dataclass(frozen=True)
class VerifyConfig:
    """All settings of a comparison of ways to train."""

    program: ClassVar[str] = "towers.verify"
    commands: ClassVar[tuple[str, ...]] = ("--model=lenet", "--model=mlp --device=cpu")

    model: sections.ModelFlags
    data: sections.DataFlags
    optimizer: optimizer.OptimizerFlags
    verify: verify.VerifyFlags


# Every program's.
KINDS = (Config, VerifyConfig)
Settings = Config | VerifyConfig


def all_flags(kind: type[Settings] = Config) -> dict[str, field.Flag]:
    """Every flag of a program by its name, in the order of the sections."""
    return {
        flag.name: flag
        for section in dataclasses.fields(kind)
        for flag in field.flags_of(section.name, section.type)
    }


def make(kind: type[Settings] = Config, /, **settings: Any) -> Settings:
    """A `Config` from flat names; what is not named has its default.

    Nothing but the names is checked: that is for `check`.

    Args:
      kind: whose sections.
      **settings: the values.

    Raises:
      ValueError: there is no flag of such a name.
    """
    by_section = {section.name: {} for section in dataclasses.fields(kind)}
    flags = all_flags(kind)
    for name, value in settings.items():
        if name not in flags:
            everything = f"`python -m {kind.program} --helpfull` lists them"
            hint = field.did_you_mean(name, flags) or everything
            raise ValueError(f"{name}: no such flag; {hint}")
        by_section[flags[name].section][name] = value
    return kind(
        **{
            section.name: section.type(**by_section[section.name])
            for section in dataclasses.fields(kind)
        }
    )


def table_flags(kind: type[Settings]) -> list[str]:
    """The flags of a program that `flags.rules` speaks about.

    Not those of `verify`, which are lists of what the table's rows have one of.
    """
    return [name for name, flag in all_flags(kind).items() if flag.section != "verify"]


def flat(config: Settings) -> dict[str, Any]:
    """All settings by name; `make(**flat(config))` equals `config`."""
    return {
        name: getattr(getattr(config, flag.section), name)
        for name, flag in all_flags(type(config)).items()
    }


def check(
    config: Settings,
    choices: Mapping[str, Collection[str]],
    *,
    unread: Collection[str] = (),
) -> list[str]:
    """Finds everything that is wrong with the settings.

    Args:
      config: the settings.
      choices: the names in the tables that flags choose from, by flag.
      unread: flags whose text on the command line was no value at all.

    Returns:
      One sentence per error, each beginning with the flag and its value.
    """
    flags, settings = all_flags(type(config)), flat(config)
    assert set(choices) <= set(flags), f"choices for unknown flags: {set(choices)}"
    wrong = {}
    for name, value in settings.items():
        if problem := _value_problem(flags[name], value, choices.get(name, ())):
            wrong[name] = f"{field.spell(name, value)}: {problem}"
    # A rule that is about a flag whose own value is wrong would mislead: its sentence
    # goes, and comes back if it still holds once the value is right.
    unusable = set(wrong) | set(unread)
    usable = {name: v for name, v in settings.items() if name not in unusable}
    changed = {n: value for n, value in usable.items() if value != flags[n].default}
    broken = list(rules.broken(usable, changed, about=table_flags(type(config))))
    broken += [sentence for rule in _RULES[type(config)] for sentence in rule(changed)]
    trusted = [
        sentence
        for sentence in broken
        if not unusable & set(re.findall(r"--(\w+)", sentence))
    ]
    return [*wrong.values(), *trusted]


def _value_problem(flag: field.Flag, value: Any, names: Collection[str]) -> str:
    """What is wrong with a value by itself; empty if nothing."""
    problem = flag.problem(value, names)
    if isinstance(value, str) and value not in names:
        return tf_cnn_benchmarks.VALUES.get(flag.name, {}).get(value, problem)
    return problem


# ------------------------------------------------------------------------------------
# The rules that `flags.rules` cannot say.  Each takes the settings that differ from
# their default, by name, and yields sentences.

_Given = Mapping[str, Any]


def _spell(flags: _Given, name: str) -> str:
    return field.spell(name, flags[name])


def _names(names: Collection[str]) -> str:
    """--a, --b and --c."""
    *leading, final = [f"--{name}" for name in names]
    return f"{', '.join(leading)} and {final}" if leading else final


def _learning_rate(flags: _Given) -> Iterator[str]:
    decay = ("num_epochs_per_decay", "learning_rate_decay_factor")
    schedule = flags.get("piecewise_learning_rate_schedule")
    if "learning_rate_schedule" in flags:  # which says what it needs itself
        return
    if schedule is None:
        base = ("init_learning_rate", *decay)
        missing = [name for name in base if name not in flags]
        for name in (*decay, "minimum_learning_rate"):
            if name in flags and missing:
                yield f"{_spell(flags, name)}: needs {_names(missing)}"
        lowest = flags.get("minimum_learning_rate", 0.0)
        if not missing and lowest > flags["init_learning_rate"]:
            first = _spell(flags, "init_learning_rate")
            yield f"{_spell(flags, 'minimum_learning_rate')}: is above {first}"
        return
    try:
        optimizer.parse_piecewise_rates(schedule)
    except ValueError as error:
        yield f"{_spell(flags, 'piecewise_learning_rate_schedule')}: {error}"


def _gpus(flags: _Given) -> Iterator[str]:
    indices = flags.get("gpu_indices", ())
    if len(set(indices)) < len(indices):
        yield f"{_spell(flags, 'gpu_indices')}: names a GPU twice"
    num_gpus = flags.get("num_gpus", sections.DeviceFlags.num_gpus)
    if indices and len(indices) != num_gpus:
        yield (
            f"{_spell(flags, 'gpu_indices')}: names {len(indices)} GPUs for "
            f"--num_gpus={num_gpus}"
        )


_WHOLE_BATCH = ("tower", "sync")
_EXCHANGE = (
    "all_reduce_spec",
    "gradient_repacking",
    "agg_small_grads_max_bytes",
    "agg_small_grads_max_group",
)


def _compact(flags: _Given) -> Iterator[str]:
    """`true` and `false` choose between the dtypes of 16-bit compute and float32."""
    name = "compact_gradient_transfer"
    narrow = "compute_dtype" in flags or "use_fp16" in flags
    if flags.get(name) in ("true", "false") and not narrow:
        yield (
            f"{_spell(flags, name)}: needs 16 bits in --compute_dtype; to round "
            f"float32 gradients on their way, name the dtype: --{name}=bfloat16"
        )


def _verified_exchange(flags: _Given) -> Iterator[str]:
    """Without replicas that exchange gradients there is nothing to reduce."""
    reduced = [rules.Term.parse(term).value for term in rules.ALL_REDUCE]
    modes = flags.get("variable_update", reduced)
    for name in _EXCHANGE:
        if name in flags and not set(modes) & set(reduced):
            which = " or ".join(reduced)
            yield f"{_spell(flags, name)}: needs {which} in --variable_update"


def _stages(flags: _Given) -> Iterator[str]:
    """Shards divide the devices; shards and stages of a tower are the same devices.

    `planning` checks that stages divide the devices.
    """
    gpus = flags.get("num_gpus", sections.DeviceFlags.num_gpus)
    for name in _shards(flags):
        each = flags.get(name, 1)
        if gpus % each:
            below, above = gpus // each * each, -(-gpus // each) * each
            fits = [str(n) for n in range(1, gpus + 1) if gpus % n == 0]
            yield (
                f"{field.spell('num_gpus', gpus)}: is not a multiple of "
                f"--{name}={each}; write --num_gpus={below or above}"
                + (f" or {above}" if below else "")
                + f", or --{name}={' or '.join(fits)}"
            )
    shards, other = flags.get("shard_classifier", 1), flags.get("shard_embeddings", 1)
    if 1 != shards != other != 1:
        yield (
            f"--shard_classifier={shards}: is not --shard_embeddings={other}, and both "
            f"are devices of a tower; write the same number twice"
        )
    stages = flags.get("num_stages", 1)
    for name in _shards(flags):
        count = flags.get(name, 1)
        if 1 != stages != count != 1:
            yield (
                f"--{name}={count}: is not --num_stages={stages}, and both are devices "
                f"of a tower; write --{name}={stages}"
            )


def _whole_batch_norm(flags: _Given) -> Iterator[str]:
    """Statistics of a whole batch need all its micro-batches, at each batch norm."""
    norm, schedule = flags.get("batch_norm"), flags.get("schedule", "1f1b")
    several = flags.get("num_micro_batches", 1) > 1
    if norm in _WHOLE_BATCH and several and schedule != "gpipe":
        each = "sync_micro_batch" if norm == "sync" else "micro_batch"
        yield (
            f"{_spell(flags, 'batch_norm')}: needs all micro-batches of a stage before "
            f"one goes on, and --schedule={schedule} sends one back before; write "
            f"--schedule=gpipe, or --batch_norm={each}"
        )


def _verified_pipelines(flags: _Given) -> Iterator[str]:
    """Settings of pipelines have no effect where none is compared."""
    if flags.get("pipelines") == "none":
        for name in ("num_stages", "num_micro_batches", "schedule", "recompute"):
            if name in flags:
                yield f"{_spell(flags, name)}: does not go with --pipelines=none"


def _verified_batch_norm(flags: _Given) -> Iterator[str]:
    """Rounds run one after the other: none has the statistics of a whole batch."""
    if flags.get("batch_norm") in _WHOLE_BATCH:
        if max(flags.get("accumulate_steps", (1,))) > 1:
            yield (
                f"{_spell(flags, 'accumulate_steps')}: does not go with "
                f"--batch_norm={flags['batch_norm']}; write --accumulate_steps=1"
            )


def _shards(flags: _Given) -> list[str]:
    """The flags that say how many devices a tower's shards are on."""
    if "local_cluster" in flags or "job_name" in flags:
        return ["shard_classifier"]
    return ["shard_classifier", "shard_embeddings"]


def _files(flags: _Given) -> Iterator[str]:
    trace, graph = flags.get("trace_file"), flags.get("graph_file")
    if trace and graph and os.path.abspath(trace) == os.path.abspath(graph):
        yield f"{_spell(flags, 'graph_file')}: is --trace_file, too; name another file"


def _cluster(flags: _Given) -> Iterator[str]:
    """Which tasks there are, and which of them this is."""
    if "local_cluster" in flags:
        try:
            cluster.parse_tasks(flags["local_cluster"])
        except ValueError as error:
            yield f"{_spell(flags, 'local_cluster')}: {error}"
    elif "job_name" in flags:
        yield from _task(flags)


def _task(flags: _Given) -> Iterator[str]:
    """The flags that a task of a job needs, and whether its index is one of the job."""
    job = flags["job_name"]
    hosts = {"ps": "ps_hosts", "worker": "worker_hosts"}.get(job, "controller_host")
    needed = {"worker_hosts", hosts} if job != "evaluator" else {"train_dir"}
    for name in sorted(needed):
        if name not in flags:
            yield f"{_spell(flags, 'job_name')}: needs --{name}"
    index = flags.get("task_index", 0)
    count = len(flags.get(hosts, ())) if job in ("ps", "worker") else 1
    if index >= max(count, 1):
        of_job = "1 task" if count == 1 else f"{count} tasks"
        yield (
            f"{_spell(flags, 'task_index')}: --job_name={job} has {of_job}, counted "
            "from 0"
        )


_RULES = {
    Config: (
        _learning_rate,
        _gpus,
        _stages,
        _compact,
        _whole_batch_norm,
        _cluster,
        _files,
    ),
    VerifyConfig: (
        _learning_rate,
        _verified_exchange,
        _verified_pipelines,
        _verified_batch_norm,
    ),
}
