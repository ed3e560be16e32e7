"""The evaluations of a run: when, on which examples, and their reports."""

import dataclasses
import math
import os
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from flags.problem import wrong_setting
from towers import graph
from towers.callbacks.every import Due
from towers.compute.tower import TowerSpec
from towers.errors import crash
from towers.evaluation import eval_graph
from towers.evaluation.eval_files import EvalFiles
from towers.planning import Plan
from towers.session import report
from towers.session.progress import Console
from towers.variable_update.base import VariableUpdate

v1 = tf.compat.v1


def attach(plan: Plan, built: graph.TrainGraph) -> eval_graph.EvalGraph | None:
    """Adds evaluation towers to the train graph, if the run evaluates."""
    if plan.eval_source is None or not (any(steps(plan)) or at_end(plan)):
        return None
    return attach_to(plan, eval_graph.AveragedVariables(built.mode, built.averages))


def attach_to(
    plan: Plan, variables: VariableUpdate | eval_graph.AveragedVariables
) -> eval_graph.EvalGraph:
    """Adds evaluation towers to the current graph.

    Args:
      plan: of a run that evaluates.
      variables: creates the variables and reads them for a tower.
    """
    assert plan.eval_source is not None
    return eval_graph.attach(
        task(plan),
        plan.eval_source,
        placement=plan.placement,
        mode=variables,
        batch_size=plan.eval_batch_size,
        num_examples=num_examples(plan),
    )


def check_goal(plan: Plan, built: graph.TrainGraph) -> None:
    """Refuses a target accuracy if the model does not measure it.

    Raises:
      ValueError: there is no top-1 accuracy, which `--stop_at_top_1_accuracy` needs.
    """
    metrics, goal = built.template.metrics, plan.config.evaluation
    if goal.stop_at_top_1_accuracy is not None and "top_1_accuracy" not in metrics:
        raise wrong_setting(
            "stop_at_top_1_accuracy",
            goal.stop_at_top_1_accuracy,
            f"{plan.model.name} has no accuracy, only {', '.join(metrics)}",
        )


def task(plan: Plan) -> TowerSpec:
    """What an evaluation tower computes."""
    pipeline = plan.options.pipeline
    return dataclasses.replace(
        graph.tower_spec(plan.model, plan.source, plan.options, plan.placement),
        training=False,
        pipeline=pipeline and pipeline.for_batch(plan.eval_batch_size),
        loss_scaled=False,
    )


def num_examples(plan: Plan) -> int:
    """How many examples an evaluation counts; by default those of the split, once."""
    assert plan.eval_source is not None
    flags, total = plan.config.evaluation, plan.eval_source.num_examples
    if flags.num_eval_batches is not None:
        return (
            flags.num_eval_batches * plan.eval_batch_size * len(plan.placement.towers)
        )
    if flags.num_eval_epochs is not None:
        return max(1, round(flags.num_eval_epochs * total))
    return total


def at_end(plan: Plan) -> bool:
    """Whether training ends with an evaluation, if there is a split for it."""
    if plan.options.forward_only:
        return False
    eval_at_end = plan.config.evaluation.eval_at_end
    return plan.num_batches is None if eval_at_end is None else eval_at_end


def steps(plan: Plan, step: int = 0, position: int = 0) -> Due:
    """The steps of the evaluations during training.

    Args:
      plan: of the run from `step` on.
      step: a global step.
      position: examples that were consumed before it, perhaps by other batches.
    """
    flags, since = plan.config.evaluation, 0.0
    every = flags.eval_during_training_every_n_steps or 0.0
    begin = step - position / plan.examples_per_step
    if epochs := flags.eval_during_training_every_n_epochs:
        every = epochs * plan.source.num_examples / plan.examples_per_step
        since = begin
    at = list(flags.eval_during_training_at_specified_steps)
    at += [plan.steps(e, begin) for e in flags.eval_during_training_at_specified_epochs]
    return Due(every, at, since)


class Evaluator:
    """Evaluates; prints and logs the results, and writes summaries.

    Args:
      plan: of the run.
      towers: that evaluate.
      console: takes lines for the user.
      log: writes the measurements.

    Attributes:
      step: the global step that was evaluated last; -1 before.
      means: of its loss and metrics and the numbers that are derived, by name.
      accuracy: top-1, of that step; NaN if unknown.
    """

    def __init__(
        self,
        plan: Plan,
        towers: eval_graph.EvalGraph,
        console: Console,
        log: report.BenchmarkLog,
    ):
        self._plan = plan
        self._towers = towers
        self._console = console
        self._log = log
        directory = _directory(plan)
        self._files = EvalFiles(directory, console.side) if directory else None
        self.step, self.accuracy = -1, math.nan
        self.means: dict[str, float] = {}
        self._last: v1.Session | None = None  # session of the last evaluation

    def __call__(
        self, session: v1.Session, step: int, stopped: Callable[[], object]
    ) -> eval_graph.EvalResult | None:
        """Evaluates once.

        Args:
          session: with the variables' values.
          step: the global step of these values.
          stopped: called after each batch; whether to stop.

        Returns:
          the results; None if it was stopped, which it prints.
        """
        self._console(f"Running evaluation at global_step {step}")
        follows, self._last = self._last is session, None
        result = crash.during("evaluating; if memory ran out, lower the batch size")(
            lambda: eval_graph.run(
                self._towers,
                session,
                step,
                follows=follows,
                progress=self._progress,
                stopped=stopped,
            ),
        )
        if result is None:
            self._console(f"The evaluation at global_step {step} was stopped.")
            return None
        values = self._plan.model.with_derived(result.values)
        means = {k: value for k, value in values.items() if isinstance(value, float)}
        # Not before: an evaluation that ended with a lost task is repeated.
        self.step, self._last, self.means = step, session, means
        self.accuracy = means.get("top_1_accuracy", math.nan)
        self._console(report.evaluation_line(means, result.num_examples))
        for name, value in means.items():
            self._log.metric(f"eval_{name}", value, step)
        rate = result.examples_per_second
        self._log.metric("eval_average_examples_per_sec", rate, step)
        if self._files is not None:
            drawn = {k: x for k, x in values.items() if _is_picture(x)}
            png, pixels = self._towers.png, self._towers.pixels
            self._files.write(
                result, means, drawn, lambda x: session.run(png, {pixels: x})
            )
        return result

    def _progress(self, batches: int, rate: float) -> None:
        every, last = self._plan.config.output.display_every, self._towers.num_steps
        if batches % every == 0 or batches == last:
            self._console(f"{batches}\t{rate:.1f} examples/sec")


def _is_picture(value: object) -> bool:
    """Whether a derived value is a picture; sums are float64."""
    return isinstance(value, np.ndarray) and value.dtype == np.uint8


def _directory(plan: Plan) -> str | None:
    """The folder for summaries of evaluations, if they are written."""
    eval_dir, train_dir = plan.config.evaluation.eval_dir, plan.config.output.train_dir
    if eval_dir is None and train_dir:
        return os.path.join(train_dir, "eval")
    return eval_dir
