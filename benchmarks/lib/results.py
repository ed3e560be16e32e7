"""From runs to ratios: pure functions of what `compare` has measured."""

import dataclasses
from collections.abc import Callable, Sequence

from benchmarks.lib import ratios, table
from benchmarks.lib.cases import BenchmarkCase
from benchmarks.lib.ratios import Spread

# (case, peer) -> ours / the peer's, if there is a round with both.
Against = Callable[[BenchmarkCase, str], Spread | None]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of one system on one case, as it stands in the JSON file.

    Attributes:
      round: counted from 1.
      case: as `Case` writes it.
      system: a row of `systems.SYSTEMS`.
      images_per_second: over the timed steps; None if the run failed.
      failure: the last line of a run that failed, else None.
      seconds: that the whole run took.
      cpu_seconds: that it took, over all CPUs.
      others: as `process.Finished` has it.
      command: the command line.
      peak_bytes: as `process.Finished` has it.
    """

    round: int
    case: str
    system: str
    images_per_second: float | None
    failure: str | None
    seconds: float
    cpu_seconds: float
    others: float | None
    command: str
    peak_bytes: int = 0


class Results:
    """What was measured so far.

    Args:
      cases: in the order of the rows.
      systems: in the order of the columns; the first is ours.
      runs: more may be appended.
    """

    def __init__(
        self, cases: Sequence[BenchmarkCase], systems: Sequence[str], runs: list[Run]
    ):
        self.cases = cases
        self.systems = systems
        self.runs = runs

    @property
    def peers(self) -> Sequence[str]:
        """All systems but ours."""
        return self.systems[1:]

    def speeds(self, case: BenchmarkCase, system: str) -> list[float | None]:
        """images/s of each round, None where the run failed or was not made."""
        return self._of_rounds(case, system, lambda run: run.images_per_second)

    def peaks(self, case: BenchmarkCase, system: str) -> list[float | None]:
        """Peak MiB of each round, None where the run failed or was not made."""
        return self._of_rounds(case, system, lambda run: run.peak_bytes / 2**20)

    def memory_against(self, case: BenchmarkCase, peer: str) -> Spread | None:
        """Our peak / the peer's, over the rounds; None if no round has both."""
        ours = self.peaks(case, self.systems[0])
        return ratios.spread(ratios.paired(ours, self.peaks(case, peer)))

    def _of_rounds(
        self,
        case: BenchmarkCase,
        system: str,
        number: Callable[[Run], float | None],
    ) -> list[float | None]:
        by_round = {
            run.round: number(run) if run.images_per_second else None
            for run in self.runs
            if (run.case, run.system) == (str(case), system)
        }
        return [by_round.get(i) for i in range(1, max(by_round, default=0) + 1)]

    def against(self, case: BenchmarkCase, peer: str) -> Spread | None:
        """Ours / the peer's, over the rounds; None if there is no round with both."""
        ours = self.speeds(case, self.systems[0])
        return ratios.spread(ratios.paired(ours, self.speeds(case, peer)))

    def over_cases(self, peer: str) -> float | None:
        """The geometric mean of `against` over the cases that both have."""
        return self._mean(self.against, peer)

    def _mean(self, against: Against, peer: str) -> float | None:
        spreads = [against(case, peer) for case in self.cases]
        return ratios.geometric_mean(s.median for s in spreads if s)

    def scaling(self, case: BenchmarkCase, system: str) -> Spread | None:
        """N towers / one tower on as many examples, of the same system and round."""
        ours = self.speeds(case, system)
        return ratios.spread(ratios.paired(ours, self.speeds(case.joined, system)))

    @property
    def pairs(self) -> list[BenchmarkCase]:
        """The cases of several towers whose joined case was measured too."""
        return [c for c in self.cases if c.towers > 1 and c.joined in self.cases]

    @property
    def failures(self) -> list[Run]:
        """The runs that failed."""
        return [run for run in self.runs if run.images_per_second is None]

    def speed_table(self) -> list[str]:
        """images/s: a row per case, a column per system."""
        rows = [
            [str(case), *(self._cell(case, system) for system in self.systems)]
            for case in self.cases
        ]
        return table.table_lines(["images/s", *self.systems], rows)

    def ratio_table(self) -> list[str]:
        """Ours / peer: a row per case, a column per peer, and their means."""
        return self._table(f"{self.systems[0]} / peer", self.against)

    def memory_table(self) -> list[str]:
        """Our peak memory / the peer's, as `ratio_table`."""
        return self._table("peak memory / peer's", self.memory_against)

    def _table(self, title: str, against: Against) -> list[str]:
        rows = [
            [str(case), *(_text(against(case, peer)) for peer in self.peers)]
            for case in self.cases
        ]
        means = [self._mean(against, peer) for peer in self.peers]
        cells = ["-" if mean is None else ratios.number(mean) for mean in means]
        rows.append(["geometric mean", *cells])
        return table.table_lines([title, *self.peers], rows)

    def scaling_table(self) -> list[str]:
        """N towers / one tower: a row per pair, a column per system that has both."""
        systems = [
            s for s in self.systems if any(self.scaling(p, s) for p in self.pairs)
        ]
        rows = [
            [f"{case} / {case.joined}"]
            + [_text(self.scaling(case, s)) for s in systems]
            for case in self.pairs
        ]
        return table.table_lines(["towers / one tower", *systems], rows)

    def failure_lines(self) -> list[str]:
        """Which runs failed, and how."""
        return [
            f"{run.system} failed on {run.case} in round {run.round}: {run.failure}"
            for run in self.failures
        ]

    def summary(self) -> dict:
        """The ratios as they go into the JSON file."""
        return {
            **{
                name: {
                    peer: {str(c): _numbers(against(c, peer)) for c in self.cases}
                    for peer in self.peers
                }
                for name, against in (
                    ("against", self.against),
                    ("memory", self.memory_against),
                )
            },
            "geometric_mean": {peer: self.over_cases(peer) for peer in self.peers},
            "scaling": {
                system: {
                    str(case): _numbers(self.scaling(case, system))
                    for case in self.pairs
                }
                for system in self.systems
            },
        }

    def _cell(self, case: BenchmarkCase, system: str) -> str:
        """The speed's spread; `failed` where no round has one."""
        speeds = self.speeds(case, system)
        spread = ratios.spread(speed for speed in speeds if speed is not None)
        return "failed" if speeds and spread is None else _text(spread)


def _text(spread: Spread | None) -> str:
    return "-" if spread is None else str(spread)


def _numbers(spread: Spread | None) -> dict[str, float] | None:
    return None if spread is None else spread._asdict()
