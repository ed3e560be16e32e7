"""The CPU of this machine: its name, its cores, the dtypes in which it is fast."""

import functools
import os
import platform
from collections.abc import Mapping

_FACTS = "/proc/cpuinfo"

# dtype -> instruction sets, one of which oneDNN's kernels for it need on x86.  Without,
# TensorFlow uses kernels that convert each number to float32 and back.
_KERNELS = {
    "bfloat16": {"avx512f", "avx_ne_convert"},
    "float16": {"avx512_fp16", "amx_fp16", "avx_ne_convert"},
}


def name() -> str:
    """The processor's name from Linux, or else from Python."""
    return (
        _facts(_FACTS).get("model name") or platform.processor() or platform.machine()
    )


def cores() -> int:
    """Cores that this process may use; all of them if the system does not say."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def has(instructions: str) -> bool:
    """Whether it has a set of instructions, by its name in Linux, on x86."""
    return instructions in _facts(_FACTS).get("flags", "").split()


def lacks_kernels(dtype: str) -> bool:
    """Whether convolutions in a dtype are many times as slow as in float32.

    False on a processor that is unknown or not x86.
    """
    flags = _facts(_FACTS).get("flags", "").split()
    return bool(flags) and not _KERNELS.get(dtype, set(flags)).intersection(flags)


@functools.cache
def _facts(path: str) -> Mapping[str, str]:
    """Linux's facts about the first core; {} on other systems."""
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}
