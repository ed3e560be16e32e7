"""How a batch becomes what the first block reads."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import inputs, layers


class ExamplesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(("NHWC", [2, 3, 4, 1]), ("NCHW", [2, 1, 3, 4]))
    def test_images_get_the_compute_dtype_and_the_data_format(self, data_format, shape):
        images = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4, 1)
        with tf.Graph().as_default(), self.session():
            nn = layers.Layers(
                training=True, num_classes=2, data_format=data_format, dtype=tf.bfloat16
            )
            x = inputs.Images((3, 4, 1), 2).prepare(tf.constant(images), nn)
            self.assertEqual((x.dtype, x.shape.as_list()), (tf.bfloat16, shape))
            self.assertAllEqual(tf.cast(tf.reshape(x, [-1]), tf.float32), range(24))

    @parameterized.parameters("NHWC", "NCHW")
    def test_only_what_is_named_an_image_is_transposed(self, data_format):
        """Floats get the compute dtype; others stay as they are."""
        image, other = tf.TensorSpec([3, 4, 1]), tf.TensorSpec([3, 4, 1], tf.uint8)
        features = {
            "deep": ({"image": image},),
            "map": tf.TensorSpec([3, 4, 1], name="image"),
            "photo": tf.TensorSpec([3, 4, 2], tf.uint8),
            "plain": tf.TensorSpec([3, 4, 1], tf.float64),
            "raw": other,
        }
        wanted = {"deep": True, "map": True, "photo": False, "plain": False}
        for images in (None, ("photo",)):
            if images:
                wanted = {name: name == "photo" for name in wanted}
            read = inputs.Inputs(features=features, images=images)
            with tf.Graph().as_default():
                nn = layers.Layers(
                    training=True,
                    num_classes=2,
                    data_format=data_format,
                    dtype=tf.bfloat16,
                )
                batch = tf.nest.map_structure(
                    lambda spec: tf.zeros([2, *spec.shape], spec.dtype), features
                )
                x = read.prepare(batch, nn)
                self.assertIs(x["raw"], batch["raw"])
                x["deep"] = x["deep"][0]["image"]
                for name, is_image in wanted.items():
                    channels = x[name].shape[1 if data_format == "NCHW" else 3]
                    self.assertEqual(channels < 3, is_image or data_format == "NHWC")
                    floats = tf.uint8 if name == "photo" else tf.bfloat16
                    self.assertEqual(x[name].dtype, floats)

    def test_whether_a_data_format_makes_a_difference(self):
        image, flat = tf.TensorSpec([3, 4, 1]), tf.TensorSpec([12])
        for features, images, has in (
            ({"image": image}, None, True),
            ({"image": flat}, None, False),
            ({"image": image}, (), False),
            (image, None, False),
            ((flat, image), ("1",), True),
        ):
            read = inputs.Inputs(features=features, images=images)
            self.assertEqual(read.has_images, has)
        self.assertTrue(inputs.Images((3, 4, 1), 2).has_images)
        self.assertFalse(inputs.Tokens(length=3).has_images)

    @parameterized.parameters(
        (
            dict(features=tf.TensorSpec([None, 3])),
            r"features has the shape \(None, 3\)",
        ),
        (
            dict(features=[tf.TensorSpec([])]),
            "features is .* or a dict or tuple of them",
        ),
        (dict(features={"a": 3}), r"features\['a'\] is 3, and must be a tf.TensorSpec"),
        (dict(features=()), "features has no tensor"),
        (
            dict(features=tf.TensorSpec([1]), labels=(tf.TensorSpec([], tf.string),)),
            r"labels\[0\] is string, and towers read numbers",
        ),
        (dict(features=tf.TensorSpec([1]), images=["a"]), "images names 'a', which is"),
        (dict(features={"a": tf.TensorSpec([9])}, images=["a"]), "images names 'a'"),
        (dict(features=tf.TensorSpec([1]), num_classes=0), "num_classes is 0"),
    )
    def test_inputs_that_are_none(self, fields, sentence):
        with self.assertRaisesRegex(ValueError, f"^Inputs.{sentence}"):
            inputs.Inputs(**fields)

    @parameterized.parameters(
        (
            dict(table=(8, tf.float64)),
            r"\['table'\] is float64 \[8\], the .* float32 \[5\]",
        ),
        ({}, r"\['table'\] is missing, the model reads float32 \[5\]"),
        (
            dict(table=(5, tf.float32), more=(5, tf.float32)),
            r"\['more'\] is float32 \[5\], the model reads nothing of that name",
        ),
    )
    def test_a_batch_that_does_not_fit(self, parts, sentence):
        read = inputs.Inputs(features={"table": tf.TensorSpec([5])})
        with tf.Graph().as_default():
            batch = {
                k: tf.zeros([2, size], dtype) for k, (size, dtype) in parts.items()
            }
            nn = layers.Layers(training=True, num_classes=2)
            with self.assertRaisesRegex(ValueError, f"^features{sentence}"):
                read.prepare(batch, nn)
            with self.assertRaisesRegex(
                ValueError, "^labels is .*, the model reads no"
            ):
                read.check_fit("labels", tf.zeros([2]))

    def test_tokens_stay_as_they_are(self):
        with tf.Graph().as_default():
            nn = layers.Layers(training=True, num_classes=9, dtype=tf.bfloat16)
            tokens = tf.constant([[3, 1, 4]])
            self.assertIs(inputs.Tokens(length=3).prepare(tokens, nn), tokens)
            pairs = inputs.Pairs(num_classes=(4, 5))
            self.assertIs(pairs.prepare(tokens, nn), tokens)

    def test_units(self):
        image, text = inputs.Images((3, 4, 1), 2), inputs.Tokens(length=7)
        self.assertEqual((image.unit, image.units_per_example), ("images", 1))
        self.assertEqual((text.unit, text.units_per_example), ("tokens", 7))
        self.assertEqual(text.shape, (7,))
        pairs = inputs.Pairs(num_classes=(4, 5))
        self.assertEqual((pairs.unit, pairs.units_per_example), ("examples", 1))
        self.assertEqual(pairs.shape, (2,))
