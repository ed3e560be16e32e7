"""The main: flags -> parts -> one graph -> one session.

python -m towers.train --num_gpus=4
"""

import os
import sys
from collections.abc import Sequence

import tensorflow as tf

import models
from flags import parse
from towers import explain, inputs, plan, run, watch, xla
from towers.folders import OutputError
from towers.hooks import NanLossError
from towers.optimizer import OPTIMIZERS
from towers.precision import COMPUTE_DTYPES
from towers.progress import Console
from towers.variable_update import VARIABLE_UPDATES

# Flag -> the table that its values are names in.
CHOICES = {
    "compute_dtype": COMPUTE_DTYPES,
    "model": models.MODELS,
    "optimizer": OPTIMIZERS,
    "variable_update": VARIABLE_UPDATES,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the command line asks for; returns the exit status."""
    try:
        parts = _read(sys.argv if argv is None else argv)
        return _do(parts, Console(sys.stdout))
    except (parse.UsageError, plan.PlanError) as error:
        return _refuse(error.errors, status=2)
    except ValueError as error:
        return _refuse([str(error)], status=2)
    except (NanLossError, OutputError) as error:
        return _refuse([str(error)], status=1)
    except BrokenPipeError:  # whoever read the lines is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:  # before the first step; later it ends the loop
        return _refuse(["interrupted before the first step"], status=130)


def _do(parts: plan.Plan, console: Console) -> int:
    """Trains or evaluates; returns the exit status."""
    if parts.config.devices.xla:
        xla.allow_on_cpu()
    try:
        if parts.config.evaluation.eval:
            return watch.evaluate_checkpoints(parts, console)
        return run.train(parts, console)
    except tf.errors.OpError as error:
        sources = [s for s in (parts.source, parts.eval_source) if s is not None]
        if damage := inputs.explain(error, *sources):
            return _refuse([damage], status=2)
        if sentence := explain.operation_error(error):
            return _refuse([sentence], status=1)
        raise


def _read(argv: Sequence[str]) -> plan.Plan:
    """The parts that the command line names; all its errors at once."""
    try:
        config, errors = parse.parse(argv, CHOICES), []
    except parse.UsageError as error:
        if error.config is None:
            raise
        config, errors = error.config, error.errors
    try:
        parts = plan.make(config, models.get)
    except plan.PlanError as error:
        errors = errors + error.errors
    if errors:
        raise parse.UsageError(errors)
    return parts


def _refuse(errors: Sequence[str], *, status: int) -> int:
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
