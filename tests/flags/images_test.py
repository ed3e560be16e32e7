"""Flags of images: their names are those that the preprocessing has."""

from absl.testing import absltest

from flags import config
from towers.data.pictures import RESIZE_METHODS, ROUND_ROBIN, PictureOptions
from towers.data.preprocessing import PREPROCESSING


class ImagesTest(absltest.TestCase):
    def test_options_are_flags_with_the_same_values(self):
        flags = config.all_flags()
        self.assertContainsSubset(PictureOptions._fields, flags)
        self.assertEqual(flags["resize_method"].choices, (*RESIZE_METHODS, ROUND_ROBIN))

    def test_the_text_names_each_preprocessing_of_images(self):
        text = config.all_flags()["input_preprocessor"].text
        for name, row in PREPROCESSING.items():
            if row.kind == "images":
                self.assertRegex(text, rf"\b{name}\b")
