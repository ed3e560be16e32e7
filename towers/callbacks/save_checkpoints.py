"""Checkpoints at intervals of steps or seconds."""

import time

from towers.callbacks.base import NEVER, RunContext
from towers.callbacks.every import Every
from towers.checkpoints.saving import Saving
from towers.graph import TrainGraph

_RETRY_SECONDS = 10.0  # until the next try, after a checkpoint could not be written


class SaveCheckpoints(Every):
    """Writes a checkpoint at intervals of steps or seconds."""

    def __init__(
        self,
        train: TrainGraph,
        saving: Saving,
        *,
        steps: float = 0,
        seconds: float = 0.0,
    ):
        super().__init__(train, steps=steps, seconds=seconds)
        self._saving = saving
        self._failed = False

    def next_due(self, step: int) -> int:
        """As in `Every`; after a failure, the next step once it is time to retry."""
        if self._saving.has_failed():
            self._failed, self._last_time = True, time.monotonic()
        if not self._failed:
            return super().next_due(step)
        waited = time.monotonic() - self._last_time
        return step + 1 if waited >= _RETRY_SECONDS else NEVER

    def act(self, run_context: RunContext, step: int) -> None:
        """Saves, or notes that it failed."""
        self._failed = not self._saving.attempt(run_context.session, step)
