"""The flags of what a run prints, saves and logs: a section of `Config`."""

import dataclasses
import os
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from flags.field import AT_LEAST_0, AT_LEAST_1, FROM_0_TO_1, UP_TO_3, field
from flags.problem import Problem


@dataclasses.dataclass(frozen=True)
class OutputFlags:
    """What is printed, saved and logged."""

    common: ClassVar[tuple[str, ...]] = ("train_dir", "save_model_steps", "check_flags")

    check_flags: bool = field(
        False,
        "check this command line, say what is wrong with it, and train nothing; a data "
        "set that is missing is prepared",
    )
    display_every: int = field(
        10,
        "steps between two step lines; a terminal shows a progress bar instead",
        must=AT_LEAST_1,
    )
    display_perf_ewma: float = field(
        0.0,
        "weight of the latest step in the speed of the step line, an exponentially "
        "weighted mean; 0 takes the mean of all timed steps",
        must=FROM_0_TO_1,
    )
    print_training_accuracy: bool = field(
        False, "show the batch's top-1 and top-5 accuracy in the step line or the bar"
    )
    loss_type_to_report: str = field(
        "total_loss",
        "the loss in the step line and metric.log: total_loss includes weight decay, "
        "base_loss does not; summaries have both",
        choices=("total_loss", "base_loss"),
    )
    train_dir: str | None = field(
        None,
        "folder for checkpoints and summaries; one run at a time uses it",
        unset="nothing is saved",
    )
    save_model_secs: int = field(
        0, "seconds between checkpoints; 0 saves only at the end", must=AT_LEAST_0
    )
    save_model_steps: int | None = field(
        None,
        "steps between checkpoints, warm-up steps included",
        unset="only at the end",
        must=AT_LEAST_1,
    )
    async_checkpoint: bool = field(
        False,
        "write the checkpoints between steps in a thread, from values that are copied "
        "in memory, while training goes on",
    )
    save_retry_secs: float | None = field(
        None,
        "seconds for which writing a checkpoint that failed is tried again, while "
        "training goes on; then the run ends",
        unset="as long as the run takes",
        must=AT_LEAST_0,
    )
    max_ckpts_to_keep: int = field(
        5, "newest checkpoints to keep; 0 keeps all", must=AT_LEAST_0
    )
    summary_verbosity: int = field(
        0,
        "0 writes no summaries; 1 scalars and the model's own summaries "
        "(tf.compat.v1.summary); 2 also a histogram of all gradients; 3 also images "
        "and a histogram of each gradient and variable",
        must=UP_TO_3,
    )
    save_summaries_steps: int = field(
        0, "steps between summaries; 0 writes none", must=AT_LEAST_0
    )
    trace_file: str | None = field(
        None, "file for a Chrome trace of one step", unset="none"
    )
    tfprof_file: str | None = field(
        None,
        "file for TensorFlow's profile (a ProfileProto) of the first 10 timed steps, "
        "whose 20 dearest kinds of operations are printed",
        unset="none",
    )
    partitioned_graph_file_prefix: str | None = field(
        None,
        "path with which the name of a file for the graph of each device begins, as "
        "TensorFlow cuts and optimizes it; text if it ends in txt, else binary",
        unset="none",
    )
    graph_file: str | None = field(
        None,
        "file for the graph: a picture of the devices and of the bytes between them in "
        "a step if its name ends in svg, text if in txt, else binary",
        unset="none",
    )
    benchmark_log_dir: str | None = field(
        None, "folder for the run's description and measurements as JSON", unset="none"
    )
    benchmark_test_id: str | None = field(
        None, "label of the run in benchmark_log_dir", unset="none"
    )


def shared_paths(flags: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of two files with one path.

    Args:
      flags: the settings that are given, by name.
    """
    names: dict[str, str] = {}
    for name in ("trace_file", "graph_file", "tfprof_file"):
        if path := flags.get(name):
            other = names.setdefault(os.path.abspath(path), name)
            if other != name:
                yield Problem(name, path, f"is `{other}`, too", "name another file")
