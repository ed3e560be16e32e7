"""The CPU of this machine: its name, and what it cannot do fast."""

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
    return _facts().get("model name") or platform.processor() or platform.machine()


def lacks_kernels(dtype: str) -> bool:
    """Whether convolutions in a dtype are many times as slow as in float32.

    On a processor that is unknown, or not x86, they are not said to be.
    """
    flags = _facts().get("flags", "").split()
    return bool(flags) and not _KERNELS.get(dtype, set(flags)).intersection(flags)


def _facts() -> Mapping[str, str]:
    """What Linux says of the first core; nothing on other systems."""
    try:
        with open(_FACTS, encoding="utf-8") as file:
            lines = file.read().partition("\n\n")[0].splitlines()
    except OSError:
        return {}
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, _, value in pairs}
