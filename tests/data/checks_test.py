"""Checks of settings against the model: flags of images."""

from absl.testing import parameterized

import models
from flags import config
from towers.data import checks


class ChecksTest(parameterized.TestCase):
    @parameterized.parameters(
        {"augment": False},
        {"data_format": "NCHW"},
        {"input_preprocessor": "cifar"},
        {"resize_method": "area"},
        {"background_class": True},
        {"max_damaged_examples": 2},
    )
    def test_flags_of_images_with_a_model_of_text(self, **setting):
        (name,) = setting
        with self.assertRaisesRegex(ValueError, f"^{name}=.* reads tokens, not images"):
            checks.check_images(config.make(**setting), models.get("transformer_lm"))
        checks.check_images(config.make(**setting), models.get("lenet"))

    def test_augmentation_of_a_chosen_preprocessing(self):
        settings = config.make(augment=True, input_preprocessor="scale")
        with self.assertRaisesRegex(ValueError, "preprocessing, scale, has no aug"):
            checks.check_augment(settings, models.get("resnet20"))
        settings = config.make(augment=True, input_preprocessor="cifar")
        checks.check_augment(settings, models.get("lenet"))
