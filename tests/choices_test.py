"""The tables that flags choose from."""

from absl.testing import absltest

from flags import config
from towers import choices


class ChoicesTest(absltest.TestCase):
    def test_each_default_is_a_row(self):
        flags, settings = config.all_flags(), config.flat(config.make())
        for name, table in choices.CHOICES.items():
            self.assertIn(name, flags)
            default = settings[name]
            self.assertTrue(default is None or default in table, (name, default))
