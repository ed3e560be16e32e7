"""A chart is an SVG with every point in its place."""

import re
from xml.etree import ElementTree

from absl.testing import absltest

from towers.callbacks.line_chart import line_chart


class LineChartTest(absltest.TestCase):
    def _points(self, text):
        ElementTree.fromstring(text)  # fails unless it is well-formed
        points = re.search('points="(.*?)"', text)[1].split()
        return [tuple(map(float, point.split(","))) for point in points]

    def test_points_lie_by_their_logarithms(self):
        labels = ("rate <", "loss & more")
        text = line_chart(
            [0.01, 0.1, 10.0], [2.0, 4.0, 3.0], title="A", labels=labels, mark=0.1
        )
        (left, low), (middle, high), (right, half) = self._points(text)
        self.assertAlmostEqual(middle - left, (right - left) / 3, delta=0.2)
        self.assertLess(high, half)  # y grows downward
        self.assertAlmostEqual(half, (low + high) / 2, delta=0.2)
        self.assertIn(f'd="M{middle:.1f} ', text)
        for words in ("rate &lt;", "loss &amp; more", ">1e-2<", ">1e1<", ">2<", ">4<"):
            self.assertIn(words, text)

    def test_a_level_line(self):
        points = self._points(
            line_chart([1.0, 2.0], [3.0, 3.0], title="A", labels=("x", "y"))
        )
        self.assertEqual(points[0][1], points[1][1])

    def test_several_lines_in_one_frame(self):
        both = {"a < b": [1.0, 2.0], "c": [3.0, 1.0]}
        text = line_chart([1.0, 10.0], both, title="A", labels=("x", "y"))
        ElementTree.fromstring(text)
        first, second = re.findall('points="(.*?)" fill="none" (stroke=".*?")', text)
        self.assertEqual(
            first[0].split()[0], second[0].split()[1].replace("620.0", "80.0")
        )
        self.assertNotEqual(first[1], second[1])
        self.assertIn(">a &lt; b</text>", text)
