"""Which flags go together: one table for the code, `--help` and docs/flags.md.

A row is a `flags.rule.Rule`.  A setting without effect breaks a rule just as one that
contradicts another.  A rule of more than two flags, or with arithmetic, is a function
in `flags.config`.  The rules about the modes of `--variable_update` are derived from
the attributes of the modes' classes.

    python -m towers.train --help=rules > docs/flags.md
"""

import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from flags.field import listing
from flags.problem import Problem, with_flags
from flags.rule import AT_MOST_ONE, NEEDS, NEVER, Rule, at_most_one, needs, never

# Flag -> the names that it can have; for `variable_update`, name -> `ModeFacts`.
Choices = Mapping[str, Collection[str]]


class Switch(NamedTuple):
    """A flag of tf_cnn_benchmarks that, with `--variable_update`, chooses a mode.

    Attributes:
      of: the value of `--variable_update` that it goes with.
      flag, value: the flag, and its value that chooses the mode.
    """

    of: str
    flag: str
    value: str | bool

    @property
    def term(self) -> str:
        """The flag and value as a rule names them."""
        return f"{self.flag}={str(self.value).lower()}"


class ModeFacts(Protocol):
    """The attributes of a mode that rules follow from; see `VariableUpdate`."""

    reads: Sequence[str]
    joined: bool
    together: bool
    exact: bool
    replicates: bool
    between_graph: bool
    switch: Switch | None


# Terms that several rows share.
_EVAL_DURING_TRAINING = [
    f"eval_during_training_{when}_{unit}"
    for when in ("every_n", "at_specified")
    for unit in ("steps", "epochs")
]
_SYNC = ("batch_norm=sync", "batch_norm=sync_micro_batch")
_FIRST_AVERAGES = "batch_norm_averages=first_tower"
_WHOLE_BATCH = ("batch_norm=tower", "batch_norm=sync")
_FLOAT16 = ("use_fp16", "compute_dtype=float16")
_OF_A_TASK = ("task_index", "ps_hosts", "worker_hosts", "controller_host")
_OF_ELASTIC = ("min_workers", "max_workers", "join", "memory_copy_steps")
_FIXED_WORKERS = (
    *("replication=between_graph", "variable_update=auto", "num_stages", "eval"),
    *("check_mean", "input_only", "forward_only", "tower_batch_sizes"),
)
_OF_GPUS = (
    *("local_parameter_device", "gpu_indices", "logical_gpus", "allow_growth"),
    *("gpu_memory_frac_for_testing", "tensor_float_32", "deterministic_ops"),
    "batchnorm_persistent",
)
_OF_FILES = ("data_dir", "train_split", "eval_split")
_RATES = (
    *("init_learning_rate", "minimum_learning_rate", "resnet_base_lr"),
    *("num_epochs_per_decay", "learning_rate_decay_factor", "learning_rate_schedule"),
)
_SHOW_A_STEP = (
    *("trace_file", "graph_file", "pipeline_report", "tfprof_file"),
    "partitioned_graph_file_prefix",
)
_STAGES = ("num_stages", "num_micro_batches", "recompute")
_TRAIN_NOTHING = ("forward_only", "input_only")
_OF_NETWORKS = (
    *("xla", "xla_compile", "shard_classifier", "shard_embeddings"),
    *("init_checkpoint", "check_replicas_every", "print_training_accuracy"),
)
_ONE_GRAPH = (
    "variable_update=auto",
    *_SYNC,
    _FIRST_AVERAGES,
    "check_replicas_every",
    "max_staleness",
    "shard_embeddings",
    "num_stages",
    "num_micro_batches",
    "tower_batch_sizes=auto",
    "rebalance",
)

# Ends of sentences that several rows share: why two flags exclude each other.
_PACKS_ALL = "; it packs all gradients already"
_ADDS_UP = "; micro-batches add up the same way"
_EACH_COMPILED = ", which compiles each tower by itself"
_ONE_BY_ONE = (
    ", which computes a tower's batches one after another; use `num_micro_batches`"
)
_NOT_TOGETHER = ", whose towers do not step together"
_NO_SKIP = ", which cannot skip an update"
_EVERY_RATE = ", which sets every learning rate"
_NO_STEP = ", which takes no training step"
_NO_FILES = ", which reads no files"
_NO_GRADIENT = ", which computes no gradient"
_NO_COMPUTATION = ", which computes nothing"
_NOT_TRAINED = ", which trains nothing that could be evaluated"
_NOTHING_SAVED = ", which saves nothing"
_STARTS_ELSEWHERE = "; `init_checkpoint` names the checkpoint to start from"
_NOT_IN_CONSTANTS = ", whose variables are shared by its tasks"
_EVERY_TASK = ", which starts every task itself"
_NO_STEPS = ", whose towers do not take common steps"
_NOT_TIMED = ", which has no timing of modes; name a mode"
_OWN_FUNCTIONS = ", whose forward and backward passes are separate functions"
_ASKED = ", which asks the controller"
_NEW_GRAPHS = ", as each graph for other workers is one of whole towers that train"
_OWN_GRAPHS = ", where each client has a graph of its own towers"
_ITS_OWN_PLACE = ", where each worker has its own place in an epoch"
_SCALED_BY_ONE = ", where clients do not share a loss scale"
_ITS_OWN_GRAPHS = "; each goes on in new graphs of its own"
_WAIT_INSIDE = ", whose towers wait for one another within a step"
_IN_ONE_PLACE = ", which puts all variables on one device"
_NO_EXCHANGE = ", where no gradient leaves its tower"

ROWS = (
    at_most_one("num_batches", "num_epochs"),
    at_most_one("save_model_secs", "save_model_steps"),
    at_most_one("num_eval_batches", "num_eval_epochs"),
    at_most_one("init_learning_rate", "resnet_base_lr"),
    at_most_one("eval", *_TRAIN_NOTHING, *_EVAL_DURING_TRAINING),
    # The forward pass alone, and input alone.
    *(never("eval_at_end", alone, _NOT_TRAINED) for alone in _TRAIN_NOTHING),
    never("train_dir", "forward_only", _NOTHING_SAVED + _STARTS_ELSEWHERE),
    never("train_dir", "input_only", _NOTHING_SAVED),
    *(never("accumulate_steps", alone, _NO_GRADIENT) for alone in _TRAIN_NOTHING),
    *(never("check_mean", alone, _NO_GRADIENT) for alone in _TRAIN_NOTHING),
    *(never("pipeline_report", alone, _NO_GRADIENT) for alone in _TRAIN_NOTHING),
    *(never("variable_update=auto", alone, _NO_GRADIENT) for alone in _TRAIN_NOTHING),
    *(never("rebalance", alone, _NO_GRADIENT) for alone in _TRAIN_NOTHING),
    *(never(flag, "input_only", _NO_COMPUTATION) for flag in _OF_NETWORKS),
    *(never(flag, "input_only", _NO_COMPUTATION) for flag in _STAGES),
    needs("freeze_when_forward_only", "forward_only"),
    never("freeze_when_forward_only", "job_name", _NOT_IN_CONSTANTS),
    never("freeze_when_forward_only", "local_cluster", _NOT_IN_CONSTANTS),
    # Files and what is written to them.
    needs("eval", "train_dir"),
    needs("stop_at_top_1_accuracy", *_EVAL_DURING_TRAINING),
    *(needs(flag, "train_dir") for flag in ("save_model_secs", "save_model_steps")),
    needs("async_checkpoint", "save_model_secs", "save_model_steps"),
    needs("save_retry_secs", "save_model_secs", "save_model_steps"),
    needs("max_ckpts_to_keep", "train_dir"),
    needs("summary_verbosity", "train_dir"),
    needs("summary_verbosity", "save_summaries_steps"),
    needs("save_summaries_steps", "train_dir"),
    needs("save_summaries_steps", "summary_verbosity"),
    needs("benchmark_test_id", "benchmark_log_dir"),
    *(never(file, "eval", _NO_STEP) for file in _SHOW_A_STEP),
    *(never(flag, "data_name=synthetic", _NO_FILES) for flag in _OF_FILES),
    never("datasets_repeat_cached_sample", "data_name=synthetic", _NO_FILES),
    # The learning rate.
    *(never(r, "piecewise_learning_rate_schedule", _EVERY_RATE) for r in _RATES),
    needs("learning_rate_power", "learning_rate_schedule"),
    needs("learning_rate_cycle_growth", "learning_rate_schedule"),
    # Devices.
    *(never(flag, "device=cpu") for flag in _OF_GPUS),
    # Stages.
    needs("schedule", "num_stages", "num_micro_batches"),
    needs("schedule=interleaved", "num_stages"),
    needs("chunks_per_stage", "schedule=interleaved"),
    needs("partition", "num_stages"),
    needs("pipeline_report", *_STAGES),
    needs("memory_limit", "recompute=auto"),
    *(never("xla", flag, _OWN_FUNCTIONS) for flag in _STAGES),
    *(never("xla_compile", flag, _OWN_FUNCTIONS) for flag in _STAGES),
    # Clusters.
    needs("allow_open_ports", "local_cluster"),
    needs("max_restarts", "local_cluster"),
    *(needs(flag, "elastic") for flag in _OF_ELASTIC),
    needs("join", "job_name=worker"),
    needs("backup_workers", "replication=between_graph"),
    needs("dropped_examples", "backup_workers"),
    never("dropped_examples=replay", "max_damaged_examples", _ITS_OWN_PLACE),
    needs("replay_membership", "elastic", "backup_workers"),
    *(never("join", flag, _ASKED) for flag in ("ps_hosts", "controller_host")),
    *(never("elastic", flag, _NEW_GRAPHS) for flag in _FIXED_WORKERS),
    never("elastic", "rebalance", _ITS_OWN_GRAPHS),
    *(needs(flag, "job_name") for flag in ("task_index", "worker_hosts")),
    never("job_name", "local_cluster", _EVERY_TASK),
    *(never(flag, "local_cluster", _EVERY_TASK) for flag in _OF_A_TASK),
    never("gpu_indices", "local_cluster", _EVERY_TASK),
    *(never("replication=between_graph", flag, _OWN_GRAPHS) for flag in _ONE_GRAPH),
    *(never("replication=between_graph", flag, _SCALED_BY_ONE) for flag in _FLOAT16),
    # How variables and gradients meet.
    needs("tune_again", "variable_update=auto"),
    never("variable_update=auto", "local_cluster", _NOT_TIMED),
    never("variable_update=auto", "job_name", _NOT_TIMED),
    needs("agg_small_grads_max_group", "agg_small_grads_max_bytes"),
    never("gradient_repacking", "agg_small_grads_max_bytes", _PACKS_ALL),
    never("partition_bytes", "variable_placement=one", _IN_ONE_PLACE),
    *(never(norm, "xla_compile", _EACH_COMPILED) for norm in _SYNC),
    *(never("rebalance", norm, _WAIT_INSIDE) for norm in _SYNC),
    needs("batch_norm=sync_micro_batch", "num_micro_batches", "accumulate_steps"),
    *(never(norm, "accumulate_steps", _ONE_BY_ONE) for norm in _WHOLE_BATCH),
    *(never("accumulate_steps", flag, _ADDS_UP) for flag in _STAGES),
    # Precision.
    never("use_fp16", "compute_dtype=bfloat16"),
    needs("fp16_loss_scale", *_FLOAT16),
    needs("fp16_enable_auto_loss_scale", *_FLOAT16),
    needs("fp16_inc_loss_scale_every_n", "fp16_enable_auto_loss_scale"),
)


def rows(choices: Choices, about: Collection[str]) -> list[Rule]:
    """The rules about a program's flags, with those derived from modes.

    Args:
      choices: flag -> the names that it can have.
      about: the flags of the program; rules that name other flags are left out.
    """
    modes = modes_of(choices)
    every = (*ROWS, *_needed(modes), *_excluded(modes))
    return [row for row in every if row.names <= set(about)]


def modes_of(choices: Choices) -> dict[str, ModeFacts]:
    """Name -> facts of each mode of `--variable_update` whose facts are known."""
    table = choices.get("variable_update")
    modes = table.items() if isinstance(table, Mapping) else ()
    return {name: facts for name, facts in modes if facts is not None}


def readers(modes: Mapping[str, ModeFacts], *, by_all: bool) -> dict[str, list[str]]:
    """Setting of gradient exchange -> the modes that read it.

    Args:
      modes: all modes.
      by_all: True for the settings that every mode reads whose gradients leave their
        tower; False for the other settings.
    """
    connected = set(modes).difference(_alone(modes))
    settings = dict.fromkeys(name for mode in modes.values() for name in mode.reads)
    reading = {s: [n for n, mode in modes.items() if s in mode.reads] for s in settings}
    return {
        s: names for s, names in reading.items() if (connected <= {*names}) == by_all
    }


def _alone(modes: Mapping[str, ModeFacts]) -> list[str]:
    """The modes in which no gradient leaves its tower."""
    return [n for n, mode in modes.items() if mode.together and not mode.joined]


def _needed(modes: Mapping[str, ModeFacts]) -> Iterator[Rule]:
    """The rules that a flag needs one of the modes that read it; those of switches."""
    switches = [mode.switch for mode in modes.values() if mode.switch]
    yield from (needs(s.flag, f"variable_update={s.of}") for s in switches)
    for first, second in itertools.combinations(switches, 2):
        if first.of == second.of:
            yield never(second.flag, first.term)
    flags = readers(modes, by_all=False)
    if replicated := [name for name, mode in modes.items() if mode.replicates]:
        flags["check_replicas_every"] = replicated
    for flag, names in flags.items():
        # A switch needs a mode; if that mode is listed, the switch need not be.
        beside = [switch.term for switch in switches if switch.of in names]
        yield needs(flag, *(t for t in _terms(modes, names) if t not in beside))


def _excluded(modes: Mapping[str, ModeFacts]) -> Iterator[Rule]:
    """The rules that a flag does not go with some modes."""
    alone = _alone(modes)
    apart = [n for n, mode in modes.items() if not mode.together]
    late = [n for n, mode in modes.items() if not mode.exact and n not in alone]
    one_graph = [n for n, mode in modes.items() if not mode.between_graph]
    for flag, names, why in (
        *((flag, alone, _NO_EXCHANGE) for flag in readers(modes, by_all=True)),
        *((norm, alone, _NO_EXCHANGE) for norm in (*_SYNC, _FIRST_AVERAGES)),
        *((norm, apart, _NOT_TOGETHER) for norm in (*_SYNC, _FIRST_AVERAGES)),
        ("steps_per_loop", apart, _NO_STEPS),
        ("tower_batch_sizes", apart, _NOT_TOGETHER),
        ("rebalance", apart, _NOT_TOGETHER),
        ("rebalance", alone, _NO_EXCHANGE),
        ("backup_workers", apart, _NO_STEPS),
        *((f"elastic={kind}", apart, _NO_STEPS) for kind in ("keep_batch", "scale_lr")),
        ("replay_membership", apart, _NO_STEPS),
        ("elastic", alone, _NO_EXCHANGE),
        *((alone, apart, _NO_STEPS) for alone in _TRAIN_NOTHING),
        ("fp16_enable_auto_loss_scale", late, _NO_SKIP),
        ("replication=between_graph", one_graph, _OWN_GRAPHS),
    ):
        yield from (never(flag, term, why) for term in _terms(modes, names))


def _terms(modes: Mapping[str, ModeFacts], names: Iterable[str]) -> Iterator[str]:
    """The terms that choose one of these modes."""
    for name in names:
        if switch := modes[name].switch:
            yield switch.term
        yield f"variable_update={name}"


def broken(
    rows: Iterable[Rule], settings: Mapping[str, Any], given: Collection[str]
) -> Iterator[Problem]:
    """The problems of settings that break rules.

    Args:
      rows: the rules.
      settings, given: as in `Term.holds`.
    """
    violations = [
        (row, problem) for row in rows if (problem := row.problem(settings, given))
    ]
    for row, problem in violations:
        if not any(row.follows_from(other) for other, _ in violations):
            yield problem


def notes(rows: Iterable[Rule], name: str) -> list[str]:
    """The rules of a flag, as `--help` lists them.

    A rule that is about one value begins with it, as in `interleaved needs ...`.
    """
    needed: dict[str, list[str]] = {}
    excluded: dict[str, list[str]] = {}
    for row in rows:
        about = row.names if row.relation == AT_MOST_ONE else [row.flag.name]
        if name not in about:
            continue
        texts = [str(t) for t in (row.flag, *row.others) if t.name != name]
        switched = row.flag.value in ("", "true", "false")  # said without a value
        value = "" if switched else f"{row.flag.value} "
        if row.relation == NEEDS:
            needed.setdefault(value, []).append(_in_short(texts))
        else:
            excluded.setdefault(value, []).extend(texts)
    lines = [f"{value}needs {' and '.join(all_)}" for value, all_ in needed.items()]
    return lines + [
        f"{value}not with {_in_short(texts)}" for value, texts in excluded.items()
    ]


_HEADING = """\
# Which flags go together

    python -m towers.train --check_flags --num_gpus=2 --model=lenet

prints `legal`, or all that is wrong with the flags, and trains nothing. A command line
that breaks a row of this table is refused. `python -m towers.train --help=rules` prints
the table, from the rows of `flags/rules.py`, which the code checks.

Other rules say which flags go with a variable update. They follow from the attributes
of its class, and `python -m towers.train --help=variables` shows them beside the flags.

A flag without effect is refused, too. There are three exceptions: flags about GPUs on a
machine without GPUs, flags about the speed of reading with synthetic data, and, with
`--eval`, `--forward_only` or `--input_only`, the flags of the training whose
checkpoints are evaluated, or whose forward pass or input is timed.

| flag | | other | |
|---|---|---|---|"""


def page(rows: Iterable[Rule]) -> str:
    """docs/flags.md."""
    lines = [_HEADING]
    for row in rows:
        word = "or" if row.relation == NEEDS else "and"
        terms = _join((f"`{term}`" for term in row.others), word)
        relation = NEVER if row.relation == AT_MOST_ONE else row.relation
        why = with_flags(row.why.lstrip(",; "))
        lines.append(f"| `{row.flag}` | {relation} | {terms} | {why} |")
    return "\n".join(lines)


def _in_short(words: Sequence[str]) -> str:
    """The terms joined by "or"; a repeated flag is shortened to its value."""
    short, before = [], None
    for word in words:
        flag, _, value = word.partition("=")
        short.append(value if value and flag == before else word)
        before = flag
    return _join(short, "or")


def _join(words: Iterable[str], last: str) -> str:
    """Words as `listing` joins them, with one pattern for --eval_during_training_..."""
    short = [re.sub(r"(--eval_during_training)_\w+", r"\1_*", word) for word in words]
    return listing(dict.fromkeys(short), last)
