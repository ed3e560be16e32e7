"""Which GPUs of a machine the towers get, and whether towers share one.

TensorFlow can split a GPU into logical GPUs, each with its share of the memory.  They
are as good as GPUs of their own for showing that results are right, and no faster than
the one that they are.
"""

import dataclasses

from flags.problem import wrong_setting
from flags.sections import DeviceFlags


@dataclasses.dataclass(frozen=True)
class Gpus:
    """Which GPUs of a machine the towers get.

    Attributes:
      indices: in tower order; the first ones when empty.
      split: logical GPUs that each GPU is split into; neighbouring numbers are of one
        GPU.
      memory_fraction: share of each GPU's memory to take; 0 for TensorFlow's choice.
    """

    indices: tuple[int, ...] = ()
    split: int = 1
    memory_fraction: float = 0.0

    @classmethod
    def of(cls, devices: DeviceFlags) -> "Gpus":
        """Those that settings ask for."""
        return cls(
            devices.gpu_indices,
            devices.logical_gpus,
            devices.gpu_memory_frac_for_testing,
        )

    def first(self, count: int) -> tuple[int, ...]:
        """The numbers of so many of them."""
        return self.indices or tuple(range(count))

    def check(self, count: int, visible: int) -> None:
        """Refuses more than there are.

        Args:
          count: that are asked for.
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
        """Refuses workers of this machine that cannot have GPUs of their own.

        Args:
          count: of each worker.
          workers: how many there are.
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
        """What there is."""
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
        """What to know of so many of them, or ""."""
        if self.split == 1:
            return ""
        return (
            f"{plural(count, 'logical GPU')}, {self.split} to a GPU: they share its "
            "memory and its time, so that more of them are not faster."
        )


# Each as it is.
ALL = Gpus()


def plural(number: int, of: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{number} {of}" + ("" if number == 1 else "s")
