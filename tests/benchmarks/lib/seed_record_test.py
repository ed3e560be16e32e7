"""Seeds are shared out and gone on with; a file of other settings is refused."""

import contextlib
import io
import os

from absl.testing import absltest

from benchmarks.lib import seed_record
from benchmarks.lib.options import parser_for


class SeedRecordTest(absltest.TestCase):
    def test_what_is_left(self):
        path = os.path.join(self.create_tempdir(), "record.json")
        record = seed_record.SeedRecord(path, {"events": 2})
        record.seeds.append({"seed": 0})
        record.save()
        again = seed_record.SeedRecord(path, {"events": 2})
        self.assertEqual([*again.left(3, None)], [1, 2])
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEmpty([*again.left(3, 1e-9)])
        self.assertIn("the same command goes on", printed.getvalue())
        with self.assertRaisesRegex(ValueError, "is of other settings"):
            seed_record.SeedRecord(path, {"events": 3})

    def test_shares_are_equal(self):
        parser = parser_for("elastic", "")
        self.assertEqual(seed_record.share(parser, "events", 12, 4), 3)
        for seeds, words in ((13, "--events must be as many"), (5, "write 10 or 15")):
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                with self.assertRaises(SystemExit):
                    seed_record.share(parser, "events", 12, seeds)
            self.assertIn(words, printed.getvalue())
