"""The flags of devices and threads: a section of `Config`."""

import dataclasses
from typing import ClassVar

from flags.field import (
    AT_LEAST_0,
    FROM_0_TO_1,
    FROM_0_TO_4096,
    FROM_1_TO_1024,
    field,
)


@dataclasses.dataclass(frozen=True)
class DeviceFlags:
    """Where the towers run."""

    common: ClassVar[tuple[str, ...]] = ("num_gpus", "device")

    num_gpus: int = field(
        1,
        "GPUs or logical CPU devices, one tower on each; with stages or shards a tower "
        "takes several of them",
        must=FROM_1_TO_1024,
    )
    gpu_indices: tuple[int, ...] = field(
        (),
        "the GPU of each tower, in order; with --logical_gpus=2 the first GPU has "
        "numbers 0 and 1",
        unset="0,1,2,...",
        must=AT_LEAST_0,
    )
    logical_gpus: int = field(
        1,
        "logical GPUs that each GPU is split into, which share its memory and time; "
        "for tests with more towers than GPUs",
        must=FROM_1_TO_1024,
    )
    device: str = field(
        "auto",
        "what the towers run on; auto takes GPUs if there are any",
        choices=("cpu", "gpu", "auto"),
    )
    num_intra_threads: int = field(
        0,
        "CPU threads within an operation; 0 takes one thread with at least as many CPU "
        "towers as cores, else one per core",
        must=FROM_0_TO_4096,
    )
    num_inter_threads: int = field(
        0,
        "operations that run at a time on the CPU; 0 lets TensorFlow decide",
        must=FROM_0_TO_4096,
    )
    allow_growth: bool | None = field(
        None,
        "take GPU memory as needed, instead of all of it at the start",
        unset="TensorFlow decides",
    )
    gpu_memory_frac_for_testing: float = field(
        0.0,
        "fraction of each GPU's memory to take; 0 lets TensorFlow decide",
        must=FROM_0_TO_1,
    )
    tensor_float_32: bool = field(
        True,
        "multiply float32 on GPUs in TensorFloat-32, which keeps 10 of the 23 bits of "
        "each factor's fraction; --notensor_float_32 keeps all and is several times "
        "slower; give it to every task of a cluster",
    )
    deterministic_ops: bool = field(
        False,
        "use GPU kernels that give the same bits in every run; they are slower, and "
        "some operations have none; give it to every task of a cluster",
    )
    batchnorm_persistent: bool = field(
        True,
        "let cuDNN keep a batch on the chip while it normalizes it, which is far "
        "faster in 16 bits; turn it off for activations so large that this overflows",
    )
    xla: bool = field(False, "let XLA compile what it can of the graph")
    xla_compile: bool = field(
        False, "compile each tower as a whole with XLA, or end with an error"
    )
