"""Pictures have their size and their colors, with matplotlib and without."""

import unittest
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from models import pictures

_MATRIX = np.array([[3.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 2.0, 2.0]])
_HISTOGRAM = np.array([[5.0, 3.0, 1.0, 0.0], [0.0, 1.0, 4.0, 5.0]])


class BareTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        self.enter_context(mock.patch.object(pictures, "Figure", None))

    def test_the_more_of_a_label_the_darker(self):
        picture = pictures.confusion(_MATRIX)
        self.assertEqual((picture.shape, picture.dtype), ((240, 240, 3), np.uint8))
        wanted = [[64, 191, 255], [255, 255, 255], [255, 128, 128]]
        for begin in (0, 79):  # the first and the last pixel of each cell
            np.testing.assert_array_equal(picture[begin::80, begin::80, 1], wanted)

    def test_the_curve_climbs_before_it_goes_right(self):
        picture = pictures.roc(_HISTOGRAM)
        self.assertEqual((picture.shape, picture.dtype), ((480, 480, 3), np.uint8))
        blue = np.argwhere((picture == [0, 0, 204]).all(2))
        rows, columns = blue.T
        self.assertEqual((rows.min(), rows.max()), (0, 479))
        self.assertEqual((columns.min(), columns.max()), (0, 479))
        # At no false positive half of the positives are found; of 9 negatives 1 costs
        # the next 4 of them.
        self.assertAlmostEqual(rows[columns == 0].min(), 477 / 2, delta=2)
        self.assertAlmostEqual(rows[columns == 53].min(), 477 / 10, delta=3)
        # No gap: each row has a pixel of the curve.
        self.assertEqual({*rows}, {*range(480)})


@unittest.skipIf(pictures.Figure is None, "needs matplotlib")
class PlotTest(parameterized.TestCase):
    @parameterized.parameters(
        lambda: pictures.confusion(_MATRIX), lambda: pictures.roc(_HISTOGRAM)
    )
    def test_is_drawn(self, draw):
        picture = draw()
        self.assertEqual((picture.shape, picture.dtype), ((480, 480, 3), np.uint8))
        self.assertGreater(len(np.unique(picture)), 20)


class GridTest(absltest.TestCase):
    def test_row_by_row(self):
        images = np.stack([np.full([32, 40, 1], i / 10) for i in range(1, 6)])
        picture = pictures.grid(images)
        self.assertEqual(picture.shape, (2 * 32 + 2, 3 * 40 + 4, 3))
        wanted = [[26, 51, 76], [102, 128, 255]]  # white where there is none
        np.testing.assert_array_equal(picture[::34, ::42, 0], wanted)
        np.testing.assert_array_equal(picture[31::34, 39::42, 2], wanted)
        self.assertTrue((picture[32:34] == 255).all())

    def test_small_pictures_are_enlarged(self):
        image = np.arange(6.0).reshape(1, 2, 1, 3) / 5
        picture = pictures.grid(image)
        self.assertEqual(picture.shape, (32, 16, 3))
        np.testing.assert_array_equal(picture[15, 3], [0, 51, 102])
        np.testing.assert_array_equal(picture[16, 3], [153, 204, 255])

    def test_what_is_out_of_range_has_the_nearest_color(self):
        values = np.array([-1.0, 2.0, np.nan, np.inf]).reshape(4, 1, 1, 1)
        picture = pictures.grid(values)
        corners = picture[::34, ::34, 0]
        np.testing.assert_array_equal(corners, [[0, 255], [0, 255]])
