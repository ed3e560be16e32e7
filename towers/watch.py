"""Evaluation alone: the checkpoints of a directory, once or as they appear."""

import time

import tensorflow as tf

from towers import checkpoint, evaluate, hooks, report, run
from towers.plan import Plan
from towers.variable_update import VARIABLE_UPDATES

v1 = tf.compat.v1


def evaluate_checkpoints(parts: Plan, console: hooks.Console) -> int:
    """Evaluates the newest checkpoint of `--train_dir`, and later ones as they come.

    With `--eval_interval_secs` it goes on until the checkpoint of the run's last step
    was evaluated, or a signal comes.

    Returns:
      the exit status.

    Raises:
      ValueError: there is no checkpoint, or it is of another model.
    """
    flags, directory = parts.config.evaluation, parts.config.output.train_dir
    if parts.eval_source is None:
        raise ValueError(
            "--eval: synthetic data has nothing to evaluate on; name a data set with "
            "--data_name"
        )
    log = report.BenchmarkLog(parts.config.output.benchmark_log_dir)
    if parts.placement.notice:
        console(parts.placement.notice)
    if checkpoint.latest(directory) is None and not flags.eval_interval_secs:
        raise ValueError(f"--eval: there is no checkpoint in --train_dir={directory}")
    with tf.Graph().as_default() as graph:
        mode = VARIABLE_UPDATES["parameter_server"](parts.placement)
        evaluation = evaluate.attach(
            run.eval_task(parts),
            parts.eval_source,
            placement=parts.placement,
            mode=mode,
            batch_size=parts.eval_batch_size,
            num_examples=run.num_eval_examples(parts),
        )
        step = v1.train.get_or_create_global_step()
        names = _names(mode.variables, parts.update.ema_decay)
        checkpoints = checkpoint.Checkpoints(
            directory, {**names, "global_step": step}, partial=True, log=console
        )
    done = None
    with (
        v1.Session(graph=graph, config=run.session_config(parts)) as session,
        hooks.StopOnSignal() as stop,
    ):
        while stop.received is None:
            newest = checkpoint.latest(directory)
            if newest and newest != done:
                done = newest
                checkpoints.restore(session)
                result = evaluate.run(evaluation, session, int(session.run(step)))
                run.report_evaluation(result, console, log)
                if result.step >= parts.num_steps:
                    return 0
            elif newest is None or flags.eval_interval_secs:
                time.sleep(min(1.0, flags.eval_interval_secs))
            if not flags.eval_interval_secs:
                return 0
    return 0


def _names(variables: dict[str, tf.Variable], ema_decay: float):
    """Checkpoint name -> variable: moving averages stand in for what they average."""
    if not ema_decay:
        return variables
    return {
        f"{name}/ExponentialMovingAverage" if variable.trainable else name: variable
        for name, variable in variables.items()
    }
