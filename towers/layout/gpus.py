"""Which GPUs of a machine the towers get, and whether towers share one.

TensorFlow can split a GPU into logical GPUs, each with its share of the memory.  They
are as good as GPUs of their own for showing that results are right, and no faster than
the one that they are.
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpus:
    """Which GPUs of a machine the towers get.

    Attributes:
      indices: in tower order; the first ones when empty.
      split: logical GPUs that each GPU is split into; neighbouring numbers are of one
        GPU.
    """

    indices: tuple[int, ...] = ()
    split: int = 1

    def first(self, count: int) -> tuple[int, ...]:
        """The numbers of so many of them."""
        return self.indices or tuple(range(count))

    def check(self, count: int, visible: int, *, asked: str = "") -> None:
        """Refuses more than there are.

        Args:
          count: that are asked for.
          visible: GPUs of this machine.
          asked: the flag that asks for them; `--num_gpus` by default.

        Raises:
          ValueError: there are too few; the sentence says what to write.
        """
        last = max(self.first(count))
        if last < visible * self.split:
            return
        named = f"GPU {last}" if self.indices else plural(count, "GPU")
        seen = plural(visible, "visible GPU")
        split = f", as {plural(visible * self.split, 'logical GPU')}"
        needed = -(-(last + 1) // max(visible, 1))
        which = "it" if visible == 1 else "each of them"
        share = f", or --logical_gpus={needed} to split {which}"
        raise ValueError(
            f"{asked or f'--num_gpus={count}'}: {named} asked for, but this machine "
            f"has {seen}"
            f"{split if visible and self.split > 1 else ''}; lower --num_gpus, or "
            f"write --device=cpu for logical CPU devices{share if visible else ''}"
        )

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
