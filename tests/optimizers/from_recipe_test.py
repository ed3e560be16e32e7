"""The update that a recipe and flags make; planning_test sweeps the schedules."""

import dataclasses

import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from towers.errors import collected
from towers.optimizers import from_recipe


def _update(model="lenet", global_batch=32, **flags):
    model = models.get(model) if isinstance(model, str) else model
    return from_recipe.update_from_recipe(
        config.make(**flags).optimizer, model, global_batch, epochs=10.0
    )


def _rate(update, epoch):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return float(session.run(update.learning_rate(tf.constant(epoch))))


class FromRecipeTest(parameterized.TestCase):
    def test_the_recipe_where_no_flag_says_otherwise(self):
        recipe = models.get("lenet").recipe
        update = _update()
        self.assertEqual(update.optimizer, recipe.optimizer)
        self.assertEqual(update.weight_decay, recipe.weight_decay)
        self.assertEqual(_update(weight_decay=0.25).weight_decay, 0.25)
        self.assertEqual(_update(optimizer="adam").optimizer, "adam")

    def test_factors_of_the_recipe_and_of_the_flag(self):
        lenet = models.get("lenet")
        recipe = dataclasses.replace(lenet.recipe, learning_rate_factors={"conv": 0.5})
        model = dataclasses.replace(lenet, recipe=recipe)
        self.assertEqual(_update(model).learning_rate_factors, {"conv": 0.5})
        self.assertEqual(
            _update(model, learning_rate_factors="a=2").learning_rate_factors,
            {"a": 2.0},
        )
        self.assertEqual(_update().learning_rate_factors, {})

    def test_a_rate_that_grows_with_the_batch(self):
        """ResNet-50: 0.128 per 256 images (tf_cnn_benchmarks), after its warm-up."""
        for batch in (256, 1024):
            update = _update("resnet50", batch)
            self.assertAlmostEqual(_rate(update, 10.0), 0.128 * batch / 256, places=5)

    def test_a_flag_that_the_optimizer_does_not_read(self):
        with self.assertRaisesRegex(
            collected.PlanError, "adam_beta1=0.5: optimizer=sgd does not read it"
        ):
            _update(optimizer="sgd", adam_beta1=0.5)

    def test_a_recipe_with_an_optimizer_that_there_is_not(self):
        lenet = models.get("lenet")
        recipe = dataclasses.replace(lenet.recipe, optimizer="sgdd")
        model = dataclasses.replace(lenet, recipe=recipe)
        with self.assertRaisesRegex(ValueError, "Recipe.optimizer is 'sgdd', .* sgd"):
            _update(model)

    def test_a_schedule_by_flags_takes_the_recipes_rate_and_warmup(self):
        """lenet: 0.05 after a warm-up of 10 epochs, shortened here to 2."""
        update = _update(
            learning_rate_schedule="cosine",
            num_learning_rate_warmup_epochs=2.0,
            minimum_learning_rate=0.01,
        )
        for epoch, rate in ((1.0, 0.025), (2.0, 0.05), (6.0, 0.03), (10.0, 0.01)):
            self.assertAlmostEqual(_rate(update, epoch), rate, places=7)
        update = _update("resnet50", 512, learning_rate_schedule="polynomial")
        self.assertAlmostEqual(_rate(update, 5.0), 0.256, places=6)  # warmed up

    def test_a_schedule_of_the_recipe(self):
        lenet = models.get("lenet")
        schedule = models.Schedule((0.4,), name="polynomial", power=2.0, minimum=0.1)
        recipe = dataclasses.replace(lenet.recipe, schedule=schedule)
        update = _update(dataclasses.replace(lenet, recipe=recipe))
        self.assertAlmostEqual(_rate(update, 5.0), 0.1 + 0.3 / 4, places=6)

    @parameterized.parameters(
        ("exponential", {}, "exponential: needs learning_rate_decay_factor"),
        ("exponential", {}, "exponential: needs num_epochs_per_decay"),
        ("cosine", {"num_epochs_per_decay": 2.0}, "=2.0: .*=cosine does not read it"),
        ("cosine", {"learning_rate_power": 2.0}, "=2.0: .*=cosine does not read it"),
        ("cosine", {"minimum_learning_rate": 1.0}, "=1.0: is above .* start, 0.05"),
        (
            "inverse_sqrt",
            {"num_learning_rate_warmup_epochs": 0.0},
            "needs num_learning_rate_warmup_epochs",
        ),
    )
    def test_flags_that_do_not_fit_the_schedule(self, name, flags, sentence):
        with self.assertRaisesRegex(collected.PlanError, sentence):
            _update(learning_rate_schedule=name, **flags)
