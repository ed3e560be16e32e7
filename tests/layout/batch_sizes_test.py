"""The examples of each tower of a step."""

from absl.testing import parameterized

from flags import config
from towers.layout import batch_sizes


class DivideTest(parameterized.TestCase):
    @parameterized.parameters(
        (64, (3, 1), 1, (48, 16)),
        (32, (1, 1, 1), 1, (11, 11, 10)),
        (32, (1, 1, 1), 4, (12, 12, 8)),
        (4, (1000, 1, 1), 1, (2, 1, 1)),
        (40, (1, 1, 1, 1 / 3), 1, (12, 12, 12, 4)),
        (7, (1,), 1, (7,)),
        (8, (3, 1), 1, (6, 2)),
    )
    def test_the_slowest_takes_the_least_time(self, examples, speeds, each, sizes):
        self.assertEqual(batch_sizes.divide(examples, speeds, multiple=each), sizes)

    def test_no_other_division_ends_earlier(self):
        speeds, examples = (5.0, 3.0, 1.7), 17
        sizes = batch_sizes.divide(examples, speeds)

        def seconds(*counts):
            return max(count / speed for count, speed in zip(counts, speeds))

        best = min(
            seconds(a, b, examples - a - b)
            for a in range(1, examples - 1)
            for b in range(1, examples - a)
        )
        self.assertEqual(seconds(*sizes), best)

    @parameterized.parameters((2, 1), (30, 4), (8, 4))
    def test_too_few_examples(self, examples, each):
        with self.assertRaisesRegex(ValueError, f"{examples} examples cannot be"):
            batch_sizes.divide(examples, (1, 1, 1), multiple=each)


class OfTowersTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, (8, 8)),
        ({"batch_size": 3}, (3, 3)),
        ({"tower_batch_sizes": "48,16"}, (48, 16)),
    )
    def test_sizes(self, settings, sizes):
        read = batch_sizes.of_towers(config.make(**settings), 8, 2)
        self.assertEqual(read, sizes)

    @parameterized.parameters(
        (3, "2 numbers for 3 towers"), (1, "2 numbers for 1 tower")
    )
    def test_one_for_each_tower(self, num_towers, words):
        with self.assertRaisesRegex(ValueError, words):
            batch_sizes.of_towers(config.make(tower_batch_sizes="48,16"), 8, num_towers)

    def test_one_tower_has_no_other_to_take_from(self):
        settings = config.make(rebalance=9)
        with self.assertRaisesRegex(ValueError, "rebalance=9: is about several towers"):
            batch_sizes.of_towers(settings, 8, 1)
        self.assertEqual(batch_sizes.of_towers(settings, 8, 1, trains=False), (8,))
