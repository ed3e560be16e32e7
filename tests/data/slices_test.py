"""Slices of splits, as TFDS writes them."""

from absl.testing import parameterized

from towers.data import slices


class SlicesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("", (0, 40)),
        ("[:25%]", (0, 10)),
        ("[-4:]", (36, 40)),
        ("[10:20]", (10, 20)),
    )
    def test_bounds(self, brackets, bounds):
        self.assertEqual(slices.bounds(brackets, 40), bounds)

    @parameterized.parameters(
        ("[5:2]", "it is empty; there are 40 windows"),
        ("[:41]", "there are only 40 windows"),
        ("[7]", "not a slice as TFDS has it"),
    )
    def test_what_is_wrong(self, brackets, words):
        with self.assertRaisesRegex(slices.SliceError, words):
            slices.bounds(brackets, 40, "windows")
