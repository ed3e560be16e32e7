"""The GPUs of a machine that towers use, and whether towers share one.

TensorFlow can split a GPU into logical GPUs, each with a share of its memory.  They
give the same results as separate GPUs, so they can be used for tests, but together they
are not faster than the one GPU.
"""

import dataclasses

from flags.devices import DeviceFlags
from flags.problem import wrong_setting


@dataclasses.dataclass(frozen=True)
class Gpus:
    """The GPUs of a machine that towers use.

    Attributes:
      indices: in tower order; empty for the first ones.
      split: number of logical GPUs per GPU; consecutive numbers belong to one GPU.
      memory_fraction: share of each GPU's memory to use; 0 for TensorFlow's choice.
    """

    indices: tuple[int, ...] = ()
    split: int = 1
    memory_fraction: float = 0.0

    @classmethod
    def of(cls, devices: DeviceFlags) -> "Gpus":
        """The GPUs that settings name."""
        return cls(
            devices.gpu_indices,
            devices.logical_gpus,
            devices.gpu_memory_frac_for_testing,
        )

    def first(self, count: int) -> tuple[int, ...]:
        """The numbers of the first `count` GPUs."""
        return self.indices or tuple(range(count))

    def check(self, count: int, visible: int) -> None:
        """Refuses more GPUs than there are.

        Args:
          count: number that is needed.
          visible: GPUs of this machine.

        Raises:
          ValueError: there are too few; the sentence says what to write.
        """
        last = max(self.first(count))
        if last < visible * self.split:
            return
        named = f"GPU {last}" if self.indices else plural(count, "GPU")
        raise wrong_setting(
            "num_gpus",
            count,
            f"{named} asked for, but {self._seen(visible)}",
            self._remedy(last + 1, visible, "lower `num_gpus`"),
        )

    def check_workers(self, count: int, workers: int, visible: int) -> None:
        """Refuses workers of this machine if there are not enough GPUs for each.

        Args:
          count: GPUs of each worker.
          workers: number of workers.
          visible: GPUs of this machine.

        Raises:
          ValueError: they cannot; the sentence says what to write.
        """
        if workers > 1 and count % self.split and self.split % count:
            raise wrong_setting(
                "num_gpus",
                count,
                f"the {workers} workers of `local_cluster` cannot share GPUs evenly "
                f"with `logical_gpus={self.split}`",
                "write a number that divides the other",
            )
        if (needed := count * workers) > visible * self.split:
            lower = "lower `num_gpus` or the number of workers"
            raise wrong_setting(
                "local_cluster",
                None,
                f"{plural(workers, 'worker')} with `num_gpus={count}` need "
                f"{plural(needed, 'GPU')}, but {self._seen(visible)}",
                self._remedy(needed, visible, lower),
            )

    def _seen(self, visible: int) -> str:
        """The visible GPUs, in words."""
        split = f", as {plural(visible * self.split, 'logical GPU')}"
        seen = plural(visible, "visible GPU")
        return f"this machine has {seen}{split if visible and self.split > 1 else ''}"

    def _remedy(self, needed: int, visible: int, lower: str) -> str:
        """What to write."""
        which = "it" if visible == 1 else "each of them"
        count = -(-needed // max(visible, 1))
        share = f", or `logical_gpus={count}` to split {which}" if visible else ""
        return f"{lower}, or write `device=cpu` for logical CPU devices{share}"

    def notice(self, count: int) -> str:
        """A line about logical GPUs for the user, or ""."""
        if self.split == 1:
            return ""
        return (
            f"{plural(count, 'logical GPU')}, {self.split} to a GPU: they share its "
            "memory and its time, so that more of them are not faster."
        )


# All GPUs, not split.
ALL = Gpus()


def plural(number: int, of: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {of}" + ("" if number == 1 else "s")
