"""Cases to compare (a model, number of towers and batch size) and lengths of runs."""

import dataclasses
import re
from collections.abc import Sequence
from typing import NamedTuple

DEFAULT = (
    "lenet_digits:1x32,lenet_digits:4x8,lenet:1x32,lenet:4x8,"
    "resnet20:1x128,resnet20:4x32,"
    "resnet50:1x16,resnet50:4x4,alexnet:1x32,alexnet:4x8"
)

# The image models that tf_cnn_benchmarks trains on TensorFlow 2 -> images per step, as
# many as keep two cores busy for about a second.
IMAGE_MODELS = {
    "trivial": 32,
    "trivial_cifar10": 512,
    "lenet": 128,
    "alexnet_cifar10": 128,
    **{
        f"tf_cnn_resnet{depth}{version}": 64
        for depth in (20, 32, 44, 56, 110)
        for version in ("", "_v2")
    },
    "alexnet": 32,
    "overfeat": 16,
    "googlenet": 16,
    **dict.fromkeys(("vgg11", "vgg16", "vgg19"), 8),
    **dict.fromkeys(("resnet50", "resnet50_v1.5", "tf_cnn_resnet50_v2"), 16),
    **dict.fromkeys(("resnet101", "tf_cnn_resnet101_v2"), 8),
    **dict.fromkeys(("resnet152", "tf_cnn_resnet152_v2"), 8),
    **dict.fromkeys(("tf_cnn_inception3", "inception4"), 8),
}

# Images/s on 2 cores, to estimate how many steps fill a given time; only the order of
# magnitude matters.
SPEEDS = {
    "trivial": 1500,
    "trivial_cifar10": 60_000,
    "mlp": 20_000,
    "lenet": 3000,
    "lenet_digits": 20_000,
    "alexnet_cifar10": 1500,
    "resnet20": 1000,
    **{
        f"tf_cnn_resnet{depth}{version}": speed
        for depth, speed in ((20, 1000), (32, 600), (44, 430), (56, 340), (110, 170))
        for version in ("", "_v2")
    },
    "alexnet": 70,
    "overfeat": 20,
    "googlenet": 35,
    **dict.fromkeys(("resnet50", "resnet50_v1.5", "tf_cnn_resnet50_v2"), 14),
}
UNKNOWN_SPEED = 10  # low, so that a run is rather too short than an hour long

LEAST_STEPS = 5
LEAST_WARMUP = 3  # steps; the first ones create kernels and threads, allocate memory


@dataclasses.dataclass(frozen=True)
class BenchmarkCase:
    """A model on towers; written `lenet:4x8`, or `lenet:4x8/bfloat16`.

    Attributes:
      model: as `--model` takes it.
      towers: how many.
      batch_size: examples per tower and step.
      dtype: of the computation.
    """

    model: str
    towers: int
    batch_size: int
    dtype: str = "float32"

    @classmethod
    def parse(cls, text: str) -> "BenchmarkCase":
        """The case that is written `MODEL:TOWERSxBATCH` or `...BATCH/bfloat16`.

        Raises:
          ValueError: it is written otherwise.
        """
        written = r"(.+):([1-9]\d*)x([1-9]\d*)(?:/(float32|bfloat16))?"
        match = re.fullmatch(written, text.strip())
        if not match:
            raise ValueError(f"{text!r}: a case is MODEL:TOWERSxBATCH, as lenet:4x8")
        return cls(match[1], int(match[2]), int(match[3]), match[4] or "float32")

    def __str__(self) -> str:
        dtype = "" if self.dtype == "float32" else f"/{self.dtype}"
        return f"{self.model}:{self.towers}x{self.batch_size}{dtype}"

    @property
    def examples(self) -> int:
        """Examples per step, over all towers."""
        return self.towers * self.batch_size

    @property
    def joined(self) -> "BenchmarkCase":
        """The case of one tower with the same number of examples per step."""
        return dataclasses.replace(self, towers=1, batch_size=self.examples)


class Length(NamedTuple):
    """How many steps a run takes."""

    steps: int  # timed
    warmup: int  # before them, not timed


def parse_list(text: str) -> list[BenchmarkCase]:
    """The cases of `lenet:1x32,lenet:4x8`.

    Raises:
      ValueError: a case is malformed or named twice.
    """
    cases = [BenchmarkCase.parse(part) for part in text.split(",")]
    if len(set(cases)) < len(cases):
        raise ValueError(f"{text!r} names a case twice")
    return cases


def of_image_models(towers: Sequence[int]) -> list[BenchmarkCase]:
    """The cases of `IMAGE_MODELS`, its images per step spread over so many towers."""
    return [
        BenchmarkCase(model, count, images // count)
        for model, images in IMAGE_MODELS.items()
        for count in towers
    ]


def length(case: BenchmarkCase, seconds: float) -> Length:
    """The number of steps that take about so many seconds on 2 cores."""
    speed = SPEEDS.get(case.model, UNKNOWN_SPEED)
    return of_steps(max(LEAST_STEPS, round(seconds * speed / case.examples)))


def of_steps(steps: int) -> Length:
    """So many timed steps, after a tenth as many for warm-up."""
    return Length(steps, max(LEAST_WARMUP, steps // 10))
