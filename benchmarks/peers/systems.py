"""This project and its peers: the command that trains a case on each.

All train in float32 (or bfloat16, if they support it) with plain SGD at one small
learning rate, without weight decay, on synthetic data, on the CPU, in NHWC if the user
can choose.  N towers become what the system itself offers for N devices.
(`lenet_digits` is lenet on 8 x 8 images: this project reads them from the data set in
the repository, the peers have one batch of noise in memory.)  To add a peer, write one
function and one row.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from benchmarks.lib.cases import BenchmarkCase, Length
from benchmarks.lib.process import Command
from flags import tf_cnn_models

# Small enough that nothing diverges, whatever the scale of the synthetic images.
LEARNING_RATE = "1e-5"

# GPUs are hidden from all; TensorFlow logs errors only.
ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2"}

# The models of keras_peer.py and torch_peer.py.  Neither is imported here, because this
# interpreter may lack TensorFlow or PyTorch.
PEER_MODELS = ("alexnet", "lenet", "lenet_digits", "mlp", "resnet20", "resnet50")

# The models of bare_peer.py.
BARE_MODELS = ("lenet", "lenet_digits", "resnet50")

# Model of a case -> our model and data set, unless it is the model of that name on
# synthetic data.
OUR_MODELS = {"lenet_digits": ("lenet", "digits")}

# Our name -> model and data set of tf_cnn_benchmarks: the same layers, and the plain
# resnets of CIFAR-10 (there without one rectifier, and with an eleventh class).
TF_CNN_MODELS = {
    row.here: (name, data_name)
    for data_name, rows in tf_cnn_models.MODELS.items()
    for name, row in rows.items()
} | {f"resnet{depth}": (f"resnet{depth}", "cifar10") for depth in (20, 32, 44, 56, 110)}

# What tf_cnn_benchmarks does not train on TensorFlow 2: prefixes of our names, and why.
TF_CNN_LACKS = {
    "densenet": "passes an argument to its functions for them that they do not take",
    "ncf": "needs the official models of tensorflow/models",
    "official_": "needs the official models of tensorflow/models",
    "mobilenet": "needs TensorFlow 1",
    "nasnet": "needs TensorFlow 1",
}


@dataclasses.dataclass(frozen=True)
class Places:
    """Where the systems are.

    Attributes:
      python: interpreter with TensorFlow, for this project and Keras.
      torch_python: interpreter with PyTorch.
      tf_cnn_benchmarks: the folder of tf_cnn_benchmarks.py, or "" for none.
      tf_cnn_python: interpreter with TensorFlow and tf-keras.
    """

    python: str
    torch_python: str
    tf_cnn_benchmarks: str
    tf_cnn_python: str


class System(NamedTuple):
    """A system."""

    # (case, its length, places) -> command, or None if it has no such case.
    command: Callable[[BenchmarkCase, Length, Places], Command | None]
    python: str  # the field of `Places` that names its interpreter
    needs: tuple[str, ...]  # packages, without which it is left out
    # Its runs last for this share of --seconds; below 1 if it is so slow on small
    # models that a run would take minutes.
    share: float = 1.0


def towers(case: BenchmarkCase, length: Length, places: Places) -> Command:
    """This project."""
    model, data_name = OUR_MODELS.get(case.model, (case.model, "synthetic"))
    return Command(
        [
            places.python,
            "-m",
            "towers.train",
            f"--model={model}",
            f"--data_name={data_name}",
            f"--compute_dtype={case.dtype}",
            *_common_flags(case, length),
        ],
        ENVIRONMENT,
    )


def bare(case: BenchmarkCase, length: Length, places: Places) -> Command | None:
    """A bare graph of the same operations, which shows this project's overhead."""
    if case.model not in BARE_MODELS:
        return None
    command = _peer("bare_peer", places.python, case, length)
    dtype = f"--compute_dtype={case.dtype}"
    return dataclasses.replace(command, argv=[*command.argv, dtype])


def keras(case: BenchmarkCase, length: Length, places: Places) -> Command | None:
    """Keras `fit` on one device as it comes, which is compiled by XLA."""
    if case.towers > 1 or not _has(case):
        return None
    return _peer("keras_peer", places.python, case, length)


def keras_no_xla(case: BenchmarkCase, length: Length, places: Places) -> Command | None:
    """The same with `jit_compile=False`: on CPUs sometimes slower, sometimes faster."""
    command = keras(case, length, places)
    return command and dataclasses.replace(command, argv=[*command.argv, "--no-xla"])


def keras_mirrored(
    case: BenchmarkCase, length: Length, places: Places
) -> Command | None:
    """Keras `fit` under `MirroredStrategy` on as many logical CPU devices."""
    if case.towers == 1 or not _has(case):
        return None
    return _peer("keras_peer", places.python, case, length)


def torch(case: BenchmarkCase, length: Length, places: Places) -> Command | None:
    """PyTorch: one process, or as many under `DistributedDataParallel` over gloo."""
    if case.model not in PEER_MODELS:
        return None
    command = _peer("torch_peer", places.torch_python, case, length)
    narrow = ["--autocast"] if case.dtype == "bfloat16" else []
    return dataclasses.replace(command, argv=[*command.argv, *narrow])


def towers_tf_cnn_benchmarks(
    case: BenchmarkCase, length: Length, places: Places
) -> Command | None:
    """This project by the command line of tf_cnn_benchmarks."""
    flags = _tf_cnn_flags(case, length)
    argv = [places.python, "-m", "towers.tf_cnn_benchmarks", *flags]
    return Command(argv, ENVIRONMENT) if flags else None


def tf_cnn_benchmarks(
    case: BenchmarkCase, length: Length, places: Places
) -> Command | None:
    """tf_cnn_benchmarks of 2017, with the flags it needs on a CPU and today."""
    flags = _tf_cnn_flags(case, length)
    environment = {**ENVIRONMENT, "TF_USE_LEGACY_KERAS": "1"}
    argv = [places.tf_cnn_python, "tf_cnn_benchmarks.py", *flags]
    return Command(argv, environment, places.tf_cnn_benchmarks) if flags else None


def _tf_cnn_flags(case: BenchmarkCase, length: Length) -> list[str]:
    """The command line of tf_cnn_benchmarks; empty if it has no such case."""
    lacking = case.model.startswith(tuple(TF_CNN_LACKS))
    if case.model not in TF_CNN_MODELS or lacking or case.dtype != "float32":
        return []
    model, data_name = TF_CNN_MODELS[case.model]
    return [
        f"--model={model}",
        f"--data_name={data_name}",
        *_common_flags(case, length),
        "--local_parameter_device=cpu",
        "--data_format=NHWC",
        "--variable_update=parameter_server",
    ]


def _common_flags(case: BenchmarkCase, length: Length) -> list[str]:
    """The flags that this project and tf_cnn_benchmarks both have."""
    return [
        f"--num_gpus={case.towers}",
        f"--batch_size={case.batch_size}",
        f"--num_batches={length.steps}",
        f"--num_warmup_batches={length.warmup}",
        f"--display_every={_display_every(length)}",
        "--device=cpu",
        "--optimizer=sgd",
        f"--init_learning_rate={LEARNING_RATE}",
        "--weight_decay=0",
    ]


def tf_cnn_benchmarks_onednn(
    case: BenchmarkCase, length: Length, places: Places
) -> Command | None:
    """The same with oneDNN's kernels, which this project's commands switch on.

    On a CPU with AVX-512 VNNI or newer, TensorFlow switches them on itself.
    """
    command = tf_cnn_benchmarks(case, length, places)
    return command and dataclasses.replace(
        command, env={**command.env, "TF_ENABLE_ONEDNN_OPTS": "1"}
    )


_OLD_KERAS = ("tensorflow", "tf-keras")

# name -> system, ours first: it is what the others are compared with.
SYSTEMS: dict[str, System] = {
    "towers": System(towers, "python", ("tensorflow",)),
    "towers.tf_cnn_benchmarks": System(
        towers_tf_cnn_benchmarks, "python", ("tensorflow",)
    ),
    "bare": System(bare, "python", ("tensorflow",)),
    "keras": System(keras, "python", ("tensorflow", "keras")),
    "keras_no_xla": System(keras_no_xla, "python", ("tensorflow", "keras")),
    "keras_mirrored": System(keras_mirrored, "python", ("tensorflow", "keras"), 0.25),
    "torch": System(torch, "torch_python", ("torch",)),
    "tf_cnn_benchmarks": System(tf_cnn_benchmarks, "tf_cnn_python", _OLD_KERAS),
    "tf_cnn_benchmarks_onednn": System(
        tf_cnn_benchmarks_onednn, "tf_cnn_python", _OLD_KERAS
    ),
}


def missing(name: str, places: Places, versions: Mapping[str, str]) -> str:
    """Why a system cannot run, in words; "" if it can.

    Args:
      name: a row of `SYSTEMS`.
      places: where they are.
      versions: of the packages that its interpreter has.
    """
    row = SYSTEMS[name]
    if row.python == "tf_cnn_python" and not places.tf_cnn_benchmarks:
        return "give --tf_cnn_benchmarks, the path of a checkout"
    return lacking(getattr(places, row.python), row.needs, versions)


def lacking(python: str, needs: Sequence[str], versions: Mapping[str, str]) -> str:
    """Which packages an interpreter does not have, in words; "" if it has all.

    Args:
      python: the interpreter.
      needs: the packages.
      versions: of those that it has.
    """
    gone = [package for package in needs if package not in versions]
    return f"{python} has no {' or '.join(gone)}" if gone else ""


def _has(case: BenchmarkCase) -> bool:
    """Whether keras_peer.py has the case."""
    return case.model in PEER_MODELS and case.dtype == "float32"


def _peer(module: str, python: str, case: BenchmarkCase, length: Length) -> Command:
    return Command(
        [
            python,
            "-m",
            f"benchmarks.{module}",
            f"--model={case.model}",
            f"--num_devices={case.towers}",
            f"--batch_size={case.batch_size}",
            f"--num_batches={length.steps}",
            f"--num_warmup_batches={length.warmup}",
            f"--learning_rate={LEARNING_RATE}",
        ],
        ENVIRONMENT,
    )


def _display_every(length: Length) -> int:
    """Steps between step lines: ten lines in all, so that reading the loss is cheap."""
    return max(1, length.steps // 10)
