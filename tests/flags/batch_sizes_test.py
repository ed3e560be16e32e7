"""The value of `--tower_batch_sizes`."""

from absl.testing import parameterized

from flags import batch_sizes, config
from towers import choices


class BatchSizesTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, ()), ("auto", ()), ("48,16", (48, 16)), ("7", (7,)), ("1, 2", (1, 2))
    )
    def test_values(self, text, sizes):
        self.assertEqual(batch_sizes.parse(text), sizes)

    @parameterized.parameters(
        "0,16", "48,", "48;16", "-1,2", "1.5", "many", f"1,{2**31}"
    )
    def test_what_is_no_size(self, text):
        settings = config.make(tower_batch_sizes=text)
        (problem,) = config.check(settings, choices.CHOICES)
        self.assertIn("a whole number of at least 1", str(problem))

    @parameterized.parameters(
        ({"batch_size": 4, "tower_batch_sizes": "4,2"}, "names the examples of each"),
        (
            {"tower_batch_sizes": "4,2", "variable_update": "asynchronous"},
            "do not step together",
        ),
        (
            {"tower_batch_sizes": "auto", "replication": "between_graph"},
            "each client has a graph",
        ),
    )
    def test_what_it_does_not_go_with(self, settings, words):
        problems = config.check(config.make(**settings), choices.CHOICES)
        self.assertIn(words, " ".join(map(str, problems)))

    def test_auto_divides_the_examples_of_equal_batches(self):
        settings = config.make(tower_batch_sizes="auto", batch_size=4)
        self.assertEqual(config.check(settings, choices.CHOICES), [])
