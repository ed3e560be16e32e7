"""`towers.callbacks` has the documented callbacks."""

from absl.testing import absltest

from tests.processes.programs import ROOT
from towers import callbacks


class CallbacksTest(absltest.TestCase):
    def test_each_has_a_row_in_the_docs(self):
        page = (ROOT / "docs/callbacks.md").read_text()
        self.assertEqual(callbacks.__all__, sorted(callbacks.__all__))
        for name in callbacks.__all__:
            if name not in ("Callback", "TrainingRun"):
                self.assertIn(f"| `{name}(", page)
