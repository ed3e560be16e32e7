"""Notes on the end of a run, for evaluators that wait for its checkpoints."""

import math
import os
from unittest import mock

from absl.testing import absltest

from towers.checkpoints import run_status


class RunStatusTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir(), "train")

    def test_what_is_left_while_somebody_waits(self):
        lookout = run_status.Lookout(self.directory)
        self.assertEqual(lookout(), "")
        run_status.leave(self.directory, "the disk is full\nand more")
        self.assertEqual(lookout(), "the training failed: the disk is full")
        run_status.clear(self.directory)
        self.assertEqual(lookout(), "")
        self.assertEmpty(os.listdir(self.directory))

    def test_a_run_that_begins_again_while_it_is_looked_for(self):
        lookout = run_status.Lookout(self.directory)
        run_status.leave(self.directory, "the disk is full")

        def which():
            run_status.clear(self.directory)
            return 1, 2

        with mock.patch.object(lookout, "_which", which):
            self.assertEqual(lookout(), "")

    def test_an_earlier_failure_is_none(self):
        run_status.leave(self.directory, "long ago")
        lookout = run_status.Lookout(self.directory)
        self.assertEqual(lookout(), "")
        run_status.clear(self.directory)
        run_status.clear(self.directory)
        run_status.leave(self.directory, "now")
        self.assertEqual(lookout(), "the training failed: now")

    def test_an_end_before_its_time(self):
        self.assertEqual(run_status.end(self.directory), math.inf)
        run_status.leave_end(self.directory, 20)
        self.assertEqual(run_status.end(self.directory), 20)
        self.assertEqual(run_status.Lookout(self.directory)(), "")
        run_status.clear(self.directory)
        self.assertEqual(run_status.end(self.directory), math.inf)

    def test_a_full_disk(self):
        lookout = run_status.Lookout(self.directory)
        full = mock.mock_open()
        full.return_value.write.side_effect = OSError("No space left on device")
        os.makedirs(self.directory)
        with open(os.path.join(self.directory, "failure.new"), "w"):
            pass
        with mock.patch.object(run_status, "open", full, create=True):
            run_status.leave(self.directory, "the disk is full")
        self.assertEqual(os.listdir(self.directory), ["failure"])
        self.assertEqual(lookout(), "the training failed: its output says why")

    def test_nowhere_to_leave_it(self):
        run_status.leave(None, "a reason")
        run_status.leave_end(None, 3)
        run_status.clear(None)
        file = self.create_tempfile().full_path
        run_status.leave(os.path.join(file, "train"), "a reason")
