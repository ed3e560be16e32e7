"""A tower cut into two stages, and the Gantt chart of one step.

    python examples/pipeline_gantt.py [FOLDER]

FOLDER (by default `pipeline_report`) then holds `gantt.svg`: a row per stage, a bar for
each micro-batch forward and backward. The gaps are the bubble.
"""

import sys

from flags import config
from models import get
from towers import planning, run
from towers.session.progress import Console


def main() -> int:
    """Trains a few steps and reports one of them."""
    folder = sys.argv[1] if len(sys.argv) > 1 else "pipeline_report"
    settings = config.make(
        num_gpus=2,
        device="cpu",
        num_stages=2,
        num_micro_batches=8,
        schedule="1f1b",
        batch_size=64,
        num_batches=12,
        partition="flops",
        pipeline_report=folder,
    )
    return run.train(planning.make(settings, get), Console(sys.stdout))


if __name__ == "__main__":
    sys.exit(main())
