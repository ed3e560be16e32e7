"""A synchronous job on nodes that fail, simulated from event to event.

The failures of a node are a Poisson process.  A worker is a node.  Its share of a step
takes 1 + `straggling` * E of the fastest time, with E exponential of mean 1, drawn anew
in each step.  Between two events all steps take their mean time.
"""

import dataclasses
import heapq
import math

import numpy as np

_DRAWS = 2000  # of steps, for their mean time
_FACTORS = np.geomspace(1 / 3, 3, 61)  # of Young's interval, which are tried
_WINDOW = 0.7  # of the logarithm, in which the curve of goodput is fitted


@dataclasses.dataclass(frozen=True)
class Job:
    """A job; all times in seconds.

    Attributes:
      workers: their number.
      mtbf: mean time between the failures of one node.
      step: a step of all workers, none slower than the fastest.
      straggling: what a worker's share of a step takes longer on average, as a share of
        the fastest time.
      interval: training between two checkpoints, rounded to whole steps.
      checkpoint: for which a checkpoint holds the training up.
      restart: from the last checkpoint to the next step, once all nodes are there.
      change: for which the training stands when a worker was lost or joins.
      replace: from the failure of a node until its replacement is there.
      ps: nodes that hold the only copy of the variables.
    """

    workers: int
    mtbf: float
    step: float
    straggling: float
    interval: float
    checkpoint: float
    restart: float
    change: float
    replace: float
    ps: int = 0


def young(checkpoint: float, mtbf: float) -> float:
    """The best time between two checkpoints, in first order.

    Young, "A first order approximation to the optimum checkpoint interval",
    Communications of the ACM 17(9), 1974.

    Args:
      checkpoint: seconds of one.
      mtbf: seconds between two failures of the job.
    """
    return math.sqrt(2 * checkpoint * mtbf)


def daly(checkpoint: float, mtbf: float) -> float:
    """The best time between two checkpoints, in higher order.

    Daly, "A higher order estimate of the optimum checkpoint interval for restart
    dumps", Future Generation Computer Systems 22(3), 2006.

    Args:
      checkpoint: seconds of one.
      mtbf: seconds between two failures of the job.
    """
    if checkpoint >= 2 * mtbf:
        return mtbf
    part = checkpoint / (2 * mtbf)
    return young(checkpoint, mtbf) * (1 + math.sqrt(part) / 3 + part / 9) - checkpoint


def mean_step(
    workers: int, straggling: float, rng: np.random.Generator, dropped: int = 0
) -> float:
    """The mean time of a step that waits for all workers but the slowest `dropped`.

    Args:
      workers: that take part.
      straggling: as in `Job`.
      rng: draws.
      dropped: workers for which no step waits.

    Returns:
      in units of the fastest time.
    """
    last = workers - dropped - 1
    times = rng.exponential(straggling, (_DRAWS, workers))
    return 1 + float(np.partition(times, last, axis=1)[:, last].mean())


def restarted(job: Job, failures: int, rng: np.random.Generator) -> float:
    """Goodput of a job that begins at its last checkpoint after each failure.

    It waits for the replacement and restarts.  Nodes may fail meanwhile, too; then it
    waits anew.

    Args:
      job: which.
      failures: after so many the simulation ends.
      rng: draws.
    """
    step = job.step * mean_step(job.workers, job.straggling, rng)
    every = max(1, round(job.interval / step))
    gaps = rng.exponential(job.mtbf / (job.workers + job.ps), failures)
    blocks = _blocks(gaps, every * step + job.checkpoint, job.replace + job.restart)
    return blocks * every * job.step / float(gaps.sum())


def _blocks(gaps: np.ndarray, block: float, restart: float) -> float:
    """How many whole blocks of time fit between failures, after the restarts.

    Args:
      gaps: [n], from each failure to the next; the first from the start.
      block: training and its checkpoint.
      restart: after each failure.
    """
    used = np.append(gaps[0], np.maximum(gaps[1:] - restart, 0.0))
    return float(np.floor(used / block).sum())


def best_interval(
    checkpoint: float, mtbf: float, restart: float, gaps: np.ndarray
) -> float:
    """The time between two checkpoints with which a job that restarts does most.

    Every interval meets the same failures, and a polynomial through the results takes
    out what is left of chance.

    Args:
      checkpoint: seconds of one.
      mtbf: seconds between two failures of the job.
      restart: seconds after each failure until the job trains again.
      gaps: [n], seconds between failures.
    """
    intervals = young(checkpoint, mtbf) * _FACTORS
    trained = np.array([_blocks(gaps, t + checkpoint, restart) * t for t in intervals])
    x = np.log(intervals)
    near = np.abs(x - x[trained.argmax()]) < _WINDOW
    curve = np.polynomial.Polynomial.fit(x[near], trained[near] / trained.max(), 4)
    fine = np.linspace(x[near][0], x[near][-1], 2001)
    return float(np.exp(fine[curve(fine).argmax()]))


class _Progress:
    """Steps that count, through pauses and checkpoints.

    Attributes:
      steps: so far, with those since the last checkpoint.
      pause: seconds until the training goes on.
    """

    def __init__(self, every: int, checkpoint: float):
        self.steps = 0
        self.pause = 0.0
        self._every = every
        self._checkpoint = checkpoint
        self._unsaved = 0
        self._under_way = 0.0  # seconds of the step, or checkpoint, under way

    def pass_time(self, seconds: float, step: float) -> None:
        """Trains for so long, with steps of a length; an infinite one never ends."""
        paused = min(seconds, self.pause)
        self.pause -= paused
        if not math.isfinite(step):
            return
        position = self._unsaved * step + self._under_way + seconds - paused
        blocks, position = divmod(position, self._every * step + self._checkpoint)
        unsaved = min(self._every, int(position / step))
        self.steps += int(blocks) * self._every + unsaved - self._unsaved
        self._unsaved, self._under_way = unsaved, position - unsaved * step

    def lose_step(self) -> None:
        """Drops the step, or checkpoint, under way."""
        self._under_way = 0.0

    def roll_back(self) -> None:
        """Drops all steps since the last checkpoint."""
        self.steps -= self._unsaved
        self._unsaved, self._under_way = 0, 0.0


def elastic(
    job: Job, failures: int, rng: np.random.Generator, backup: int = 0
) -> float:
    """Goodput of a job that trains on with the workers that are left.

    The global batch stays, so fewer workers take longer for a step.  The step under way
    is taken again.  A replacement joins.  If a node of `ps` fails, all begins at the
    last checkpoint, as in `restarted`.

    With `backup`, a step uses the first workers but so many, of the full batch only
    their share is useful, and a lost worker is one of those that are not waited for.
    If more are lost, the training waits for replacements.

    Args:
      job: which.
      failures: after so many the simulation ends.
      rng: draws.
      backup: workers of `job.workers` for which no step waits.
    """
    used = job.workers - backup
    lengths: dict[int, float] = {}

    def length(present: int) -> float:
        if present < max(1, used if backup else 1):
            return math.inf
        dropped = present - used if backup else 0
        share = 1.0 if backup else job.workers / present
        return job.step * share * mean_step(present, job.straggling, rng, dropped)

    lengths[job.workers] = length(job.workers)
    every = max(1, round(job.interval / lengths[job.workers]))
    progress = _Progress(every, job.checkpoint)
    now, failed, returns = 0.0, 0, list[float]()
    while failed < failures:
        present = job.workers - len(returns)
        if present not in lengths:
            lengths[present] = length(present)
        nodes = present + job.ps
        failure = now + rng.exponential(job.mtbf / nodes) if nodes else math.inf
        joins = bool(returns) and returns[0] < failure
        event = returns[0] if joins else failure
        progress.pass_time(event - now, lengths[present])
        now = event
        if joins:
            heapq.heappop(returns)
            progress.pause = max(progress.pause, 0.0 if backup else job.change)
            continue
        failed += 1
        if rng.random() * nodes < job.ps:
            progress.roll_back()
            progress.pause = job.replace + job.restart
        else:
            heapq.heappush(returns, now + job.replace)
            if not backup:
                progress.lose_step()
                progress.pause = max(progress.pause, job.change)
    return progress.steps * job.step * used / job.workers / now
