"""The benchmark of data sources: all are read; a loader that is missing is named."""

import importlib.util
from unittest import mock

from absl.testing import parameterized

from benchmarks import data_sources


class DataSourcesTest(parameterized.TestCase):
    @parameterized.parameters("arrays", "digits", "python", "files", "files_tf_data")
    def test_reads(self, name):
        self.assertGreater(data_sources.alone(name, 0.01), 0)

    def test_report(self):
        with mock.patch.object(importlib.util, "find_spec", return_value=None):
            lines = data_sources.report({"arrays": [1.0, 3.0], "digits": [2.0, 2.0]})
        words = "arrays / digits 2.00 [1.00, 3.00] 2.00 [2.00, 2.00] 1.00 [0.500, 1.50]"
        self.assertEqual(lines[2].split(), [*words.split(), "0.95"])
        self.assertIn("grain is not installed", lines[3])
        self.assertIn("torch is not installed", lines[4])
