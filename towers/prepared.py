"""A run with everything but a session: its graph, and what acts around its steps."""

import dataclasses

import tensorflow as tf

from towers import graph
from towers.callbacks import user_callbacks
from towers.callbacks.base import TrainingRun
from towers.checkpoints import saving, warm_start
from towers.checkpoints.checkpoint import FiniteCheck
from towers.checkpoints.warm_start import WarmStart
from towers.errors import memory_limits
from towers.errors.lock import Lock
from towers.evaluation import evaluator
from towers.evaluation.evaluator import Evaluator
from towers.graph import TrainGraph
from towers.planning import Plan
from towers.session import (
    describe,
    device_loop,
    freeze,
    graph_picture,
    replicas,
    report,
    step_memory,
    summary,
)
from towers.session.make_hooks import RunParts
from towers.session.progress import Console


@dataclasses.dataclass(frozen=True, kw_only=True)
class Prepared(RunParts):
    """A run with everything but a session.

    Attributes:
      log: writes the measurements.
      evaluator: evaluates on towers in the same graph; None if the run never does.
      warm_start: gives variables the values of `--init_checkpoint`; None without it.
    """

    log: report.BenchmarkLog
    evaluator: Evaluator | None
    warm_start: WarmStart | None


def prepare(
    plan: Plan, console: Console, lock: Lock | None = None, *, again: bool = False
) -> Prepared:
    """Builds the graph of a run and prints its description.

    Args:
      plan: of the run.
      console: takes lines for the user.
      lock: of the folder that it saves in.
      again: whether the run goes on with other towers; then nothing is printed.

    Raises:
      ValueError: model and data do not fit, the model lacks what a flag needs, or the
        disk has no room for the checkpoints that will be kept, or memory for a step.
    """
    if not again:
        if plan.placement.notice:
            console(plan.placement.notice)
        console("Generating training model")
    if given := plan.config.training.init_checkpoint:
        warm_start.find(given)  # before the graph is built
    built = graph.build(**plan.parts)
    if plan.config.training.freeze_when_forward_only:
        built = freeze.freeze(plan, built, console)
    evaluator.check_goal(plan, built)
    with built.graph.as_default():
        prepared = _complete(plan, built, console, lock)
    built.graph.finalize()
    if plan.placement.kind == "cpu" and not plan.placement.is_cluster:
        synthetic = plan.source.name == "synthetic"
        step_memory.check(
            built,
            memory_limits.of_process(),
            console,
            prefetch=0 if synthetic else plan.config.data.datasets_prefetch_buffer_size,
            holds=plan.config.output.async_checkpoint,
        )
    if again:
        return prepared
    for line in report.header(describe.header(plan, prepared.built)):
        console(line)
    prepared.log.run(describe.facts(plan, prepared.built))
    return prepared


def _complete(
    plan: Plan, built: TrainGraph, console: Console, lock: Lock | None
) -> Prepared:
    """Adds evaluation, summaries, saver and loop to a train graph."""
    output = plan.config.output
    towers = evaluator.attach(plan, built)
    text = summary.build(built, output.summary_verbosity)
    if text is not None and built.template.summaries and not built.towers[0].summaries:
        console(
            "What the model makes by tf.compat.v1.summary is not written with stages, "
            "micro-batches, `accumulate_steps` or `xla_compile`"
        )
    checked = plan.config.variables.check_replicas_every
    equal = replicas.same(built.mode) if checked else None
    if plan.config.training.steps_per_loop > 1:
        inner = device_loop.build(built.train_op, built.step, built.loss)
        built = built._replace(loop=inner)
    finite = FiniteCheck(built.saved)
    evaluates = any(evaluator.steps(plan)) and towers is not None
    factors: dict[int, float] = {}
    folder, side = output.train_dir, console.side
    here = TrainingRun(built, folder, evaluates, console, side, factors)
    callbacks, built = user_callbacks.attach(plan.callbacks, here)
    with tf.device(plan.placement.master):  # whose disk holds the files
        checkpoints = saving.set_up(
            output,
            built.saved | built.constants,
            plan.num_steps,
            finite=finite,
            lock=lock,
            log=console,
        )
    if output.graph_file:
        title = describe.in_short(plan, built)
        graph_picture.write_graph(built, output.graph_file, console.side, title=title)
    log = report.BenchmarkLog(output.benchmark_log_dir, console.side)
    given, mode = plan.config.training.init_checkpoint, built.mode
    # Constants have the checkpoint's values already.
    start = (
        None
        if mode.constants
        else warm_start.of(given, mode.whole_variables, built.averages)
    )
    return Prepared(
        plan=plan,
        built=built,
        console=console,
        log=log,
        finite=finite,
        checkpoints=checkpoints,
        evaluator=Evaluator(plan, towers, console, log) if towers else None,
        warm_start=start,
        callbacks=callbacks,
        summary=text,
        replicas=equal,
        rate_factors=factors,
    )
