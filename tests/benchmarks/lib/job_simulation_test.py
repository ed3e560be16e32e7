"""Simulated jobs agree with closed forms where there are some."""

import dataclasses
import math

import numpy as np
from absl.testing import parameterized

from benchmarks.lib import job_simulation
from benchmarks.lib.job_simulation import Job

_FAILURES = 20_000
_JOB = Job(
    workers=100,
    mtbf=1e6,
    step=1.0,
    straggling=0.0,
    interval=300.0,
    checkpoint=10.0,
    restart=50.0,
    change=5.0,
    replace=400.0,
)


def _draws(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def _expected_seconds(job: Job) -> float:
    """Daly's expected seconds for a second of training, of failures at any time."""
    mtbf, restart = job.mtbf / job.workers, job.replace + job.restart
    block = (job.interval + job.checkpoint) / mtbf
    return mtbf * math.exp(restart / mtbf) * math.expm1(block) / job.interval


def _harmonic(number: int) -> float:
    return sum(1 / k for k in range(1, number + 1))


class JobSimulationTest(parameterized.TestCase):
    def test_without_failures_and_checkpoints_nothing_is_lost(self):
        job = dataclasses.replace(
            _JOB, mtbf=1e15, checkpoint=0.0, restart=0.0, replace=0.0, change=0.0
        )
        self.assertAlmostEqual(job_simulation.restarted(job, 3, _draws()), 1, 6)
        self.assertAlmostEqual(job_simulation.elastic(job, 3, _draws()), 1, 6)

    @parameterized.parameters(1e6, 1e5, 3e4)
    def test_a_job_that_restarts_takes_the_time_that_daly_expects(self, mtbf):
        job = dataclasses.replace(_JOB, mtbf=mtbf)
        goodput = job_simulation.restarted(job, 200_000, _draws())
        self.assertAlmostEqual(goodput * _expected_seconds(job), 1, delta=0.02)

    def test_a_job_that_loses_its_only_ps_task_restarts(self):
        """The events of `elastic` take Daly's time, as hardly a worker fails."""
        restarted = dataclasses.replace(_JOB, workers=1, mtbf=2000.0)
        job = dataclasses.replace(restarted, ps=100, mtbf=100 * 2000.0)
        goodput = job_simulation.elastic(job, 100_000, _draws())
        self.assertAlmostEqual(goodput * _expected_seconds(restarted), 1, delta=0.02)

    @parameterized.parameters(1, 20)
    def test_elastic_workers_train_while_they_are_there(self, workers):
        """The share of the time in which a node works, of its failures and repairs."""
        job = dataclasses.replace(
            _JOB, workers=workers, mtbf=1000.0, step=0.01, checkpoint=0.0, change=0.0
        )
        goodput = job_simulation.elastic(job, _FAILURES, _draws())
        self.assertAlmostEqual(goodput, 1000 / (1000 + 400), delta=0.01)

    @parameterized.parameters((1, 0), (8, 0), (100, 0), (100, 4), (100, 50))
    def test_a_step_lasts_as_long_as_the_last_worker_it_waits_for(
        self, number, dropped
    ):
        """The mean of an order statistic of exponentials is a sum of harmonic terms."""
        slowest = 0.5 * (_harmonic(number) - _harmonic(dropped))
        step = job_simulation.mean_step(number, 0.5, _draws(), dropped)
        self.assertAlmostEqual(step, 1 + slowest, delta=0.06)

    def test_backup_workers_are_not_waited_for(self):
        """Few failures: the goodput is that of the steps and of the checkpoints."""
        job = dataclasses.replace(_JOB, mtbf=1e9, straggling=0.5, checkpoint=0.0)
        step = 1 + 0.5 * (_harmonic(100) - _harmonic(10))
        goodput = job_simulation.elastic(job, 100, _draws(), backup=10)
        self.assertAlmostEqual(goodput, 0.9 / step, delta=0.01)

    def test_backup_workers_stand_in_for_lost_ones(self):
        """A failure costs nothing, until too few workers are left; then all wait."""
        job = dataclasses.replace(_JOB, checkpoint=0.0, mtbf=1e6)
        for backup in (1, 10):
            self.assertAlmostEqual(
                job_simulation.elastic(job, _FAILURES, _draws(), backup),
                (100 - backup)
                / 100
                * (1.0 if backup == 10 else _share_of_at_most_one_lost()),
                delta=0.001,
            )

    @parameterized.parameters(
        (1440.0, 117.0, 0.01), (360.0, 57.0, 0.01), (15.0, 9.1, 0.02)
    )
    def test_the_best_interval_is_that_which_daly_published(self, mtbf, best, delta):
        """His figures 3 to 5: checkpoints of 5 minutes, restarts of 10."""
        self.assertAlmostEqual(job_simulation.daly(5.0, mtbf), best, delta=0.5)
        gaps = _draws().exponential(mtbf, 200_000)
        simulated = job_simulation.best_interval(5.0, mtbf, 10.0, gaps)
        daly = job_simulation.daly(5.0, mtbf)
        self.assertAlmostEqual(simulated / daly, 1, delta=delta)

    def test_young_agrees_where_checkpoints_are_short_and_only_there(self):
        gaps = _draws().exponential(1.0, 200_000)

        def over_young(checkpoint: float) -> float:
            best = job_simulation.best_interval(checkpoint, 1.0, 0.1, gaps)
            return best / job_simulation.young(checkpoint, 1.0)

        self.assertAlmostEqual(over_young(1e-4), 1, delta=0.02)
        self.assertLess(over_young(0.3), 0.8)

    def test_checkpoints_longer_than_two_failures(self):
        self.assertEqual(job_simulation.daly(30.0, 15.0), 15.0)

    def test_the_same_draws_give_the_same_goodput(self):
        def simulated(seed: int) -> list[float]:
            job = dataclasses.replace(_JOB, straggling=0.1, ps=3)
            return [
                job_simulation.elastic(job, 300, _draws(seed), 4),
                job_simulation.restarted(job, 300, _draws(seed)),
            ]

        self.assertEqual(simulated(1), simulated(1))
        self.assertNotEqual(simulated(1), simulated(2))

    @parameterized.parameters(
        dict(mtbf=2e5),
        dict(checkpoint=40.0),
        dict(replace=2000.0),
        dict(straggling=0.3),
        dict(ps=20),
    )
    def test_what_is_worse_is_worse(self, **change):
        job, worse = _JOB, dataclasses.replace(_JOB, **change)
        self.assertLess(
            job_simulation.restarted(worse, _FAILURES, _draws()),
            job_simulation.restarted(job, _FAILURES, _draws()),
        )
        self.assertLess(
            job_simulation.elastic(worse, _FAILURES, _draws()),
            job_simulation.elastic(job, _FAILURES, _draws()),
        )


def _share_of_at_most_one_lost() -> float:
    """Share of the time with 99 or 100 of 100 workers, which fail independently."""
    lost = 400 / (1e6 + 400)
    return (1 - lost) ** 100 + 100 * lost * (1 - lost) ** 99
