"""What happens to the tasks of an elastic cluster, drawn at random."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from tests.processes.manual_tasks import Name

WORKERS = 4
LEADER = ("controller", 0)
NAMES: tuple[Name, ...] = (
    *(("ps", 0), ("ps", 1), LEADER),
    *(("worker", index) for index in range(WORKERS)),
)
# What may happen to a task: its job, and how it goes.
KINDS = (
    *(f"{job} {how}" for job in ("worker", "ps") for how in ("killed", "frozen")),
    *("controller killed", "controller frozen", "worker leaves"),
    *(f"{job} cut off" for job in ("worker", "ps", "controller")),
)
ENDING = ("killed", "leaves")  # after which a task is started again
STALL_SECONDS = 5  # `--stall_secs`
_AWAY = 3.0 * STALL_SECONDS  # of a task, at most
# Share of the disturbances that come while the last task is still away.
_HASTY = 0.25


class Disturbance(NamedTuple):
    """Something that happens to a task.

    Attributes:
      kind: one of `KINDS`.
      index: of the task.
      after: seconds since the last step; with `hasty`, since the last disturbance.
      away: seconds until the task comes back.
      hasty: whether the next disturbance does not wait for that.
      unknown: whether a worker that was ended comes back by `--join`, at an address
        that the controller does not know.
    """

    kind: str
    index: int
    after: float
    away: float
    hasty: bool
    unknown: bool

    @property
    def name(self) -> Name:
        """(job, index) of the task."""
        return self.kind.split()[0], self.index

    def __str__(self) -> str:
        job, how = self.kind.split(maxsplit=1)
        again = ", back at another address" if self.unknown else ""
        return f"{job} {self.index} {how} for {self.away:.1f} s{again}"


def draw(
    seed: int, count: int, pause: float, kinds: Sequence[str] = KINDS
) -> list[Disturbance]:
    """Draws what happens to which task when; the same for the same seed.

    Args:
      seed: of the draws.
      count: of disturbances.
      pause: upper limit of `Disturbance.after`, in seconds.
      kinds: from which to draw; each is as likely.
    """
    drawn, disturbances = random.Random(seed), []
    for number in range(count):
        kind = drawn.choice(kinds)
        job, _, how = kind.partition(" ")
        index = drawn.randrange(sum(name[0] == job for name in NAMES))
        after, away = drawn.uniform(0.0, pause), drawn.uniform(0.0, _AWAY)
        hasty = drawn.random() < _HASTY and number < count - 1
        unknown = drawn.random() < 0.5 and job == "worker" and how in ENDING
        disturbances.append(Disturbance(kind, index, after, away, hasty, unknown))
    return disturbances
