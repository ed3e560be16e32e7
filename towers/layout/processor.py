"""The CPU of this machine: its name, its cores, what it can and cannot do fast."""

import functools
import os
import platform
from collections.abc import Mapping

_FACTS = "/proc/cpuinfo"

# dtype -> instruction sets, with one of which oneDNN has kernels in it on x86; without,
# TensorFlow takes its own, which turn each number into float32 and back.
_KERNELS = {
    "bfloat16": {"avx512f", "avx_ne_convert"},
    "float16": {"avx512_fp16", "amx_fp16", "avx_ne_convert"},
}


def name() -> str:
    """The processor's name, as Linux has it; else what Python knows."""
    return (
        _facts(_FACTS).get("model name") or platform.processor() or platform.machine()
    )


def cores() -> int:
    """Cores that this process may use; where the system does not say, all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has(instructions: str) -> bool:
    """Whether it has a set of instructions, called as Linux calls it, on x86."""
    return instructions in _facts(_FACTS).get("flags", "").split()


def lacks_kernels(dtype: str) -> bool:
    """Whether convolutions in a dtype are many times as slow as in float32.

    On a processor that is unknown, or not x86, they are not said to be.
    """
    flags = _facts(_FACTS).get("flags", "").split()
    return bool(flags) and not _KERNELS.get(dtype, set(flags)).intersection(flags)


@functools.cache
def _facts(path: str) -> Mapping[str, str]:
    """What Linux says of the first core; nothing on other systems."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}
