"""Prepares a run: builds its graph, with all that the flags ask for."""

import dataclasses
import os

import tensorflow as tf

from towers import evaluations
from towers.errors import folders
from towers.evaluations import Evaluator
from towers.graph import TrainGraph
from towers.planning import Plan
from towers.session import describe, device_loop, replicas, report, summary, traffic
from towers.session.progress import Console
from towers.updates.checkpoint import Checkpoints, Finite

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
    finite: Finite
    checkpoints: Checkpoints | None
    evaluator: Evaluator | None
    summary: tf.Tensor | None
    replicas: replicas.Same | None

    @property
    def unit(self) -> report.Unit:
        """What its speeds count."""
        inputs = self.plan.model.inputs
        return report.Unit(inputs.unit, inputs.units_per_example)


def prepare(plan: Plan, console: Console) -> Prepared:
    """Builds the graph of a run and says what it is.

    Args:
      plan: of the run.
      console: takes lines for the user.

    Raises:
      ValueError: model and data do not fit, the model lacks what a flag needs, or the
        disk has no room for two checkpoints.
      folders.OutputError: a file that a flag names cannot be written.
    """
    if plan.placement.notice:
        console(plan.placement.notice)
    console("Generating training model")
    built = plan.build()
    check_metrics(plan, built)
    with built.graph.as_default():
        prepared = _complete(plan, built, console)
    built.graph.finalize()
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


def _complete(plan: Plan, built: TrainGraph, console: Console) -> Prepared:
    """Adds what stands beside the step: evaluation, summaries, saver, loop."""
    output = plan.config.output
    towers = evaluations.attach(plan, built)
    text = summary.build(built, output.summary_verbosity)
    checked = plan.config.variables.check_replicas_every
    equal = replicas.same(built.mode) if checked else None
    if plan.config.training.steps_per_loop > 1:
        inner = device_loop.build(built.train_op, built.step, built.loss)
        built = built._replace(loop=inner)
    finite = Finite(built.saved)
    checkpoints = _checkpoints(plan, built, finite, log=console)
    if output.graph_file:
        _write_graph(output.graph_file, plan, built)
    log = report.BenchmarkLog(output.benchmark_log_dir)
    return Prepared(
        plan=plan,
        built=built,
        console=console,
        log=log,
        finite=finite,
        checkpoints=checkpoints,
        evaluator=Evaluator(plan, towers, console, log) if towers else None,
        summary=text,
        replicas=equal,
    )


def _checkpoints(
    plan: Plan, built: TrainGraph, finite: Finite, *, log: Console
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
    flag = f"--train_dir={output.train_dir}"
    folders.check_room(flag, output.train_dir, checkpoints.needed())
    return checkpoints


def _write_graph(path: str, plan: Plan, built: TrainGraph) -> None:
    """Its nodes, or what lies on each device and crosses between them."""
    folder, name = os.path.split(os.path.abspath(path))
    with folders.writing("nodes of the graph", path):
        if name.endswith(".svg"):
            os.makedirs(folder, exist_ok=True)
            title = describe.in_short(plan, built)
            with open(path, "w", encoding="utf-8") as file:
                file.write(traffic.picture(traffic.of(built), title))
        else:
            text = name.endswith("txt")
            tf.io.write_graph(built.graph, folder, name, as_text=text)
