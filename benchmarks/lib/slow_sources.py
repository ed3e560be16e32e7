"""Sources of examples that take time to read, and other loaders that read them.

Nothing here imports TensorFlow, so processes of the loaders start fast.
"""

import importlib
import importlib.util
import io
import time
from collections.abc import Callable
from typing import Any

import numpy as np

LENGTH = 1 << 20  # no measurement reaches the end of an epoch
BATCH, WORKERS = 32, 2
_WARMUP = 30  # batches

Example = tuple[np.ndarray, np.int32]


class PurePython:
    """Examples that are computed by a loop of Python, which takes about 1 ms."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Example:
        value = float(index)
        for _ in range(26_000):
            value = value * 0.5 + 1.0
        return np.full([28], value, np.float32), np.int32(index % 10)


class Jpeg:
    """Pictures [128, 128, 3], uint8, from JPEGs that Pillow decodes in about 1 ms."""

    def __init__(self) -> None:
        noise = np.random.default_rng(1).integers(0, 256, [8, 24, 24, 3], np.uint8)
        image = importlib.import_module("PIL.Image")
        self._encoded = []
        for pixels in noise:
            buffer = io.BytesIO()
            picture = image.fromarray(pixels).resize((384, 384))
            picture.save(buffer, "JPEG", quality=90)
            self._encoded.append(buffer.getvalue())

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Example:
        image = importlib.import_module("PIL.Image")
        picture = image.open(io.BytesIO(self._encoded[index % len(self._encoded)]))
        return np.asarray(picture)[::3, ::3].copy(), np.int32(index % 10)


class Pictures:
    """Pictures [28, 28, 1] of ten classes.

    Args:
      seconds: of processor time that each takes.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> Example:
        end = time.process_time() + self._seconds
        while time.process_time() < end:
            pass
        return np.full([28, 28, 1], index % 7, np.float32), np.int32(index % 10)


SOURCES: dict[str, Callable[[], Any]] = {"python": PurePython, "jpeg": Jpeg}


def rate(read: Callable[[], Any], seconds: float) -> float:
    """Examples per second of a function that reads a batch, for so many seconds."""
    for _ in range(_WARMUP):
        read()
    batches, begun = 0, time.perf_counter()
    while (passed := time.perf_counter() - begun) < seconds:
        read()
        batches += 1
    return batches * BATCH / passed


def peer_rate(name: str, seconds: float) -> float:
    """Examples per second of `KIND_LOADER`, as `jpeg_grain`."""
    kind, _, loader = name.partition("_")
    batches = {"grain": grain_batches, "torch": torch_batches}[loader]
    return rate(batches(SOURCES[kind]()), seconds)


def grain_batches(source: Any) -> Callable[[], Any]:
    """The function that reads the next shuffled batch, by grain's processes."""
    grain = importlib.import_module("grain")
    examples = grain.MapDataset.source(source).shuffle(seed=1).repeat()
    # Its defaults, 16 threads and 500 batches, are for examples that wait for a disk.
    reading = grain.ReadOptions(num_threads=4, prefetch_buffer_size=8)
    batches = examples.batch(BATCH).to_iter_dataset(reading)
    options = grain.MultiprocessingOptions(num_workers=WORKERS)
    iterator = iter(batches.mp_prefetch(options))
    return lambda: next(iterator)


def torch_batches(source: Any) -> Callable[[], Any]:
    """The same by the workers of PyTorch's DataLoader."""
    loader = importlib.import_module("torch.utils.data").DataLoader
    iterator = iter(loader(source, BATCH, shuffle=True, num_workers=WORKERS))
    return lambda: next(iterator)
