"""Which flags go together: one table for the code, `--help` and docs/flags.md.

A row is a line:

    never("data_dir", "data_name=synthetic", ", which reads no files"),
    needs("save_model_secs", "train_dir"),
    at_most_one("num_batches", "num_epochs"),

A flag stands for any value but its default, and `flag=value` for that value, default or
not.  A setting that would have no effect is as wrong as one that contradicts another.
What takes more than two flags to say, or arithmetic, is a function in `flags.config`.

    python -m flags.rules > docs/flags.md
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flags import field


class Term(NamedTuple):
    """A flag, or one of its values.

    Attributes:
      name: of the flag.
      value: as on the command line; "" for any value but the default.
    """

    name: str
    value: str

    @classmethod
    def parse(cls, text: str) -> "Term":
        """The term that is written `flag` or `flag=value`."""
        name, _, value = text.partition("=")
        return cls(name, value)

    def holds(self, settings: Mapping[str, Any], given: Collection[str]) -> bool:
        """Whether the flag has such a value.

        Args:
          settings: all that can be trusted, by name.
          given: names of those that differ from their default.
        """
        if not self.value:
            return self.name in given
        if self.name not in settings:
            return False
        value = settings[self.name]
        text = str(value).lower() if isinstance(value, bool) else str(value)
        return self.value == text

    def __str__(self) -> str:
        if self.value in ("true", "false"):
            return field.spell(self.name, self.value == "true")
        return f"--{self.name}={self.value}" if self.value else f"--{self.name}"


class Rule(NamedTuple):
    """One rule.

    Attributes:
      flag: what the rule is about.
      relation: `NEVER`, `NEEDS` or `AT_MOST_ONE`.
      others: what it excludes, or the alternatives of which it needs one.
      why: the end of the sentence, from the comma or semicolon on; may be empty.
    """

    flag: Term
    relation: str
    others: tuple[Term, ...]
    why: str

    def sentence(
        self, settings: Mapping[str, Any], given: Collection[str]
    ) -> str | None:
        """The sentence for settings that break the rule; None if they keep it.

        Args:
          settings, given: as `Term.holds` has them.
        """
        terms = (self.flag, *self.others)
        active = [term for term in terms if term.holds(settings, given)]
        if self.relation == NEEDS:
            if active != [self.flag]:
                return None
            *leading, final = map(str, self.others)
            rest = f"{', '.join(leading)} or {final}" if leading else final
        else:
            if len(active) < 2 or (self.relation == NEVER and active[0] != self.flag):
                return None
            rest = " and ".join(
                field.spell(t.name, settings[t.name]) for t in active[1:]
            )
        first = field.spell(active[0].name, settings[active[0].name])
        verb = NEEDS if self.relation == NEEDS else NEVER
        return f"{first}: {verb} {rest}{self.why}"

    def follows_from(self, other: "Rule") -> bool:
        """Whether settings that are mended for `other` keep this rule, too.

        It then needs no sentence of its own.
        """
        both_need = self.relation == other.relation == NEEDS
        same = self.flag.name == other.flag.name
        return both_need and same and set(other.others) < set(self.others)


NEVER = "does not go with"
NEEDS = "needs"
AT_MOST_ONE = "is one of"


def never(flag: str, other: str, why: str = "") -> Rule:
    """The two exclude each other; `why` begins with a comma or a semicolon."""
    return Rule(Term.parse(flag), NEVER, (Term.parse(other),), why)


def needs(flag: str, *others: str) -> Rule:
    """The first has no effect without any of the others."""
    return Rule(Term.parse(flag), NEEDS, tuple(map(Term.parse, others)), "")


def at_most_one(flag: str, *others: str) -> Rule:
    """No two of them."""
    return Rule(
        Term.parse(flag), AT_MOST_ONE, tuple(map(Term.parse, others)), "; give one"
    )


# Terms that several rows share.
_EVAL_DURING_TRAINING = (
    "eval_during_training_every_n_steps",
    "eval_during_training_every_n_epochs",
    "eval_during_training_at_specified_steps",
    "eval_during_training_at_specified_epochs",
)
ALL_REDUCE = ("variable_update=replicated", "variable_update=relaxed")
_SHADOWED = "variable_update=distributed_replicated"
_ASYNCHRONOUS = ("cross_replica_sync=false", "variable_update=asynchronous")
_ONE_COPY = (
    "variable_update=parameter_server",
    "variable_update=distributed_replicated",
    "variable_update=asynchronous",
    "variable_update=staged",
)
_OF_ONE_COPY = ("variable_placement", "partition_bytes", "sufficient_factors")
_LATE = (
    *_ASYNCHRONOUS,
    "staged_vars",
    "variable_update=staged",
    "variable_consistency=relaxed",
    "variable_update=relaxed",
)
_SYNC = ("batch_norm=sync", "batch_norm=sync_micro_batch")
_WHOLE_BATCH = ("batch_norm=tower", "batch_norm=sync")
_FLOAT16 = ("use_fp16", "compute_dtype=float16")
_OF_A_TASK = ("task_index", "ps_hosts", "worker_hosts", "controller_host")
_OF_GPUS = (
    *("local_parameter_device", "gpu_indices", "logical_gpus", "allow_growth"),
    *("gpu_memory_frac_for_testing", "tensor_float_32", "deterministic_ops"),
    "batchnorm_persistent",
)
_SHOW_A_STEP = ("trace_file", "graph_file", "pipeline_report")
_STAGES = ("num_stages", "num_micro_batches", "recompute")
_ONE_GRAPH = (
    "variable_update=replicated",
    "variable_update=independent",
    "variable_update=staged",
    "variable_update=relaxed",
    "variable_update=auto",
    "variable_consistency=relaxed",
    "staged_vars",
    *_SYNC,
    "check_replicas_every",
    "max_staleness",
    "shard_embeddings",
    "num_stages",
    "num_micro_batches",
)

# Ends of sentences that several rows share: why two flags exclude each other.
_ADDS_UP = "; micro-batches add up the same way"
_EACH_COMPILED = ", which compiles each tower by itself"
_ONE_BY_ONE = (
    ", of whose rounds one ends before the next begins; --num_micro_batches can wait "
    "for one another"
)
_NOT_TOGETHER = ", whose towers do not step together"
_NO_SKIP = ", which cannot leave out an update"
_EVERY_RATE = ", which says every learning rate"
_NO_STEP = ", which takes no training step"
_NO_FILES = ", which reads no files"
_EVERY_TASK = ", which starts every task itself"
_NO_STEPS = ", whose towers are not called step by step"
_NOT_TIMED = ", whose modes are not timed; name one"
_OWN_FUNCTIONS = ", whose passes are functions of their own"
_OWN_GRAPHS = ", where each client has towers of its own"
_SCALED_BY_ONE = ", whose loss is scaled by one client"
_IN_ONE_PLACE = ", which has one device for all"
_NO_EXCHANGE = ", where no gradient leaves its tower"

ROWS = (
    at_most_one("num_batches", "num_epochs"),
    at_most_one("save_model_secs", "save_model_steps"),
    at_most_one("num_eval_batches", "num_eval_epochs"),
    at_most_one("init_learning_rate", "resnet_base_lr"),
    at_most_one("eval", *_EVAL_DURING_TRAINING),
    # Files and what is written to them.
    needs("eval", "train_dir"),
    needs("stop_at_top_1_accuracy", *_EVAL_DURING_TRAINING),
    *(needs(flag, "train_dir") for flag in ("save_model_secs", "save_model_steps")),
    needs("save_retry_secs", "save_model_secs", "save_model_steps"),
    needs("max_ckpts_to_keep", "train_dir"),
    needs("summary_verbosity", "train_dir"),
    needs("summary_verbosity", "save_summaries_steps"),
    needs("save_summaries_steps", "train_dir"),
    needs("save_summaries_steps", "summary_verbosity"),
    needs("benchmark_test_id", "benchmark_log_dir"),
    *(never(file, "eval", _NO_STEP) for file in _SHOW_A_STEP),
    never("data_dir", "data_name=synthetic", _NO_FILES),
    never("train_split", "data_name=synthetic", _NO_FILES),
    never("eval_split", "data_name=synthetic", _NO_FILES),
    # The learning rate.
    never("init_learning_rate", "piecewise_learning_rate_schedule", _EVERY_RATE),
    never("minimum_learning_rate", "piecewise_learning_rate_schedule", _EVERY_RATE),
    never("resnet_base_lr", "piecewise_learning_rate_schedule", _EVERY_RATE),
    never("num_epochs_per_decay", "piecewise_learning_rate_schedule", _EVERY_RATE),
    never(
        "learning_rate_decay_factor", "piecewise_learning_rate_schedule", _EVERY_RATE
    ),
    never("learning_rate_schedule", "piecewise_learning_rate_schedule", _EVERY_RATE),
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
    *(needs(flag, "job_name") for flag in _OF_A_TASK),
    never("job_name", "local_cluster", _EVERY_TASK),
    *(never(flag, "local_cluster", _EVERY_TASK) for flag in _OF_A_TASK),
    never("gpu_indices", "local_cluster", _EVERY_TASK),
    *(never("replication=between_graph", flag, _OWN_GRAPHS) for flag in _ONE_GRAPH),
    *(never("replication=between_graph", flag, _SCALED_BY_ONE) for flag in _FLOAT16),
    # How variables and gradients meet.
    needs("tune_again", "variable_update=auto"),
    never("variable_update=auto", "local_cluster", _NOT_TIMED),
    never("variable_update=auto", "job_name", _NOT_TIMED),
    needs("check_replicas_every", *ALL_REDUCE, _SHADOWED),
    needs("cross_replica_sync", "variable_update=parameter_server"),
    needs("staged_vars", "variable_update=parameter_server"),
    needs("variable_consistency", "variable_update=replicated"),
    never("staged_vars", "cross_replica_sync=false"),
    needs("max_staleness", *_ASYNCHRONOUS),
    needs("staleness_lr", *_ASYNCHRONOUS),
    *(never("steps_per_loop", mode, _NO_STEPS) for mode in _ASYNCHRONOUS),
    needs("all_reduce_spec", *ALL_REDUCE),
    needs("gradient_repacking", *ALL_REDUCE),
    needs("agg_small_grads_max_bytes", *ALL_REDUCE),
    needs("agg_small_grads_max_group", *ALL_REDUCE),
    needs("agg_small_grads_max_group", "agg_small_grads_max_bytes"),
    never(
        "gradient_repacking",
        "agg_small_grads_max_bytes",
        "; it packs all gradients already",
    ),
    *(needs(flag, *_ONE_COPY) for flag in _OF_ONE_COPY),
    never("partition_bytes", "variable_placement=one", _IN_ONE_PLACE),
    never("compact_gradient_transfer", "variable_update=independent", _NO_EXCHANGE),
    never("sparse_to_dense_grads", "variable_update=independent", _NO_EXCHANGE),
    *(never(norm, "variable_update=independent", _NO_EXCHANGE) for norm in _SYNC),
    *(never(norm, mode, _NOT_TOGETHER) for norm in _SYNC for mode in _ASYNCHRONOUS),
    *(never(norm, "xla_compile", _EACH_COMPILED) for norm in _SYNC),
    needs("batch_norm=sync_micro_batch", "num_micro_batches", "accumulate_steps"),
    *(never(norm, "accumulate_steps", _ONE_BY_ONE) for norm in _WHOLE_BATCH),
    *(never("accumulate_steps", flag, _ADDS_UP) for flag in _STAGES),
    # Precision.
    never("use_fp16", "compute_dtype=bfloat16"),
    needs("fp16_loss_scale", *_FLOAT16),
    needs("fp16_enable_auto_loss_scale", *_FLOAT16),
    needs("fp16_inc_loss_scale_every_n", "fp16_enable_auto_loss_scale"),
    *(never("fp16_enable_auto_loss_scale", mode, _NO_SKIP) for mode in _LATE),
)


def broken(
    settings: Mapping[str, Any],
    given: Collection[str],
    *,
    about: Collection[str],
) -> Iterator[str]:
    """The sentences of the rows that settings break.

    Args:
      settings: all that can be trusted, by name.
      given: names of those that differ from their default.
      about: the flags of the program; rows that name others say nothing about it.
    """
    violations = [
        (row, sentence)
        for row in ROWS
        if {term.name for term in (row.flag, *row.others)} <= set(about)
        and (sentence := row.sentence(settings, given))
    ]
    for row, sentence in violations:
        if not any(row.follows_from(other) for other, _ in violations):
            yield sentence


def notes(name: str, about: Collection[str]) -> list[str]:
    """The rules of a flag as `--help` lists them.

    A rule of one value only begins with that value, as in `interleaved needs ...`.

    Args:
      name: of the flag.
      about: the flags of the program.
    """
    needed: dict[str, list[str]] = {}
    excluded: dict[str, list[str]] = {}
    for row in ROWS:
        terms = (row.flag, *row.others)
        if not {term.name for term in terms} <= set(about):
            continue
        texts = [str(term) for term in row.others]
        if row.relation == AT_MOST_ONE and name in [term.name for term in terms]:
            texts = [str(term) for term in terms if term.name != name]
            excluded.setdefault("", []).extend(texts)
        elif row.flag.name == name:
            value = f"{row.flag.value} " if row.flag.value not in _SWITCHED else ""
            if row.relation == NEEDS:
                needed.setdefault(value, []).append(_in_short(texts))
            elif row.relation == NEVER:
                excluded.setdefault(value, []).extend(texts)
    lines = [f"{value}needs {' and '.join(all_)}" for value, all_ in needed.items()]
    return lines + [
        f"{value}not with {_in_short(texts)}" for value, texts in excluded.items()
    ]


_SWITCHED = ("", "true", "false")  # what a flag says without a value

_HEADING = """\
# Which flags go together

A command line that breaks a row is refused, with all that is wrong with it; so is most
that would have no effect, but not settings of GPUs, or of the speed of reading, where
there are none and nothing is read, nor, with `--eval`, those of the training whose
checkpoints it evaluates.  `python -m towers.train
--check_flags` and any other flags say `legal`, or why not, and train nothing.  The rows
are those of `flags/rules.py`, which the code and `--help` read.

| flag | | other | |
|---|---|---|---|"""


def page() -> str:
    """docs/flags.md."""
    lines = [_HEADING]
    for row in ROWS:
        word = "or" if row.relation == NEEDS else "and"
        terms = _join((f"`{term}`" for term in row.others), word)
        relation = NEVER if row.relation == AT_MOST_ONE else row.relation
        why = row.why.lstrip(",; ")
        lines.append(f"| `{row.flag}` | {relation} | {terms} | {why} |")
    return "\n".join(lines) + "\n"


def _in_short(words: Sequence[str]) -> str:
    """The terms joined by "or"; a flag that is repeated keeps only its value."""
    short, before = [], None
    for word in words:
        flag, _, value = word.partition("=")
        short.append(value if value and flag == before else word)
        before = flag
    return _join(short, "or")


def _join(words: Iterable[str], last: str) -> str:
    """a, b `last` c; the flags --eval_during_training_... become one pattern."""
    short = [re.sub(r"(--eval_during_training)_\w+", r"\1_*", word) for word in words]
    *leading, final = dict.fromkeys(short)
    return f"{', '.join(leading)} {last} {final}" if leading else final


if __name__ == "__main__":
    print(page(), end="")
