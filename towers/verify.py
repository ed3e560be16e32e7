"""The main that compares every way to train with one tower.

python -m towers.verify --model=lenet

Exit status 0: all agree; 1: one does not, or fails; 2: the flags, the model or the data
are wrong; the others are in docs/exit_statuses.md.
"""

import contextlib
import dataclasses
import itertools
import sys
from collections.abc import Callable, Collection, Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import config, parse
from flags.problem import wrong_setting
from towers import planning
from towers.cluster.sessions import settle_process
from towers.compute.tower import check_batch_norm
from towers.data import inputs
from towers.errors import explain, interrupts
from towers.errors.collected import not_printed, refuse, refuse_settings
from towers.gradients import reduction
from towers.layout.gpus import Gpus
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import RECOMPUTE
from towers.optimizers import learning_rate
from towers.optimizers.optimizer import OPTIMIZERS
from towers.session.progress import Console
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import agreement, cases, selection, verdict

# Flag -> the table that its values are names in.
CHOICES: dict[str, Collection[str]] = {
    "learning_rate_schedule": learning_rate.SCHEDULES,
    "model": models.MODELS,
    "optimizer": OPTIMIZERS,
    # What `auto` chooses is between these.
    "recompute": [name for name in RECOMPUTE if name != "auto"],
    "schedule": SCHEDULES,
    "variable_update": VARIABLE_UPDATES,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compares what the command line asks for; returns the exit status.

    Args:
      argv: the command line; the process's own when None.
    """
    console = Console(sys.stdout)
    try:
        with interrupts.raised():
            settings = parse.parse(
                sys.argv if argv is None else argv, CHOICES, config.VerifyConfig
            )
            subject, selected = _read(settings)
            return _explained(subject, lambda: _compare(subject, selected, console))
    except parse.UsageError as error:
        return refuse_settings(error)
    except ValueError as error:  # of the run that has the most towers
        return refuse_settings(error, num_gpus="num_towers")
    except OSError as error:
        return not_printed(error)
    except KeyboardInterrupt as error:
        stopped = interrupts.of(error)
        left = "nothing is saved; the same command begins anew"
        print(f"Stopped by {stopped.name}: {left}.", file=sys.stderr)
        return stopped.status


def _explained(subject: agreement.TrainingSubject, act: Callable[[], int]) -> int:
    """Calls `act`; prints a sentence if it fails.  Returns the exit status."""
    try:
        return act()
    except tf.errors.OpError as error:
        damage = inputs.explain(error, subject.source)
        sentence = damage or explain.sentence(error)
        if not sentence:
            raise
        return refuse([sentence], status=1)


def _read(
    settings: config.VerifyConfig,
) -> tuple[agreement.TrainingSubject, selection.Selection]:
    """What is trained, and in which ways."""
    verify = settings.verify
    if verify.device == "cpu" and verify.logical_gpus > 1:
        raise wrong_setting(
            "logical_gpus", verify.logical_gpus, "does not go with `device=cpu`"
        )
    plan = _plan(settings)
    check_batch_norm(verify.batch_norm, plan.model, plan.source)
    where = plan.placement
    usable = reduction.usable(where.device_kind)
    specs = verify.all_reduce_spec or (
        *cases.SPECS,
        *(name for name in usable if name not in cases.SPECS),
    )
    named = verify.all_reduce_spec and verify.compact_gradient_transfer
    for text, wire in itertools.product(specs, named or ("float32",)):
        kind, dtype = where.device_kind, tf.as_dtype(wire)
        reduction.check(text, kind=kind, hosts=where.hosts, wire=dtype)
    selection.check_batch(verify, plan.examples_per_step, plan.options.batch_size)
    subject = _subject(settings, plan)
    return subject, selection.Selection(verify, subject, specs)


def _subject(
    settings: config.VerifyConfig, plan: planning.Plan
) -> agreement.TrainingSubject:
    """What is trained."""
    verify = settings.verify
    return agreement.TrainingSubject(
        model=plan.model,
        source=plan.source,
        update=plan.update,
        global_batch=plan.examples_per_step,
        num_steps=verify.num_steps,
        bound=verify.bound,
        device=plan.placement.kind,
        gpus=Gpus(split=verify.logical_gpus),
        options=dataclasses.replace(plan.options, batch_norm=verify.batch_norm),
    )


def _plan(settings: config.VerifyConfig) -> planning.Plan:
    """The plan of a run of the most towers."""
    num_towers = max(selection.num_towers(settings.verify))
    flat = {name: v for name, v in config.flat(settings).items() if _shared(name)}
    # The rounding of TensorFloat-32 would hide the differences that are looked for.
    run = config.make(num_gpus=num_towers, tensor_float_32=False, **flat)
    with contextlib.suppress(ValueError):  # of which the plan says all
        settle_process(planning.placement_of(run), run.devices)
    return planning.make(run, models.get)


def _shared(name: str) -> bool:
    """Whether a flag means the same in `towers.train`; three of `verify` do."""
    flag = config.all_flags(config.VerifyConfig)[name]
    return flag.section != "verify" or name in (
        "device",
        "logical_gpus",
        "tf_random_seed",
    )


def _compare(
    subject: agreement.TrainingSubject,
    selected: selection.Selection,
    console: Console,
) -> int:
    """Prints the table, a row as soon as it is known; returns the exit status."""
    assert isinstance(subject.source, inputs.NamedSource)
    source = subject.source.decoded()
    subject = dataclasses.replace(subject, source=source)
    console(
        f"{subject.model.name} on {source.name}: {len(selected.cases)} cases, each a "
        "variable update, a number of towers, and a reduction or a pipeline; all train "
        f"on the same {subject.global_batch} examples in each of {subject.num_steps} "
        f"steps, from seed {subject.options.seed}"
    )
    for words in selected.left_out:
        console(f"left out: {words}")
    table = verdict.Table(selected.cases)
    console(table.heading)
    outcomes = []
    for outcome in agreement.compare(subject, selected.cases):
        outcomes.append(outcome)
        console(table.row(outcome))
    console(verdict.summary(outcomes, subject.bound))
    return 1 if any(not outcome.agrees for outcome in outcomes) else 0


if __name__ == "__main__":
    start.take_interrupts()
    sys.exit(main())
