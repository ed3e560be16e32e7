"""`--variable_update=auto`: times the modes on this machine, and chooses the fastest.

Only modes that take the steps of one tower are timed, each with every reduction that it
can use, for a few steps with the run's model, batch, data and devices.  The choice is
kept in the cache folder, in a file for each machine, model, batch and devices.  The run
is then the same as with that `--variable_update` and `--all_reduce_spec`.
"""

import dataclasses
import datetime
import hashlib
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from flags.config import Config
from flags.problem import wrong_setting
from towers import graph
from towers.cluster.sessions import session_config
from towers.errors import explain
from towers.errors.cache_file import CacheFile
from towers.gradients import reduction
from towers.layout import processor
from towers.planning import Plan
from towers.session import loop
from towers.session.progress import Console
from towers.variable_update import modes
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

AUTO = "auto"

WARMUP = 3  # steps; the first makes kernels and threads
STEPS = 20  # timed

_COLUMNS = "{:<22} {:<16} {:>10}  {}"


class TrainingChoice(NamedTuple):
    """A mode and a reduction."""

    variable_update: str
    all_reduce_spec: str | None = None

    def __str__(self) -> str:
        flags = f"--variable_update={self.variable_update}"
        spec = self.all_reduce_spec
        return f"{flags} --all_reduce_spec={spec}" if spec else flags


DEFAULT = TrainingChoice(modes.DEFAULT)

# Seconds of each timed step of a way to train.
Measure = Callable[[Plan, TrainingChoice], list[float]]


def candidates(
    num_towers: int, *, kind: str, wire: tf.DType = tf.float32
) -> list[TrainingChoice]:
    """The choices that take the steps of one tower.

    Args:
      num_towers: a single tower has no reduction.
      kind: of their devices, as in `reduction.usable`.
      wire: the dtype in which gradients are sent between replicas.
    """
    choices = []
    for name, mode in VARIABLE_UPDATES.items():
        if not (mode.exact and mode.joined):
            continue
        if "all_reduce_spec" in mode.reads and num_towers > 1:
            choices += [
                TrainingChoice(name, spec) for spec in reduction.usable(kind, wire)
            ]
        else:
            choices.append(TrainingChoice(name))
    return choices


def settled(config: Config, choice: TrainingChoice = DEFAULT) -> Config:
    """The settings of a run, with a choice in place of `auto`."""
    if config.variables.variable_update != AUTO:
        return config
    return dataclasses.replace(
        config, variables=dataclasses.replace(config.variables, **choice._asdict())
    )


def measure(plan: Plan, choice: TrainingChoice) -> list[float]:
    """Times a few steps in a new graph and session.

    Raises:
      ValueError: the mode or the reduction does not work here.
    """
    exchange = plan.options.exchange
    if spec := choice.all_reduce_spec:
        exchange = dataclasses.replace(exchange, all_reduce_spec=spec)
    options = dataclasses.replace(
        plan.options,
        variable_update=choice.variable_update,
        exchange=exchange,
        limit=None,
    )
    built = graph.build(**dataclasses.replace(plan, options=options).parts)
    seconds = []
    config = session_config(plan.placement, plan.config.devices)
    with v1.Session(graph=built.graph, config=config) as session:
        loop.start(built, session, lambda session: None)
        step = session.make_callable(built.train_op)
        for _ in range(WARMUP + STEPS):
            begun = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - begun)
    return seconds[WARMUP:]


def key(plan: Plan) -> str:
    """The key of a choice: a hash of machine, model, batch, devices and options."""
    details = [tf.config.experimental.get_device_details(d) for d in _gpus(plan)]
    facts = {
        "machine": [
            platform.node(),
            platform.machine(),
            processor.name(),
            os.cpu_count(),
        ],
        "gpus": [detail.get("device_name", "") for detail in details],
        "tensorflow": [tf.__version__, os.environ.get("TF_ENABLE_ONEDNN_OPTS")],
        "model": plan.config.model.model,
        "num_parameters": plan.model.num_parameters,
        "data": plan.source.name,
        "optimizer": plan.update.optimizer,
        "placement": dataclasses.asdict(plan.placement),
        "threads": [
            plan.config.devices.num_intra_threads,
            plan.config.devices.num_inter_threads,
        ],
        "xla": plan.config.devices.xla,
        "kernels": [
            plan.config.devices.tensor_float_32,
            plan.config.devices.deterministic_ops,
            plan.config.devices.batchnorm_persistent,
        ],
        "options": {
            field.name: str(getattr(plan.options, field.name))
            for field in dataclasses.fields(plan.options)
            if field.name not in ("variable_update", "limit", "seed")
        },
    }
    text = json.dumps(facts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _gpus(plan: Plan) -> list:
    return (
        tf.config.list_physical_devices("GPU") if plan.placement.kind == "gpu" else []
    )


def choose(
    plan: Plan,
    console: Console,
    *,
    again: bool = False,
    measured: Measure = measure,
) -> TrainingChoice:
    """The fastest choice, from the cache or by timing all.

    Args:
      plan: of the run, in any mode.
      console: prints the table.
      again: whether to time them even if the cache has a choice.
      measured: times a choice.

    Raises:
      ValueError: none of them works here.
    """
    file, placement = CacheFile("variable_update", f"{key(plan)}.json"), plan.placement
    wire = plan.options.exchange.wire.dtype
    ways = candidates(len(placement.towers), kind=placement.device_kind, wire=wire)
    entry = None if again else file.read()
    entry = entry if isinstance(entry, dict) else {}
    for way in ways:
        if way._asdict() == entry.get("choice"):
            console(f"Fastest on {entry.get('date')}: {way} ({file.path})")
            return way
    timings = _time_all(plan, ways, console, measured)
    best = min(timings, key=lambda way: statistics.median(timings[way]))
    reason = file.write(
        {
            "choice": best._asdict(),
            "model": plan.config.model.model,
            "date": datetime.datetime.now().isoformat(" ", "minutes"),
            "examples_per_second": {
                str(way): _rates(plan, seconds)[0] for way, seconds in timings.items()
            },
        }
    )
    if reason:
        console(f"Not remembered in {file.path}: {reason}")
    where = "" if reason else f", remembered in {file.path}"
    console(f"Fastest: {best}{where}")
    return best


def _time_all(
    plan: Plan, ways: list[TrainingChoice], console: Console, measured: Measure
) -> dict[TrainingChoice, list[float]]:
    """Times every candidate; prints a row for each as soon as it is known."""
    console(f"Timing {len(ways)} ways to train {plan.model.name}, {STEPS} steps each")
    columns = "variable_update", "all_reduce_spec", "examples/s", "[least, most]"
    console(_COLUMNS.format(*columns))
    timings, reason = {}, ""
    for way in ways:
        cells = way.variable_update, way.all_reduce_spec or "-"
        try:
            timings[way] = measured(plan, way)
        except (ValueError, tf.errors.ResourceExhaustedError) as error:
            reason = explain.cause(error)
            console(_COLUMNS.format(*cells, "-", reason))
            continue
        median, least, most = _rates(plan, timings[way])
        console(_COLUMNS.format(*cells, f"{median:.1f}", f"[{least:.1f}, {most:.1f}]"))
    if not timings:
        raise wrong_setting("variable_update", "auto", "nothing works here", reason)
    return timings


def _rates(plan: Plan, seconds: list[float]) -> tuple[float, float, float]:
    """Examples per second: of the median step, the slowest and the fastest."""
    examples = sum(plan.options.tower_batches(plan.placement.num_towers))
    middle = statistics.median(seconds)
    return examples / middle, examples / max(seconds), examples / min(seconds)
