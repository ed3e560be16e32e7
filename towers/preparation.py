"""Prepares a run: builds its graph, with all that the flags ask for."""

import dataclasses
import os

import tensorflow as tf

from towers.checkpoints.checkpoint import Checkpoints, FiniteCheck
from towers.checkpoints.saving import Saving
from towers.errors import memory_limits, output_paths
from towers.errors.lock import Lock
from towers.errors.side_outputs import SideOutputs
from towers.evaluation import evaluator
from towers.evaluation.evaluator import Evaluator
from towers.graph import TrainGraph
from towers.planning import Plan
from towers.session import (
    describe,
    device_loop,
    replicas,
    report,
    step_memory,
    summary,
    traffic,
)
from towers.session.progress import Console

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run with everything but a session.

    Attributes:
      plan: of the run.
      built: the train graph, finalized.
      console: takes lines for the user.
      log: takes numbers.
      finite: finds variables that are not finite.
      checkpoints: in `--train_dir`, or None.
      evaluator: on towers in the same graph, or None if the run never evaluates.
      summary: scalar string, or None.
      replicas: whether they are equal, or None if that is not asked for.
    """

    plan: Plan
    built: TrainGraph
    console: Console
    log: report.BenchmarkLog
    finite: FiniteCheck
    checkpoints: Saving | None
    evaluator: Evaluator | None
    summary: tf.Tensor | None
    replicas: replicas.Same | None

    @property
    def unit(self) -> report.Unit:
        """What its speeds count."""
        inputs = self.plan.model.inputs
        return report.Unit(inputs.unit, inputs.units_per_example)


def prepare(plan: Plan, console: Console, lock: Lock | None = None) -> Prepared:
    """Builds the graph of a run and says what it is.

    Args:
      plan: of the run.
      console: takes lines for the user.
      lock: of the folder that it saves in.

    Raises:
      ValueError: model and data do not fit, the model lacks what a flag needs, or the
        disk has no room for the checkpoints that will be kept, or memory for a step.
    """
    if plan.placement.notice:
        console(plan.placement.notice)
    console("Generating training model")
    built = plan.build()
    check_metrics(plan, built)
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
        )
    for line in report.header(describe.header(plan, prepared.built)):
        console(line)
    prepared.log.run(describe.facts(plan, prepared.built))
    return prepared


def check_metrics(plan: Plan, built: TrainGraph) -> None:
    """Refuses a goal that the model does not measure.

    Raises:
      ValueError: there is no top-1 accuracy, which `--stop_at_top_1_accuracy` needs.
    """
    metrics, goal = built.template.metrics, plan.config.evaluation
    if goal.stop_at_top_1_accuracy is not None and "top_1_accuracy" not in metrics:
        raise ValueError(
            f"--stop_at_top_1_accuracy={goal.stop_at_top_1_accuracy}: "
            f"{plan.model.name} has no accuracy, only {', '.join(metrics)}"
        )


def _complete(
    plan: Plan, built: TrainGraph, console: Console, lock: Lock | None
) -> Prepared:
    """Adds what stands beside the step: evaluation, summaries, saver, loop."""
    output = plan.config.output
    towers = evaluator.attach(plan, built)
    text = summary.build(built, output.summary_verbosity)
    if text is not None and built.template.summaries and not built.towers[0].summaries:
        console(
            "What the model makes by tf.compat.v1.summary is not written with stages, "
            "micro-batches, --accumulate_steps or --xla_compile"
        )
    checked = plan.config.variables.check_replicas_every
    equal = replicas.same(built.mode) if checked else None
    if plan.config.training.steps_per_loop > 1:
        inner = device_loop.build(built.train_op, built.step, built.loss)
        built = built._replace(loop=inner)
    finite = FiniteCheck(built.saved)
    checkpoints = _checkpoints(plan, built, finite, log=console)
    saving = checkpoints and Saving(
        checkpoints, lock, retry_secs=output.save_retry_secs, log=console
    )
    if output.graph_file:
        _write_graph(output.graph_file, plan, built, console.side)
    log = report.BenchmarkLog(output.benchmark_log_dir, console.side)
    return Prepared(
        plan=plan,
        built=built,
        console=console,
        log=log,
        finite=finite,
        checkpoints=saving,
        evaluator=Evaluator(plan, towers, console, log) if towers else None,
        summary=text,
        replicas=equal,
    )


def _checkpoints(
    plan: Plan, built: TrainGraph, finite: FiniteCheck, *, log: Console
) -> Checkpoints | None:
    output = plan.config.output
    if not output.train_dir:
        return None
    with tf.device(plan.placement.master):  # whose disk holds the files
        checkpoints = Checkpoints(
            output.train_dir,
            built.saved | built.constants,
            max_to_keep=output.max_ckpts_to_keep,
            finite=finite,
            log=log,
        )
    # By the clock it is not known how many; but not more than one in each step.
    every = output.save_model_steps or (1 if output.save_model_secs else 0)
    if output.save_model_secs and not output.max_ckpts_to_keep:
        every = plan.num_steps
    flag = f"--train_dir={output.train_dir}"
    needed = checkpoints.needed(plan.num_steps, every)
    output_paths.check_room(flag, output.train_dir, needed)
    return checkpoints


def _write_graph(path: str, plan: Plan, built: TrainGraph, side: SideOutputs) -> None:
    """Its nodes, or what lies on each device and crosses between them."""
    folder, name = os.path.split(os.path.abspath(path))
    if name.endswith(".svg"):
        picture = traffic.picture(traffic.of(built), describe.in_short(plan, built))
        side.write("nodes of the graph", path, picture)
        return
    with side.writing("nodes of the graph", path):
        text = name.endswith("txt")
        tf.io.write_graph(built.graph, folder, name, as_text=text)
