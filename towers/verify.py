"""The main that proves the mean: every way to train against one tower.

python -m towers.verify --model=lenet

Exit status 0: all agree; 1: one does not; 2: the flags, the model or the data are at
fault.
"""

import dataclasses
import itertools
import math
import sys
from collections.abc import Sequence
from typing import Any

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import config, parse
from towers import plan
from towers.compute.joining import BATCH_NORM
from towers.compute.tower import check_batch_norm
from towers.data import inputs
from towers.errors import explain
from towers.errors.findings import not_printed, refuse
from towers.gradients import reduction
from towers.layout.schedule import SCHEDULES
from towers.layout.shards import Shards
from towers.layout.stages import RECOMPUTE, Pipeline
from towers.session.progress import Console
from towers.updates.optimizer import OPTIMIZERS
from towers.updates.variable_update import VARIABLE_UPDATES
from towers.verification import agreement, verdict, ways

# Flag -> the table that its values are names in.
CHOICES = {
    "model": models.MODELS,
    "optimizer": OPTIMIZERS,
    # What `auto` chooses is between these.
    "recompute": [name for name in RECOMPUTE if name != "auto"],
    "schedule": SCHEDULES,
    "variable_update": VARIABLE_UPDATES,
}

_NUM_TOWERS = (1, 2, 4)
_NARROW = ("bfloat16", "float16")
_TOO_MANY = {
    "num_stages": "more than the model has blocks, or the machine devices",
    "num_micro_batches": "does not divide every tower's batch",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compares what the command line asks for; returns the exit status."""
    console = Console(sys.stdout)
    try:
        settings = parse.parse(
            sys.argv if argv is None else argv, CHOICES, config.VerifyConfig
        )
        subject, wanted, left_out = _read(settings)
    except (parse.UsageError, plan.PlanError) as error:
        return refuse(error.errors, status=2)
    except ValueError as error:
        return refuse([str(error)], status=2)
    try:
        return _compare(subject, wanted, left_out, console)
    except ValueError as error:
        return refuse([str(error)], status=2)
    except tf.errors.OpError as error:
        if damage := inputs.explain(error, subject.source):
            return refuse([damage], status=2)
        if sentence := explain.operation_error(error):
            return refuse([sentence], status=1)
        raise
    except OSError as error:
        return not_printed(error)
    except KeyboardInterrupt:
        return refuse(["interrupted"], status=130)


def _read(
    settings: config.VerifyConfig,
) -> tuple[agreement.Subject, list[verdict.Case], list[str]]:
    """What the settings compare, and what they leave out of what they might."""
    verify = settings.verify
    num_towers = verify.num_towers or _default_num_towers(verify.device)
    parts = _plan(settings, max(num_towers))
    check_batch_norm(verify.batch_norm, parts.model, parts.source)
    where = parts.placement
    specs = verify.all_reduce_spec or (
        *ways.SPECS,
        *(name for name in reduction.usable(where.kind) if name not in ways.SPECS),
    )
    for text in specs:
        reduction.check(text, kind=where.kind, hosts=where.hosts)
    for count, rounds in itertools.product(num_towers, _rounds(verify)):
        if parts.examples_per_step % (count * rounds):
            of = f" in {rounds} rounds" if rounds > 1 else ""
            raise ValueError(
                f"--num_towers={','.join(map(str, num_towers))}: {count} towers cannot "
                f"share a batch of {parts.examples_per_step}, {max(num_towers)} times "
                f"{parts.options.batch_size}{of}; choose --batch_size so that they can"
            )
    subject = agreement.Subject(
        model=parts.model,
        source=parts.source,
        update=parts.update,
        global_batch=parts.examples_per_step,
        num_steps=verify.num_steps,
        bound=verify.bound,
        device=verify.device,
        options=dataclasses.replace(parts.options, batch_norm=verify.batch_norm),
    )
    packings = verify.gradient_repacking, verify.agg_small_grads_max_bytes
    choices = ways.exchanges(specs, *packings)
    names, left_out = _modes(verify), []
    wanted = ways.cases(num_towers, choices, rounds=_rounds(verify), names=names)
    wanted += _narrow(
        verify,
        num_towers,
        choices=choices,
        optimizer=subject.update.optimizer,
        left_out=left_out,
    )
    cuts = _cuts(verify, subject, num_towers, left_out)
    wanted += _sharded(verify, subject, num_towers, cuts=cuts, left_out=left_out)
    thorough = verify.pipelines == "all"
    wanted += ways.pipelined(num_towers, cuts, names=names, thorough=thorough)
    return subject, ways.in_order(wanted), left_out


def _rounds(verify: Any) -> Sequence[int]:
    """That towers take their batches in; none waits for the next, to be one with it."""
    pieces = BATCH_NORM[verify.batch_norm].pieces
    return (1,) if pieces else verify.accumulate_steps


def _modes(verify: Any) -> Sequence[str]:
    """Those to compare; all when empty."""
    names = verify.variable_update
    if BATCH_NORM[verify.batch_norm].towers:
        joined = [name for name, mode in VARIABLE_UPDATES.items() if mode.joined]
        names = names or joined
        if apart := sorted(set(names) - set(joined)):
            raise ValueError(
                f"--batch_norm={verify.batch_norm}: the towers of {', '.join(apart)} "
                "do not step together on one model; leave it out of --variable_update"
            )
    return names


def _narrow(
    verify, num_towers, *, choices, optimizer, left_out: list[str]
) -> list[verdict.Case]:
    """Gradients that travel in 16 bits."""
    asked = verify.compact_gradient_transfer
    dtypes = [tf.as_dtype(d) for d in asked or _NARROW if d != "float32"]
    if dtypes and optimizer not in ways.LINEAR:
        why = f"a rounded gradient may turn a step of {optimizer} by any amount"
        if asked:
            raise ValueError(
                f"--compact_gradient_transfer={','.join(asked)}: {why}; write "
                f"--optimizer={' or '.join(ways.LINEAR)}"
            )
        left_out.append(f"--compact_gradient_transfer: {why}")
        return []
    count = max(num_towers)
    names = _modes(verify)
    return ways.narrow(count, choices, dtypes, names=names) if count > 1 else []


def _sharded(
    verify,
    subject: agreement.Subject,
    num_towers,
    *,
    cuts: ways.Cuts,
    left_out: list[str],
) -> list[verdict.Case]:
    """Classifiers and tables that are spread; by default those that there are."""
    names = _modes(verify) or list(VARIABLE_UPDATES)
    gpus = _num_gpus(verify.device) or None
    shards = []
    for count in verify.num_shards or (2,):
        if count == 1 or count > (gpus or count):
            continue
        found, errors = [], []
        for one in (Shards(classifier=count), Shards(embeddings=count)):
            try:
                agreement.check(subject, shards=one)
                found.append(one)
            except ValueError as error:
                errors.append(error)
        if verify.num_shards and not found:
            raise errors[0]
        left_out += [_cause(error) for error in errors]
        both = [Shards(count, count)] if len(found) == 2 else []
        shards += found + both
    rounds = _rounds(verify)
    return ways.sharded(num_towers, shards, cuts, names=names, rounds=rounds)


def _cause(error: ValueError) -> str:
    """What an error says without the advice: all lines and sentences but the first."""
    return str(error).partition(";")[0]


def _is_chain(verify: Any, subject: agreement.Subject, left_out: list[str]) -> bool:
    """Whether the model can be cut between its blocks, if that is wanted.

    Raises:
      ValueError: it cannot, and is asked to be.
    """
    if verify.pipelines == "none":
        return False
    try:
        agreement.check(subject, pipeline=Pipeline(recompute="block"))
    except ValueError as error:
        settings = verify.num_stages, verify.num_micro_batches, verify.recompute
        if verify.pipelines == "all" or any(settings):
            raise
        left_out.append(f"--pipelines: {_cause(error)}")
        return False
    return True


def _cuts(
    verify: Any, subject: agreement.Subject, num_towers, left_out: list[str]
) -> ways.Cuts:
    """The settings of pipelines; defaults that do not fit are left out.

    Raises:
      ValueError: what is asked for does not fit; the sentence says what would.
    """
    blocks = len(subject.model.blocks)
    default = ways.Cuts(blocks)
    if not _is_chain(verify, subject, left_out):
        return default._replace(stages=())
    gpus = _num_gpus(verify.device)
    most = min(blocks, gpus // min(num_towers)) if gpus else blocks
    batches = [subject.global_batch // count for count in num_towers]
    stages = [k for k in verify.num_stages or default.stages if k <= most]
    if len(stages) < len(verify.num_stages):
        raise ValueError(
            f"--num_stages={','.join(map(str, verify.num_stages))}: "
            f"{subject.model.name} is a chain of {blocks} blocks"
            + (f", and there are {gpus} GPUs" if gpus else "")
            + f"; write {most} or fewer"
        )
    fits = [
        m
        for m in verify.num_micro_batches or default.micro_batches
        if not any(batch % m for batch in batches)
    ]
    if len(fits) < len(verify.num_micro_batches):
        common = math.gcd(*batches)
        legal = [str(m) for m in range(1, common + 1) if common % m == 0]
        raise ValueError(
            f"--num_micro_batches={','.join(map(str, verify.num_micro_batches))}: "
            f"must divide every tower's batch, {' and '.join(map(str, batches))}; "
            f"write some of {','.join(legal)}"
        )
    for name, all_of_them, some in (
        ("num_stages", default.stages, stages),
        ("num_micro_batches", default.micro_batches, fits),
    ):
        if not getattr(verify, name) and len(some) < len(all_of_them):
            rest = ",".join(str(n) for n in all_of_them if n not in some)
            left_out.append(f"--{name}={rest}: {_TOO_MANY[name]}")
    return ways.Cuts(
        blocks,
        stages,
        fits,
        verify.schedule or default.schedules,
        verify.recompute or default.recompute,
        gpus or None,
        BATCH_NORM[verify.batch_norm].pieces,
    )


def _num_gpus(device: str) -> int:
    return len(tf.config.list_physical_devices("GPU")) if device != "cpu" else 0


def _default_num_towers(device: str) -> tuple[int, ...]:
    gpus = _num_gpus(device)
    return tuple(n for n in _NUM_TOWERS if n <= gpus) or _NUM_TOWERS


def _plan(settings: config.VerifyConfig, num_towers: int) -> plan.Plan:
    """The parts of a run of so many towers; its errors speak of our flags."""
    flat = {name: v for name, v in config.flat(settings).items() if _shared(name)}
    run = config.make(num_gpus=num_towers, **flat)
    try:
        return plan.make(run, models.get)
    except plan.PlanError as error:
        ours = [text.replace("--num_gpus", "--num_towers") for text in error.errors]
        raise plan.PlanError(ours) from None


def _shared(name: str) -> bool:
    """Whether a flag means to a run what it means here: of `verify`, two do."""
    flag = config.all_flags(config.VerifyConfig)[name]
    return flag.section != "verify" or name in ("device", "tf_random_seed")


def _compare(
    subject: agreement.Subject,
    wanted: Sequence[verdict.Case],
    left_out: Sequence[str],
    console: Console,
) -> int:
    """Prints the table, a row as soon as it is known; returns the exit status."""
    console(
        f"{subject.model.name} on {subject.source.name}: {len(wanted)} ways to train "
        f"on the same {subject.global_batch} examples in each of {subject.num_steps} "
        f"steps, from seed {subject.options.seed}"
    )
    for words in left_out:
        console(f"left out: {words}")
    console(verdict.HEADING)
    outcomes = []
    for outcome in agreement.compare(subject, wanted):
        outcomes.append(outcome)
        console(verdict.row(outcome))
    console(verdict.summary(outcomes, subject.bound))
    return 1 if any(not outcome.agrees for outcome in outcomes) else 0


if __name__ == "__main__":
    start.take_interrupts()
    sys.exit(main())
