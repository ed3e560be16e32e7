"""A CSV table grows row by row, and continues with a resumed run."""

import contextlib
import io
import os

from absl.testing import absltest

from towers.callbacks import csv_table
from towers.callbacks.csv_table import CsvTable
from towers.errors.side_outputs import SideOutputs


class CsvTableTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir(), "new", "table.csv")

    def _table(self):
        return CsvTable(self.path, ["loss"], SideOutputs())

    def _text(self):
        with open(self.path) as file:
            return file.read()

    def test_rows_and_new_columns(self):
        table = self._table()
        self.assertEqual(table.open(0), [])
        self.assertEqual(self._text(), "step,loss\n")
        table.add(3, {"loss": 0.5})
        table.add(4, {'odd, "name"': 2, "loss": float("nan"), "matrix": [[1.0]]})
        table.add(5, {"loss": 1 / 3})
        wanted = 'step,loss,"odd, ""name"""\n3,0.5,\n4,nan,2\n5,0.333333333,\n'
        self.assertEqual(self._text(), wanted)

    def test_goes_on_from_a_step(self):
        table = self._table()
        table.open(0)
        for step in (2, 4, 6):
            table.add(step, {"loss": step, "more": 1.0})
        table = self._table()
        rows = table.open(4)
        self.assertEqual([row["step"] for row in rows], ["2", "4"])
        table.add(5, {"loss": 7.0})
        self.assertEqual(self._text(), "step,loss,more\n2,2,1\n4,4,1\n5,7,\n")

    def test_what_was_cut_off_is_left_out(self):
        os.makedirs(os.path.dirname(self.path))
        with open(self.path, "w") as file:
            file.write("step,loss\n2,1.0\n4")
        self.assertLen(self._table().open(3), 1)
        self.assertEqual(self._text(), "step,loss\n2,1.0\n")

    def test_what_cannot_be_written_ends_nothing(self):
        self.path = "/dev/null/table.csv"
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            table = self._table()
            table.open(0)
            table.add(1, {"loss": 1.0})
        self.assertRegex(printed.getvalue(), "rows cannot be written to /dev/null/tab")

    def test_where_a_file_is(self):
        run = csv_table.TrainingRun(None, "folder")
        path = csv_table.file_path(self, None, "log.csv", run)
        self.assertEqual(path, os.path.join("folder", "log.csv"))
        self.assertEqual(csv_table.file_path(self, "x.csv", "log.csv", run), "x.csv")
        with self.assertRaisesRegex(ValueError, "^CsvTableTest needs train_dir, or a"):
            csv_table.file_path(self, None, "log.csv", run._replace(train_dir=None))
