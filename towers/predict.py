"""The main that predicts: writes a model's outputs for a data set to a file.

python -m towers.predict --model=lenet --train_dir=run --out=predictions.npz

`FILE.npz` holds what the model's last block returns, a row for each example: the array
`predictions`, or for a nest one array per name.  `FILE.csv` and `FILE.parquet` hold a
table with a column for each number of an example.
"""

import sys
import types
from collections.abc import Sequence

if __name__ == "__main__":
    from towers import start

    start.import_tensorflow()

import tensorflow as tf

import models
from flags import config, parse
from flags.problem import SettingError
from towers import api, choices, planning
from towers.cluster.sessions import settle_process
from towers.data import inputs
from towers.errors import collected, explain, interrupts
from towers.evaluation import prediction_writer, predictions
from towers.session.progress import Console

_NAMES = ("compute_dtype", "model", "recompute", "schedule")
CHOICES = {name: choices.CHOICES[name] for name in _NAMES}


def main(argv: Sequence[str] | None = None) -> int:
    """Predicts what the command line asks for; returns the exit status."""
    try:
        with interrupts.raised():
            arguments = sys.argv if argv is None else argv
            settings = parse.parse(arguments, CHOICES, config.PredictConfig)
            return _predict(settings)
    except ValueError as error:
        return collected.refuse_settings(error)
    except OSError as error:
        return collected.not_printed(error)
    except KeyboardInterrupt as error:
        stopped = interrupts.of(error)
        left = "nothing was written; the same command begins anew"
        collected.say(f"Stopped by {stopped.name}: {left}.")
        return stopped.status


def _predict(settings: config.PredictConfig) -> int:
    run, out = _of_run(settings), settings.predict.out
    if problems := config.check(run, choices.CHOICES):
        raise SettingError(*(p.of_program("eval", "towers.predict") for p in problems))
    assert out is not None  # the flags were checked
    write = prediction_writer.prediction_writer(out)
    where = planning.placement_of(run, None)
    settle_process(where, run.devices)
    plan = planning.make(run, models.get)
    console = Console(sys.stdout)
    try:
        nest = predictions.predict(plan, console)
    except tf.errors.OpError as error:
        sentence = inputs.explain(error, plan.source) or explain.sentence(error)
        if not sentence:
            raise
        return collected.refuse([sentence], status=1)
    write(nest)
    count = len(tf.nest.flatten(nest)[0])
    console(f"{count} predictions are in {out}.")
    return 0


def _of_run(settings: config.PredictConfig) -> config.Config:
    """The settings of a run that evaluates the same checkpoints."""
    shared = ("model", "data", "devices", "stages", "predict")
    flat = {name: value for s in shared for name, value in _section(settings, s)}
    del flat["out"]
    return config.make(**flat, eval=True)


def _section(settings: config.PredictConfig, name: str) -> list[tuple[str, object]]:
    return list(vars(getattr(settings, name)).items())


class _CallableModule(types.ModuleType):
    """After `import towers.predict`, `towers.predict` is this module, and the call."""

    __call__ = staticmethod(api.predict)


sys.modules[__name__].__class__ = _CallableModule

if __name__ == "__main__":
    start.take_interrupts()
    exit_status = main()
    collected.flush()
    sys.exit(exit_status)
