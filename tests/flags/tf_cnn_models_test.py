"""The models of tf_cnn_benchmarks, against the numbers in its sources."""

from absl.testing import parameterized

import models
from flags.tf_cnn_models import MODELS

# (data set, name) -> batch size, first rate, file and line of scripts/
# tf_cnn_benchmarks/models at commit 8fb7907, where both stand.
SOURCES = {
    ("imagenet", "trivial"): (32, 0.005, "trivial_model.py:26"),
    ("imagenet", "lenet"): (32, 0.005, "lenet_model.py:31"),
    ("imagenet", "alexnet"): (512, 0.005, "alexnet_model.py:33"),
    ("imagenet", "overfeat"): (32, 0.005, "overfeat_model.py:34"),
    ("imagenet", "vgg11"): (64, 0.005, "vgg_model.py:57"),
    ("imagenet", "vgg16"): (64, 0.005, "vgg_model.py:66"),
    ("imagenet", "vgg19"): (64, 0.005, "vgg_model.py:75"),
    ("imagenet", "googlenet"): (32, 0.005, "googlenet_model.py:33"),
    ("imagenet", "inception3"): (32, 0.005, "inception_model.py:46"),
    ("imagenet", "inception4"): (32, 0.005, "inception_model.py:131"),
    ("imagenet", "mobilenet"): (32, 0.005, "tf1_only/mobilenet_v2.py:186"),
    ("imagenet", "nasnet"): (32, 0.005, "tf1_only/nasnet_model.py:539"),
    ("imagenet", "nasnetlarge"): (16, 0.005, "tf1_only/nasnet_model.py:554"),
    ("imagenet", "ncf"): (2048, 0.0005, "experimental/official_ncf_model.py:55"),
    **{
        ("imagenet", f"resnet{name}"): (batch_size, 0.128, "resnet_model.py:272")
        for name, batch_size in (
            *(("50", 64), ("50_v1.5", 64), ("50_v2", 64), ("101", 32)),
            *(("101_v2", 32), ("152", 32), ("152_v2", 32)),
        )
    },
    **{
        # 0.0125 for 32 images, official_resnet_model.py:42.
        ("imagenet", f"official_resnet{depth}{suffix}"): (
            128 if depth == 50 else 32,
            0.0125,
            "official_resnet_model.py:36",
        )
        for depth in (18, 34, 50, 101, 152, 200)
        for suffix in ("", "_v2")
    },
    ("cifar10", "alexnet"): (128, 0.1, "alexnet_model.py:63"),
    ("cifar10", "trivial"): (32, 0.005, "trivial_model.py:40"),
    ("cifar10", "nasnet"): (32, 0.025, "tf1_only/nasnet_model.py:570"),
    **{
        ("cifar10", f"resnet{depth}{suffix}"): (128, 0.1, "resnet_model.py:389")
        for depth in (20, 32, 44, 56, 110)
        for suffix in ("", "_v2")
    },
    **{
        ("cifar10", name): (64, 0.1, "densenet_model.py:32")
        for name in ("densenet40_k12", "densenet100_k12", "densenet100_k24")
    },
}


class ModelsTest(parameterized.TestCase):
    def test_they_are_those_of_the_sources(self):
        rows = {
            (dataset, name): (row.batch_size, row.rates.rates[0])
            for dataset, named in MODELS.items()
            for name, row in named.items()
        }
        self.assertEqual(rows, {key: row[:2] for key, row in SOURCES.items()})

    def test_the_rates_have_one_more_than_the_epochs(self):
        for named in MODELS.values():
            for name, row in named.items():
                with self.subTest(name):
                    self.assertLen(row.rates.rates, len(row.rates.epochs) + 1)

    def test_the_recipes_have_nothing_that_they_lack(self):
        for named in MODELS.values():
            for row in named.values():
                if row.here in models.MODELS:
                    with self.subTest(row.here):
                        model = models.MODELS[row.here]()
                        recipe, settings = model.recipe, dict(row.settings)
                        ema = settings.get("ema_decay", recipe.ema_decay)
                        norm = settings.get("gradient_clip_norm", recipe.clip_norm)
                        self.assertEqual((ema, norm), (0, 0))
                        self.assertEmpty(recipe.learning_rate_factors)

    def test_epochs_of_synthetic_data(self):
        for dataset, images in (("imagenet", 1_281_167), ("cifar10", 50_000)):
            for row in MODELS[dataset].values():
                if row.here in models.MODELS:
                    with self.subTest(row.here):
                        inputs = models.MODELS[row.here]().inputs
                        self.assertEqual(inputs.num_examples, row.examples or images)
