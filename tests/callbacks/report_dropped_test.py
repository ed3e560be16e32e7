"""Who was dropped how often is told, and who was used is logged."""

import os
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.callbacks.report_dropped import ReportDropped
from towers.errors.side_outputs import SideOutputs
from towers.layout import placement
from towers.layout.cluster_spec import Task
from towers.membership_log import FILE, MembershipFile, MembershipLog
from towers.variable_update.backup_workers import BackupChief


class ReportDroppedTest(absltest.TestCase):
    def _report(self, job: str, skipped: int | None) -> tuple[ReportDropped, list[str]]:
        dropped = types.SimpleNamespace(skipped=skipped, left="left")
        clients = mock.create_autospec(
            BackupChief, instance=True, used="used", dropped=dropped
        )
        where = placement.Placement(
            *("cpu", ("a",), ("a",), ("a",)),
            master=placement.device("CPU", 0, Task(job, 0)),
            clients=3,
        )
        train = types.SimpleNamespace(clients=clients, step="step", placement=where)
        self.folder, lines = self.create_tempdir().full_path, []
        file = MembershipFile(self.folder, SideOutputs())
        report = ReportDropped(train, lines.append, file, every=2)
        self.assertEqual(report.before_run(None).fetches, ["step", "used", "left"])
        return report, lines

    def _take(self, report: ReportDropped, step: int, *used: int, left=(1, 1, 1)):
        values = [step, np.isin(range(3), used), np.array(left)]
        report.after_run(None, types.SimpleNamespace(results=values))

    def test_lines_and_log(self):
        report, lines = self._report("worker", skipped=7)
        session = mock.create_autospec(tf.compat.v1.Session, instance=True)
        session.run.side_effect = lambda fetches: fetches
        for step, used in ((5, [0, 1]), (6, [0, 1]), (7, [0, 1, 2]), (8, [0, 1, 2])):
            self._take(report, step, *used)
        self._take(report, 9, 0)
        self._take(report, 10, 0, 2)
        report.end(session)
        slowest = "the slowest is worker"
        self.assertEqual(
            lines,
            [
                f"Dropped up to step 6: worker 2 2 times; {slowest} 2",
                "Dropped up to step 10: worker 1 2 times and worker 2 1 time; "
                f"{slowest} 1",
                f"Dropped in 6 steps: worker 1 2 times and worker 2 3 times; {slowest} "
                "2; 7 examples were skipped so far",
            ],
        )
        log = MembershipLog.read(os.path.join(self.folder, FILE))
        self.assertEqual(
            log.changes, ((4, (0, 1)), (6, (0, 1, 2)), (8, (0,)), (9, (0, 2)))
        )

    def test_a_chief_is_no_worker(self):
        report, lines = self._report("chief", skipped=None)
        self._take(report, 1, 0, 2)
        report.end(None)
        self.assertEqual(
            lines, ["Dropped in 1 step: worker 0 1 time; the slowest is worker 0"]
        )

    def test_none(self):
        report, lines = self._report("worker", skipped=0)
        self._take(report, 2, 0, 1, 2)
        self._take(report, 3, 0, 1, left=(4, 2, 0))  # it has no examples
        report.end(None)
        self.assertEqual(lines, ["Dropped in 2 steps: no gradients"])
