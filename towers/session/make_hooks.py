"""The hooks that the flags of a run ask for: one function and one row each."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from towers.callbacks.base import Callback, RunContext
from towers.callbacks.evaluate import Evaluate
from towers.callbacks.every import Due
from towers.callbacks.report_dropped import ReportDropped
from towers.callbacks.report_skips import ReportSkips
from towers.callbacks.save_checkpoints import SaveCheckpoints
from towers.callbacks.stop_on_nan import StopOnNan
from towers.callbacks.user_callbacks import GuardedCallback
from towers.checkpoints.checkpoint import FiniteCheck
from towers.checkpoints.saving import Saving
from towers.graph import TrainGraph
from towers.membership_log import MembershipFile
from towers.planning import Plan
from towers.session import replicas, summary
from towers.session.device_graphs import WriteDeviceGraphs
from towers.session.op_profile import ProfileOperations
from towers.session.pipeline_report import ReportPipeline
from towers.session.progress import Console
from towers.session.trace import TraceStep


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunParts:
    """The parts of a run that its hooks use.

    Attributes:
      plan: of the run.
      built: the train graph, finalized.
      console: takes lines for the user.
      finite: finds variables that are not finite.
      checkpoints: in `--train_dir`, or None.
      summary: scalar string, or None.
      replicas: whether they are equal, or None if that is not asked for.
      callbacks: the user's.
      rate_factors: those of the learning rate that callbacks have set, by the step
        after which they hold.
    """

    plan: Plan
    built: TrainGraph
    console: Console
    finite: FiniteCheck
    checkpoints: Saving | None
    summary: tf.Tensor | None
    replicas: replicas.Same | None
    callbacks: list[GuardedCallback]
    rate_factors: dict[int, float]


class Attempt(NamedTuple):
    """What hooks need to know of a run in a session.

    Attributes:
      run: its graph and what is in it.
      begin: global step from which it continues.
      last_step: global step at which it ends.
      evaluate: (run context, global step) -> top-1 accuracy, which it also reports.
      due: the steps after which `evaluate` is called.
    """

    run: RunParts
    begin: int
    last_step: int
    evaluate: Callable[[RunContext, int], float]
    due: Due = Due()

    @property
    def recorded_step(self) -> int:
        """The global step that is traced.

        The second last warm-up step, as in tf_cnn_benchmarks, or the second step of
        this process if that is later, as the first one makes the kernels.
        """
        warm = self.run.plan.num_warmup - 1
        return min(max(warm, self.begin + 2), self.last_step)


def make_hooks(attempt: Attempt) -> list[Callback]:
    """The hooks of a run, in the order in which they act after a step."""
    of_flags = [
        [hook for make in rows if (hook := make(attempt)) is not None]
        for rows in (_BEFORE, _AFTER)
    ]
    return [*of_flags[0], *attempt.run.callbacks, *of_flags[1]]


def _stop_on_nan(attempt: Attempt) -> Callback | None:
    forward = attempt.run.plan.options.forward_only  # no step depends on its loss
    if forward or not attempt.run.plan.config.training.stop_on_nan:
        return None
    return StopOnNan(attempt.run.built, attempt.run.finite)


def _report_skips(attempt: Attempt) -> Callback | None:
    built = attempt.run.built
    if built.skipped is None:
        return None
    return ReportSkips(built, attempt.run.console)


def _report_dropped(attempt: Attempt) -> Callback | None:
    run, output = attempt.run, attempt.run.plan.config.output
    if run.plan.options.backup is None:
        return None
    file = MembershipFile(output.train_dir, run.console.side)
    return ReportDropped(run.built, run.console, file, every=output.display_every)


def _check_replicas(attempt: Attempt) -> Callback | None:
    run = attempt.run
    if run.replicas is None:
        return None
    every = run.plan.config.variables.check_replicas_every
    return replicas.CheckReplicas(run.built, run.replicas, steps=every)


def _trace_step(attempt: Attempt) -> Callback | None:
    path = attempt.run.plan.config.output.trace_file
    return _record_step(attempt, TraceStep, path)


def _write_device_graphs(attempt: Attempt) -> Callback | None:
    prefix = attempt.run.plan.config.output.partitioned_graph_file_prefix
    return _record_step(attempt, WriteDeviceGraphs, prefix)


def _profile_operations(attempt: Attempt) -> Callback | None:
    run, path = attempt.run, attempt.run.plan.config.output.tfprof_file
    if not path:
        return None
    after, side = run.plan.num_warmup, run.console.side
    return ProfileOperations(
        run.built, path, after=after, console=run.console, side=side
    )


def _report_pipeline(attempt: Attempt) -> Callback | None:
    folder = attempt.run.plan.config.stages.pipeline_report
    return _record_step(attempt, ReportPipeline, folder)


def _record_step(
    attempt: Attempt, kind: type[TraceStep], path: str | None
) -> Callback | None:
    run, step = attempt.run, attempt.recorded_step
    if not path:
        return None
    side = run.console.side
    return kind(run.built, path, step=step, console=run.console, side=side)


def _write_summaries(attempt: Attempt) -> Callback | None:
    run, output = attempt.run, attempt.run.plan.config.output
    if run.summary is None:
        return None
    assert output.train_dir is not None  # which the flag of summaries needs
    file = summary.EventFile(
        "summaries", output.train_dir, run.console.side, run.built.graph
    )
    every = output.save_summaries_steps
    return summary.WriteSummaries(run.built, run.summary, file, steps=every)


def _save_checkpoints(attempt: Attempt) -> Callback | None:
    run, output = attempt.run, attempt.run.plan.config.output
    steps, seconds = output.save_model_steps or 0, output.save_model_secs
    if run.checkpoints is None or not (steps or seconds):
        return None
    return SaveCheckpoints(run.built, run.checkpoints, steps=steps, seconds=seconds)


def _evaluate(attempt: Attempt) -> Callback | None:
    run, due = attempt.run, attempt.due
    if not (due.steps or due.at):
        return None
    goal = run.plan.config.evaluation.stop_at_top_1_accuracy
    return Evaluate(run.built, attempt.evaluate, stop_at=goal, **due._asdict())


# In the order in which they act, before and after the user's callbacks: a step that
# failed is not saved; what callbacks do after a step is in its checkpoint; and a step
# is saved before its evaluation may end the run.
_BEFORE: tuple[Callable[[Attempt], Callback | None], ...] = (
    _stop_on_nan,
    _report_skips,
    _report_dropped,
    _check_replicas,
    _trace_step,
    _write_device_graphs,
    _profile_operations,
    _report_pipeline,
    _write_summaries,
)
_AFTER = (
    _save_checkpoints,
    _evaluate,
)
