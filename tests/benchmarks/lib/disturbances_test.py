"""What happens to the tasks is a function of the seed."""

from absl.testing import absltest

from benchmarks.lib import disturbances


class DisturbancesTest(absltest.TestCase):
    def test_disturbances_are_a_function_of_their_seed(self):
        drawn = disturbances.draw(3, 200, 2.0)
        self.assertEqual(drawn, disturbances.draw(3, 200, 2.0))
        self.assertNotEqual(drawn, disturbances.draw(4, 200, 2.0))
        self.assertLen({each.name for each in drawn}, 7)  # each task
        self.assertEqual({each.kind for each in drawn}, {*disturbances.KINDS})
        self.assertBetween(max(each.after for each in drawn), 1.0, 2.0)
        self.assertBetween(sum(each.hasty for each in drawn), 25, 75)
        self.assertFalse(drawn[-1].hasty)  # its task is waited for
        unknown = {each.kind for each in drawn if each.unknown}
        self.assertEqual(unknown, {"worker killed", "worker leaves"})

    def test_some_kinds_alone(self):
        drawn = disturbances.draw(0, 20, 1.0, ["ps frozen"])
        self.assertEqual({each.name for each in drawn}, {("ps", 0), ("ps", 1)})
        self.assertRegex(str(drawn[0]), r"^ps [01] frozen for \d+\.\d s$")
