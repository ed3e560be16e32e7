"""Callbacks run between the steps of a run: checkpoints, evaluations, stops.

The names exported here are for `--callbacks` and `towers.fit(callbacks=...)`.
"""

from towers.callbacks.base import Callback, TrainingRun
from towers.callbacks.csv_log import CsvLog
from towers.callbacks.gradient_norms import GradientNorms
from towers.callbacks.keep_best import KeepBest
from towers.callbacks.rate_finder import RateFinder
from towers.callbacks.reduce_rate import ReduceRate
from towers.callbacks.stop_early import StopEarly

__all__ = [
    "Callback",
    "CsvLog",
    "GradientNorms",
    "KeepBest",
    "RateFinder",
    "ReduceRate",
    "StopEarly",
    "TrainingRun",
]
