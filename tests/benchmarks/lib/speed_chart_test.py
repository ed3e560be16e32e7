"""The committed chart is the one that its command draws from docs/performance.md."""

from absl.testing import absltest

from benchmarks.lib import speed_chart
from tests.processes.programs import ROOT

_PAGE = """
| | a peer | PyTorch 2.13 |
|---|---|---|
| lenet:4x8 | 1.39 [1.33, 1.44] | |
| mlp:1x1/bfloat16 | | 2.00 [1.00, 3.00] |

| | another table |
|---|---|
| lenet:4x8 | 7.00 [7.00, 7.00] |
"""


class SpeedChartTest(absltest.TestCase):
    def test_reads_the_first_table(self):
        rows = speed_chart.ratios(_PAGE)
        wanted = {
            "lenet:4x8": {"a peer": (1.39, 1.33, 1.44)},
            "mlp:1x1/bfloat16": {"PyTorch 2.13": (2.0, 1.0, 3.0)},
        }
        self.assertEqual(rows, wanted)

    def test_the_chart_is_up_to_date(self):
        page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
        chart = (ROOT / "docs/images/speed.svg").read_text(encoding="utf-8")
        self.assertEqual(speed_chart.draw(speed_chart.ratios(page)), chart)

    def test_the_numbers_of_the_readme_are_those_of_the_page(self):
        page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        measured = speed_chart.ratios(page)
        shown = speed_chart.ratios(readme[readme.index("## How fast") :])
        self.assertNotEmpty(shown)
        for case, by_peer in shown.items():
            self.assertContainsSubset(by_peer.items(), measured[case].items())
