"""The update that a recipe and flags make; planning_test sweeps the schedules."""

import dataclasses

import tensorflow as tf
from absl.testing import absltest

import models
from flags import config
from towers.errors import collected
from towers.optimizers import from_recipe


def _update(model="lenet", global_batch=32, **flags):
    return from_recipe.update_from_recipe(
        config.make(**flags).optimizer, models.get(model), global_batch
    )


def _rate(update, epoch):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        return float(session.run(update.learning_rate(tf.constant(epoch))))


class LearningTest(absltest.TestCase):
    def test_the_recipe_where_no_flag_says_otherwise(self):
        recipe = models.get("lenet").recipe
        update = _update()
        self.assertEqual(update.optimizer, recipe.optimizer)
        self.assertEqual(update.weight_decay, recipe.weight_decay)
        self.assertEqual(_update(weight_decay=0.25).weight_decay, 0.25)
        self.assertEqual(_update(optimizer="adam").optimizer, "adam")

    def test_a_rate_that_grows_with_the_batch(self):
        """ResNet-50: 0.128 per 256 images (tf_cnn_benchmarks), after its warm-up."""
        for batch in (256, 1024):
            update = _update("resnet50", batch)
            self.assertAlmostEqual(_rate(update, 10.0), 0.128 * batch / 256, places=5)

    def test_a_flag_that_the_optimizer_does_not_read(self):
        with self.assertRaisesRegex(
            collected.PlanError, "--adam_beta1=0.5: --optimizer=sgd does not read it"
        ):
            _update(optimizer="sgd", adam_beta1=0.5)

    def test_a_recipe_with_an_optimizer_that_there_is_not(self):
        lenet = models.get("lenet")
        recipe = dataclasses.replace(lenet.recipe, optimizer="sgdd")
        model = dataclasses.replace(lenet, recipe=recipe)
        with self.assertRaisesRegex(ValueError, "Recipe.optimizer is 'sgdd', .* sgd"):
            from_recipe.update_from_recipe(config.make().optimizer, model, 32)


if __name__ == "__main__":
    absltest.main()
