"""PyTorch's DataLoader with torchvision's transforms, for `benchmarks.input`.

    python -m benchmarks.peers.torch_input FOLDER training 64 10 60

Needs torch and torchvision alone.  FOLDER has a folder of JPEGs for each class.  The
transforms are those of tf_cnn_benchmarks, and there is a worker process for each core.
The other arguments are those of `tf_cnn_input`.
"""

import itertools
import os
from collections.abc import Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader
from torchvision import transforms
from torchvision.datasets import ImageFolder

from benchmarks.peers import peer

_SIDE, _ENLARGED = 224, 256  # pixels, of resnet50

_CROPS = {
    "training": (
        transforms.RandomResizedCrop(_SIDE, scale=(0.05, 1.0), ratio=(0.75, 1.33)),
        transforms.RandomHorizontalFlip(),
    ),
    "evaluation": (transforms.Resize(_ENLARGED), transforms.CenterCrop(_SIDE)),
}


def input_batches(folder: str, kind: str, batch_size: int) -> Iterator[Any]:
    """Batches of images and labels, epoch after epoch."""
    scaled = transforms.Normalize([0.5] * 3, [0.5] * 3)
    steps = [*_CROPS[kind], transforms.ToTensor(), scaled]
    loader = DataLoader(
        ImageFolder(folder, transforms.Compose(steps)),
        batch_size,
        shuffle=True,
        num_workers=len(os.sched_getaffinity(0)),
        drop_last=True,
        persistent_workers=True,
    )
    return itertools.chain.from_iterable(itertools.repeat(loader))


def main(argv: Sequence[str] | None = None) -> None:
    """Prints the images per second."""
    parser = peer.input_parser("peers.torch_input", __doc__, _CROPS)
    arguments = parser.parse_args(argv)
    folder, kind = arguments.folder, arguments.kind
    batches = input_batches(folder, kind, arguments.batch_size)
    print(peer.input_line(arguments, lambda: next(batches)), flush=True)


if __name__ == "__main__":
    main()
