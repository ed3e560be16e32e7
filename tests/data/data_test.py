"""`towers.data` has the functions for a user's own data."""

from absl.testing import absltest

from towers import data


class DataTest(absltest.TestCase):
    def test_functions_are_there(self):
        self.assertEqual(data.__all__, sorted(data.__all__))
        for name in data.__all__:
            self.assertTrue(getattr(data, name).__doc__)
