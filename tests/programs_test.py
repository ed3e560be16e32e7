"""A cluster that does not start says why, and leaves no process."""

from absl.testing import absltest

from tests.processes import programs


class ProgramsTest(absltest.TestCase):
    def test_a_wrong_flag(self):
        cluster = programs.LaunchedCluster("--stall_secs=0", tasks="ps:1")
        self.addCleanup(cluster.kill)
        cluster.line("^error: --local_cluster=ps:1: needs a worker")
        self.assertEqual(cluster.end(), 2)
        self.assertEmpty(cluster.left())
        with self.assertRaisesRegex(AssertionError, "no line with 'images'"):
            cluster.line("images", seconds=0.1)
