"""Recipes and schedules as plain data."""

from absl.testing import absltest, parameterized

from models import recipe


class RecipeTest(absltest.TestCase):
    def test_decay_spares_the_normalisation(self):
        self.assertTrue(recipe.decay_all("stem/conv/kernel"))
        self.assertTrue(recipe.decay_all("logits/dense/bias"))
        self.assertFalse(recipe.decay_all("stem/batch_norm/gamma"))
        self.assertFalse(recipe.decay_all("stem/batch_norm_1/beta"))

    def test_a_rule_of_decay_that_fails(self):
        fails = recipe.Recipe(1, recipe.Schedule((0.1,)), decayed=lambda name: 1 / 0)
        with self.assertRaisesRegex(ValueError, r"^decayed\('w'\) .*ZeroDivisionError"):
            fails.decays("w")

    def test_factors_of_the_learning_rate(self):
        schedule = recipe.Schedule((0.1,))
        recipe.Recipe(1, schedule, learning_rate_factors={"conv": 1, ".": 0.5})
        for factors, words in (
            ({"a": -1.0}, "learning_rate_factors is .* at least 0"),
            ({"a": "x"}, "learning_rate_factors is .* must be {a text: a finite"),
            (["a"], "learning_rate_factors is .* must be {a text: a finite"),
            ({"(": 1.0}, r"has '\(', which is no regular expression: missing"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                recipe.Recipe(1, schedule, learning_rate_factors=factors)


class ScheduleTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"rates": (0.1, 0.2)}, "2 rates and 0 epochs"),
        ({"rates": (0.1, 0.2, 0.3), "epochs": (2, 1)}, "must be ascending"),
        ({"rates": (-0.1,)}, "Schedule.rates"),
        ({"rates": (0.1,), "minimum": -1.0}, "Schedule.minimum"),
        ({"rates": (0.1, 0.2), "epochs": (1,), "name": "cosine"}, "cosine has one"),
    )
    def test_what_is_no_schedule(self, settings, words):
        with self.assertRaisesRegex(ValueError, words):
            recipe.Schedule(**settings)
