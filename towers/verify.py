"""The main that proves the mean: every way to train against one tower.

python -m towers.verify --model=lenet

Exit status 0: all agree; 1: one does not; 2: the flags, the model or the data are at
fault.
"""

import dataclasses
import sys
from collections.abc import Callable, Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import config, parse
from towers import planning
from towers.compute.tower import check_batch_norm
from towers.data import inputs
from towers.errors import explain
from towers.errors.findings import not_printed, refuse
from towers.gradients import reduction
from towers.layout.schedule import SCHEDULES
from towers.layout.stages import RECOMPUTE
from towers.session.progress import Console
from towers.updates.optimizer import OPTIMIZERS
from towers.updates.variable_update import VARIABLE_UPDATES
from towers.verification import agreement, selection, verdict, ways

# Flag -> the table that its values are names in.
CHOICES = {
    "model": models.MODELS,
    "optimizer": OPTIMIZERS,
    # What `auto` chooses is between these.
    "recompute": [name for name in RECOMPUTE if name != "auto"],
    "schedule": SCHEDULES,
    "variable_update": VARIABLE_UPDATES,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Compares what the command line asks for; returns the exit status."""
    console = Console(sys.stdout)
    try:
        settings = parse.parse(
            sys.argv if argv is None else argv, CHOICES, config.VerifyConfig
        )
        subject, selected = _read(settings)
        return _explained(subject, lambda: _compare(subject, selected, console))
    except (parse.UsageError, planning.PlanError) as error:
        return refuse(error.errors, status=2)
    except ValueError as error:
        return refuse([str(error)], status=2)
    except OSError as error:
        return not_printed(error)
    except KeyboardInterrupt:
        return refuse(["interrupted"], status=130)


def _explained(subject: agreement.Subject, act: Callable[[], int]) -> int:
    """The exit status of an act, or of the sentence that says why it fails."""
    try:
        return act()
    except tf.errors.OpError as error:
        if damage := inputs.explain(error, subject.source):
            return refuse([damage], status=2)
        if sentence := explain.operation_error(error):
            return refuse([sentence], status=1)
        raise


def _read(
    settings: config.VerifyConfig,
) -> tuple[agreement.Subject, selection.Selection]:
    """What is trained, and in which ways."""
    verify = settings.verify
    plan = _plan(settings, max(selection.num_towers(verify)))
    check_batch_norm(verify.batch_norm, plan.model, plan.source)
    where = plan.placement
    specs = verify.all_reduce_spec or (
        *ways.SPECS,
        *(name for name in reduction.usable(where.kind) if name not in ways.SPECS),
    )
    for text in specs:
        reduction.check(text, kind=where.kind, hosts=where.hosts)
    batch = plan.examples_per_step
    selection.check_batch(verify, batch, plan.options.batch_size)
    subject = agreement.Subject(
        model=plan.model,
        source=plan.source,
        update=plan.update,
        global_batch=batch,
        num_steps=verify.num_steps,
        bound=verify.bound,
        device=verify.device,
        options=dataclasses.replace(plan.options, batch_norm=verify.batch_norm),
    )
    return subject, selection.Selection(verify, subject, specs)


def _plan(settings: config.VerifyConfig, num_towers: int) -> planning.Plan:
    """The plan of a run of so many towers; its errors speak of our flags."""
    flat = {name: v for name, v in config.flat(settings).items() if _shared(name)}
    run = config.make(num_gpus=num_towers, **flat)
    try:
        return planning.make(run, models.get)
    except planning.PlanError as error:
        ours = [text.replace("--num_gpus", "--num_towers") for text in error.errors]
        raise planning.PlanError(ours) from None


def _shared(name: str) -> bool:
    """Whether a flag means to a run what it means here: of `verify`, two do."""
    flag = config.all_flags(config.VerifyConfig)[name]
    return flag.section != "verify" or name in ("device", "tf_random_seed")


def _compare(
    subject: agreement.Subject, selected: selection.Selection, console: Console
) -> int:
    """Prints the table, a row as soon as it is known; returns the exit status."""
    subject = dataclasses.replace(subject, source=subject.source.decoded())
    console(
        f"{subject.model.name} on {subject.source.name}: {len(selected.cases)} ways to "
        f"train on the same {subject.global_batch} examples in each of "
        f"{subject.num_steps} steps, from seed {subject.options.seed}"
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
