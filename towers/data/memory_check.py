"""Whether the batches of a step fit into memory."""

import functools
import math
from collections.abc import Mapping, Sequence

from flags.config import Config
from flags.problem import wrong_setting
from towers.data import nests
from towers.data.inputs import NamedSource
from towers.errors import memory_limits
from towers.errors.memory_limits import Limit

_INT_LIMIT = 2**31  # TensorFlow counts the rows of a batch in an int32


def check_batches(
    config: Config, batch_size: int, num_towers: int, source: NamedSource
) -> None:
    """Checks that the batches that this process reads in a step fit into memory.

    Args:
      config: the settings.
      batch_size: per tower.
      num_towers: that this process feeds.
      source: of training.

    Raises:
      ValueError: they do not.
    """
    factors = {"batch_size": batch_size, "num_gpus": num_towers}
    prefetch = config.data.datasets_prefetch_buffer_size
    check_step = functools.partial(
        check,
        example_bytes=nests.num_bytes((source.features, source.labels)),
        prefetch=0 if source.name == "synthetic" else prefetch,
        limits=memory_limits.of_process(),
    )
    check_step(factors | {"accumulate_steps": config.variables.accumulate_steps})
    if size := config.evaluation.eval_batch_size:
        check_step({"eval_batch_size": size, "num_gpus": num_towers})


def check(
    factors: Mapping[str, int],
    example_bytes: int,
    *,
    prefetch: int = 0,
    limits: Sequence[Limit] = (),
) -> None:
    """Refuses batches that do not fit into memory.

    Memory that the step itself needs is not counted here; `session.step_memory` does it
    when the graph is built.

    Args:
      factors: flag -> its value; their product is the examples of a step.
      example_bytes: size of one example.
      prefetch: steps whose batches are kept ready, `--datasets_prefetch_buffer_size`.
      limits: of this process.

    Raises:
      ValueError: there are too many examples, or too many bytes.
    """
    name, value = max(factors.items(), key=lambda item: item[1])
    examples = math.prod(factors.values())
    if examples >= _INT_LIMIT:
        raise wrong_setting(
            name,
            value,
            f"a step would have {examples} examples, and must have fewer than "
            f"{_INT_LIMIT}",
        )
    step = examples * example_bytes
    limit = min(limits, key=lambda limit: limit.most, default=None)
    if limit and step * (1 + prefetch) > limit.most:
        if step * 2 <= limit.most:
            name, value = "datasets_prefetch_buffer_size", prefetch
        raise wrong_setting(
            name,
            value,
            f"the batches would take {step * (1 + prefetch) / 1e9:.1f} GB, "
            f"and {limit.name} leaves {max(limit.most, 0) / 1e9:.1f} GB",
            "write less",
        )
