"""Settings made in Python that are wrong are said."""

import dataclasses

import numpy as np
from absl.testing import absltest, parameterized

from towers.errors import validation


@dataclasses.dataclass
class _Settings:
    size: int = 1
    way: str = "up"


class GivenTest(parameterized.TestCase):
    @parameterized.parameters(1, 7, np.int32(3))
    def test_counts(self, size):
        validation.check_counts(_Settings(size), "size")

    @parameterized.parameters(0, -1, 2.5, "2", None)
    def test_what_is_no_count(self, size):
        with self.assertRaisesRegex(
            ValueError,
            f"^_Settings.size is {size!r}, and must be a whole number from 1 on$",
        ):
            validation.check_counts(_Settings(size), "size")

    def test_choices(self):
        validation.check_one_of(_Settings(), "way", {"up": 1, "down": 2})
        with self.assertRaisesRegex(
            ValueError, "^_Settings.way is 'aside', and must be one of up, down$"
        ):
            validation.check_one_of(_Settings(way="aside"), "way", {"up": 1, "down": 2})


if __name__ == "__main__":
    absltest.main()
