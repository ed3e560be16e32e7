"""What follows from a command line of tf_cnn_benchmarks: batches, steps, epochs."""

from collections.abc import Mapping
from typing import Any

from flags import tf_cnn_models
from flags.tf_cnn_models import TheirModel

_DEFAULT_STEPS = 100
DEFAULT_WARMUP = 10


class TheirRun:
    """The settings of a run of tf_cnn_benchmarks, and what follows from them."""

    def __init__(
        self, flags: Mapping[str, Any], dataset: str, model: TheirModel, gpus: bool
    ):
        self.flags = flags
        self.dataset = dataset
        self.model = model
        self.device = flags["device"] or ("gpu" if gpus else "cpu")
        self.mode = flags["variable_update"]
        self.batch_size = flags["batch_size"] or model.batch_size
        self.workers = len(flags["worker_hosts"]) if flags["job_name"] else 1
        # Images in a step of a worker, and of all workers together.
        self.local_batch = self.batch_size * flags["num_gpus"]
        self.global_batch = self.local_batch * self.workers
        self.per_epoch, self.in_evaluation = tf_cnn_models.EXAMPLES[dataset]

    @property
    def adds_gradients(self) -> int:
        """How many gradients are added, where here their mean is taken."""
        if self.mode == "replicated":
            return self.flags["num_gpus"]
        if self.mode in ("distributed_all_reduce", "collective_all_reduce"):
            return self.flags["num_gpus"] * self.workers
        # Each worker applies the mean of its own GPUs.
        return self.workers if self.flags["cross_replica_sync"] else 1

    @property
    def rate_batch(self) -> int:
        """Images in a step, as learning rates there count them."""
        collective = self.mode == "collective_all_reduce"
        return self.global_batch if collective else self.local_batch

    @property
    def counts(self) -> int:
        """By how much a step of all workers increases the global step there."""
        one_count = ("distributed_all_reduce", "collective_all_reduce")
        return 1 if self.mode in one_count else self.workers

    @property
    def evaluates(self) -> bool:
        """Whether training pauses for evaluations."""
        return any(self.flags[n] for n in self.flags if n.startswith("eval_during_"))

    def num_steps(self, batches: int | None, epochs: float | None) -> int:
        """Timed steps of a training."""
        return num_steps(batches, epochs, self.global_batch, self.per_epoch)

    @property
    def warmup_steps(self) -> int:
        """Steps that are not timed."""
        given, threshold = (
            self.flags[n] for n in ("num_warmup_batches", "autotune_threshold")
        )
        least = 5 * (threshold or 1) ** 2
        return max(DEFAULT_WARMUP, least) if given is None else given

    def epoch(self, global_step: float) -> float:
        """The epoch here in which a step begins that has this number there."""
        examples = self.model.examples or self.per_epoch
        return global_step / self.counts * self.global_batch / examples


def num_steps(
    batches: int | None, epochs: float | None, batch: int, images: int
) -> int:
    """How many steps there are in a number of batches, of epochs, or in neither.

    Args:
      batches, epochs: the number; None if it is not given.
      batch: images of a step.
      images: of an epoch.
    """
    if epochs:
        return int(epochs * images + batch - 1) // batch
    return batches or _DEFAULT_STEPS
