"""Reports of a run: printed lines as in tf_cnn_benchmarks, and JSON files.

The formats of the header, the step line, the total line and the evaluation line are
those of tf_cnn_benchmarks, so that its parsers work.  `BenchmarkLog` writes all other
numbers.
"""

import collections
import datetime
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from towers.errors import memory_limits
from towers.errors.side_outputs import SideOutputs, append_line

RULE = "-" * 64

# The jitter is that of so many latest steps; a median of all would take ever longer.
_LATEST = 8192


def header(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Lines such as `Model:       lenet`, and a last line of ten equal signs.

    Args:
      rows: (title, text) pairs; further lines of a text are indented as the first.
    """
    lines = []
    for title, text in rows:
        first, *rest = text.split("\n")
        lines.append(f"{title + ':':<12} {first}")
        lines += [" " * 13 + line for line in rest]
    return lines + ["=" * 10]


class Unit(NamedTuple):
    """The unit that a speed counts.

    Attributes:
      name: in the plural.
      per_example: how many units an example has.
    """

    name: str = "images"
    per_example: int = 1

    @property
    def title(self) -> str:
        """The heading of the column of speeds."""
        return "Img/sec" if self.name == "images" else f"{self.name.capitalize()}/sec"


IMAGES = Unit()


class Speed:
    """Throughput of the timed steps: mean, standard error and jitter.

    Args:
      units: per step.
      least: shortest time, in seconds, over which a speed is measured.  Asynchronous
        towers may end steps in the same instant, so the time between two steps is no
        measure.
      ewma: weight of the latest step's time in an exponentially weighted mean; 0 takes
        the mean of all steps.
    """

    def __init__(self, units: int, least: float = 0.0, ewma: float = 0.0):
        self._units = units
        self._least = least
        self._ewma = ewma
        self._held = 0, 0.0  # (steps, seconds), not long enough yet
        self._interval = 0, 0.0  # (steps, seconds) since `interval` was called
        self._count = 0
        self._speeds = self._squares = 0.0  # sums over all steps
        # Of the mean time of a step: the sum of the weights, and of the weighted times.
        self._weights = self._seconds = 0.0
        self._latest: collections.deque[float] = collections.deque(maxlen=_LATEST)

    def add(self, seconds: float, steps: int = 1) -> None:
        """Records steps that took `seconds` together."""
        self._held = self._held[0] + steps, self._held[1] + seconds
        self._interval = self._interval[0] + steps, self._interval[1] + seconds
        if self._held[1] >= self._least:
            self._record()

    def _record(self) -> None:
        (steps, seconds), self._held = self._held, (0, 0.0)
        speed = self._units * steps / max(seconds, 1e-9)  # a clock may not advance
        self._count += steps
        kept, weight = 1.0, float(steps)
        if self._ewma:
            kept = (1 - self._ewma) ** steps
            weight = (1 - kept) / self._ewma  # of steps that took equally long
        self._weights = kept * self._weights + weight
        self._seconds = kept * self._seconds + weight * seconds / steps
        self._speeds += steps * speed
        self._squares += steps * speed**2
        self._latest.extend([speed] * min(steps, _LATEST))

    def __len__(self) -> int:
        return self._count + self._held[0]

    def interval(self) -> float:
        """Mean units/s of the steps since the last call; 0.0 if there were none.

        After hours the mean over all steps hardly changes; this one shows a change.
        """
        (steps, seconds), self._interval = self._interval, (0, 0.0)
        return self._units * steps / max(seconds, 1e-9)

    def statistics(self) -> tuple[float, float, float]:
        """(mean, uncertainty, jitter) in units/s, as in tf_cnn_benchmarks.

        The mean is units divided by the mean step time; with `ewma` a step's time has
        the weight (1 - ewma)^(number of later steps).  The uncertainty is the
        standard deviation of the steps' speeds divided by the root of their number.
        The jitter is 1.4826 x the median absolute deviation of the latest 8192 steps.
        """
        if not self._count:  # short as it was
            self._record()
        count, latest = self._count, np.array(self._latest)
        variance = self._squares / count - (self._speeds / count) ** 2
        spread = np.abs(latest - np.median(latest))
        return (
            self._units * self._weights / max(self._seconds, 1e-9),
            math.sqrt(max(0.0, variance) / count),
            float(1.4826 * np.median(spread)),
        )


def step_title(
    loss_name: str, metrics: Sequence[str] = (), *, unit: Unit = IMAGES
) -> str:
    """The line over the step lines."""
    return "\t".join(["Step", unit.title, loss_name, *metrics])


def step_line(
    step: int,
    speed: tuple[float, float, float],
    loss: float,
    metrics: Sequence[float] = (),
    *,
    unit: Unit = IMAGES,
) -> str:
    """`10<TAB>images/sec: 228.4 +/- 0.3 (jitter = 1.1)<TAB>7.857`."""
    mean, error, jitter = speed
    rate = f"{unit.name}/sec: {mean:.1f} +/- {error:.1f} (jitter = {jitter:.1f})"
    return "\t".join([str(step), rate, *(f"{x:.3f}" for x in (loss, *metrics))])


def total_lines(per_second: float, *, unit: Unit = IMAGES) -> list[str]:
    """The line that parsers look for, between two rules."""
    return [RULE, f"total {unit.name}/sec: {per_second:.2f}", RULE]


def input_line(share: float) -> str:
    """`waiting for input: 12.0 % of the time`; a line that no parser takes."""
    return f"waiting for input: {100 * share:.1f} % of the time"


def utilization_line(
    rate: float, work: float, peak: float, *, unit: Unit = IMAGES
) -> str:
    """`MFU: 74.4 % (69.8 of 94 GFLOP/s measured; 5.9 MFLOP per image)`.

    No device exceeds its peak.  If the run was faster than the measured peak, the
    measurement was disturbed, and the line says so instead of a percentage.

    Args:
      rate: examples per second.
      work: FLOP per example.
      peak: FLOP/s.
      unit: of the line.
    """
    share = f"{100 * rate * work / peak:.1f} %"
    if rate * work > peak:
        share = "unknown, the device was busy when its peak was measured"
    return (
        f"MFU: {share} ({rate * work / 1e9:.1f} of {peak / 1e9:.0f} GFLOP/s measured; "
        f"{work / unit.per_example / 1e6:.1f} MFLOP per {unit.name[:-1]})"
    )


def evaluation_line(means: Mapping[str, float], num_examples: int) -> str:
    """`Accuracy @ 1 = 0.9806 Accuracy @ 5 = 1.0000 [360 examples]`.

    Then it shows the other metrics: `perplexity = 4.5 [360 examples]`.
    """
    accuracies = {f"top_{k}_accuracy": f"Accuracy @ {k}" for k in (1, 5)}
    titles = accuracies if accuracies.keys() <= means.keys() else {}
    titles |= {name: name for name in means if name not in ("loss", *titles)}
    titles = titles or {"loss": "loss"}
    parts = [f"{title} = {means[name]:.4f}" for name, title in titles.items()]
    return f"{' '.join(parts)} [{num_examples} examples]"


class BenchmarkLog:
    """JSON files of a run, in tf_cnn_benchmarks' schema.

    `benchmark_run.log` holds one JSON object: `model_name`, `dataset`, `test_id`,
    `run_date` (ISO 8601, UTC), `tensorflow_version`, `machine_config` (`cpu_cores`,
    `memory_bytes`, `platform`), `run_parameters` (all flags), `devices`,
    `num_parameters` (trained ones).

    `metric.log` has one JSON object per line: `name`, `value` (float; null if it is not
    finite, which JSON cannot express), `unit` (or null), `global_step`,
    `timestamp` (ISO 8601, UTC), `extras` (object).  Names: `current_examples_per_sec`
    (mean since the first timed step, as in tf_cnn_benchmarks),
    `interval_examples_per_sec` (since the last such line), `average_examples_per_sec`
    (of the whole run), `loss`, `learning_rate`, `mfu` (none where it is unknown),
    `flops_per_sec`, and the model's metrics: `top_1_accuracy`, `top_5_accuracy`, or
    others; of data that are read `input_wait`, the share of the time since the last
    such line that steps waited for input, and `average_input_wait` of the whole run.
    Of an evaluation `eval_loss`,
    `eval_average_examples_per_sec` and those metrics, with what is derived from them:
    `eval_top_1_accuracy`, `eval_top_5_accuracy`, or others.

    Args:
      directory: made if there is none; None writes nothing.
      side: takes what cannot be written.
    """

    def __init__(self, directory: str | None, side: SideOutputs):
        self._directory = directory
        self._side = side

    def run(self, facts: Mapping[str, Any]) -> None:
        """Writes `benchmark_run.log`; `facts` are added to those of the machine."""
        if not self._directory:
            return
        facts = {
            "run_date": _now(),
            "tensorflow_version": tf.version.VERSION,
            "machine_config": {
                "cpu_cores": os.cpu_count(),
                "memory_bytes": memory_limits.of_machine(),
                "platform": platform.platform(),
            },
            **facts,
        }
        path = os.path.join(self._directory, "benchmark_run.log")
        text = json.dumps(facts, indent=2, default=str)
        self._side.write("facts of the run", path, text)

    def metric(
        self,
        name: str,
        value: float,
        step: int,
        *,
        unit: str | None = None,
        **extras: object,
    ) -> None:
        """Appends one line to `metric.log`, whole or not at all."""
        if not self._directory:
            return
        line = {
            "name": name,
            "value": float(value) if math.isfinite(value) else None,
            "unit": unit,
            "global_step": int(step),
            "timestamp": _now(),
            "extras": extras,
        }
        path = os.path.join(self._directory, "metric.log")
        with self._side.writing("measurements", path):
            append_line(path, json.dumps(line))


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat()
