"""A table of plain text."""

from absl.testing import absltest

from benchmarks.lib import table


class TableTest(absltest.TestCase):
    def test_columns_stand_under_their_titles(self):
        self.assertEqual(
            table.table_lines(["case", "s"], [["a", "10.5"], ["longer", "2"]]),
            [
                "case       s",
                "------------",
                "a       10.5",
                "longer     2",
            ],
        )

    def test_no_rows(self):
        self.assertEqual(table.table_lines(["a", "b"], []), ["a  b", "----"])
