"""The tasks that were not dismissed are counted; real runs are in `stop_all_test`."""

import json
import subprocess
from unittest import mock

from absl.testing import absltest

from benchmarks.lib import short_runs

_START = subprocess.Popen


class MissedTest(absltest.TestCase):
    def _missed(self, *statuses, runs=2):
        lines = [json.dumps({"ps 0": first, "worker 1": 0}) for first in statuses]

        def start(command, **options):
            self.assertEqual(command[3:5], [str(runs), "1"])
            return _START(["echo", "\n".join(lines)], **options)

        with mock.patch.object(subprocess, "Popen", start):
            return short_runs.missed_in_short_runs(runs, "between_graph")

    def test_names_who_was_not_dismissed(self):
        self.assertEmpty(self._missed(0, 0))
        self.assertEqual(self._missed(0, 1), ["run 1: ps 0 ended with status 1"])

    def test_runs_that_are_missing_are_an_error(self):
        with self.assertRaisesRegex(RuntimeError, "the runs ended with status 0"):
            self._missed(0, 0, runs=3)
