"""Prepares a run: builds its graph, with all that the flags ask for."""

import dataclasses
import os

import tensorflow as tf

from towers import evaluations
from towers.errors import folders
from towers.evaluations import Evaluator
from towers.graph import TrainGraph
from towers.plan import Plan
from towers.session import describe, device_loop, replicas, report, summary, traffic
from towers.session.progress import Console
from towers.updates.checkpoint import Checkpoints, Finite

v1 = tf.compat.v1


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A run with everything but a session.

    Attributes:
      parts: of the run.
      built: the train graph, finalized.
      console: takes lines for the user.
      log: takes numbers.
      finite: finds variables that are not finite.
      checkpoints: in `--train_dir`, or None.
      evaluator: on towers in the same graph, or None if the run never evaluates.
      summary: scalar string, or None.
      replicas: whether they are equal, or None if that is not asked for.
    """

    parts: Plan
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
        inputs = self.parts.model.inputs
        return report.Unit(inputs.unit, inputs.units_per_example)


def prepare(parts: Plan, console: Console) -> Prepared:
    """Builds the graph of a run and says what it is.

    Args:
      parts: of the run.
      console: takes lines for the user.

    Raises:
      ValueError: model and data do not fit, or the model lacks what a flag needs.
      folders.OutputError: a file that a flag names cannot be written.
    """
    if parts.placement.notice:
        console(parts.placement.notice)
    console("Generating training model")
    built = parts.build()
    _check_metrics(parts, built)
    with built.graph.as_default():
        prepared = _complete(parts, built, console)
    built.graph.finalize()
    for line in report.header(describe.header(parts, prepared.built)):
        console(line)
    prepared.log.run(describe.facts(parts, prepared.built))
    return prepared


def _check_metrics(parts: Plan, built: TrainGraph) -> None:
    metrics, goal = built.template.metrics, parts.config.evaluation
    if goal.stop_at_top_1_accuracy is not None and "top_1_accuracy" not in metrics:
        raise ValueError(
            f"--stop_at_top_1_accuracy={goal.stop_at_top_1_accuracy}: "
            f"{parts.model.name} has no accuracy, only {', '.join(metrics)}"
        )


def _complete(parts: Plan, built: TrainGraph, console: Console) -> Prepared:
    """Adds what stands beside the step: evaluation, summaries, saver, loop."""
    output = parts.config.output
    towers = evaluations.attach(parts, built)
    text = summary.build(built, output.summary_verbosity)
    checked = parts.config.variables.check_replicas_every
    equal = replicas.same(built.mode) if checked else None
    if parts.config.training.steps_per_loop > 1:
        inner = device_loop.build(built.train_op, built.step, built.loss)
        built = built._replace(loop=inner)
    finite = Finite(built.saved)
    checkpoints = _checkpoints(parts, built, finite, log=console)
    if output.graph_file:
        _write_graph(output.graph_file, parts, built)
    log = report.BenchmarkLog(output.benchmark_log_dir)
    return Prepared(
        parts=parts,
        built=built,
        console=console,
        log=log,
        finite=finite,
        checkpoints=checkpoints,
        evaluator=Evaluator(parts, towers, console, log) if towers else None,
        summary=text,
        replicas=equal,
    )


def _checkpoints(
    parts: Plan, built: TrainGraph, finite: Finite, *, log: Console
) -> Checkpoints | None:
    output = parts.config.output
    if not output.train_dir:
        return None
    with tf.device(parts.placement.master):  # whose disk holds the files
        return Checkpoints(
            output.train_dir,
            built.saved | built.constants,
            max_to_keep=output.max_ckpts_to_keep,
            finite=finite,
            log=log,
        )


def _write_graph(path: str, parts: Plan, built: TrainGraph) -> None:
    """Its nodes, or what lies on each device and crosses between them."""
    folder, name = os.path.split(os.path.abspath(path))
    with folders.writing("nodes of the graph", path):
        if name.endswith(".svg"):
            os.makedirs(folder, exist_ok=True)
            title = describe.in_short(parts, built)
            with open(path, "w", encoding="utf-8") as file:
                file.write(traffic.picture(traffic.of(built), title))
        else:
            text = name.endswith("txt")
            tf.io.write_graph(built.graph, folder, name, as_text=text)
