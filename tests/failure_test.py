"""What a failed run leaves is found by who waits for it, and only then."""

import math
import os
from unittest import mock

from absl.testing import absltest

from towers.errors import failure


class FailureTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = os.path.join(self.create_tempdir(), "train")

    def test_what_is_left_while_somebody_waits(self):
        lookout = failure.Lookout(self.directory)
        self.assertEqual(lookout(), "")
        failure.leave(self.directory, "the disk is full\nand more")
        self.assertEqual(lookout(), "the training failed: the disk is full")
        failure.clear(self.directory)
        self.assertEqual(lookout(), "")
        self.assertEmpty(os.listdir(self.directory))

    def test_a_run_that_begins_again_while_it_is_looked_for(self):
        lookout = failure.Lookout(self.directory)
        failure.leave(self.directory, "the disk is full")

        def which():
            failure.clear(self.directory)
            return 1, 2

        with mock.patch.object(lookout, "_which", which):
            self.assertEqual(lookout(), "")

    def test_an_earlier_failure_is_none(self):
        failure.leave(self.directory, "long ago")
        lookout = failure.Lookout(self.directory)
        self.assertEqual(lookout(), "")
        failure.clear(self.directory)
        failure.clear(self.directory)
        failure.leave(self.directory, "now")
        self.assertEqual(lookout(), "the training failed: now")

    def test_an_end_before_its_time(self):
        self.assertEqual(failure.end(self.directory), math.inf)
        failure.leave_end(self.directory, 20)
        self.assertEqual(failure.end(self.directory), 20)
        self.assertEqual(failure.Lookout(self.directory)(), "")
        failure.clear(self.directory)
        self.assertEqual(failure.end(self.directory), math.inf)

    def test_a_full_disk(self):
        lookout = failure.Lookout(self.directory)
        full = mock.mock_open()
        full.return_value.write.side_effect = OSError("No space left on device")
        os.makedirs(self.directory)
        with open(os.path.join(self.directory, "failure.new"), "w"):
            pass
        with mock.patch.object(failure, "open", full, create=True):
            failure.leave(self.directory, "the disk is full")
        self.assertEqual(os.listdir(self.directory), ["failure"])
        self.assertEqual(lookout(), "the training failed: its output says why")

    def test_nowhere_to_leave_it(self):
        failure.leave(None, "a reason")
        failure.leave_end(None, 3)
        failure.clear(None)
        file = self.create_tempfile().full_path
        failure.leave(os.path.join(file, "train"), "a reason")


if __name__ == "__main__":
    absltest.main()
