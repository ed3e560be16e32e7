"""How a batch becomes what the first block reads."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models import inputs, layers


class ExamplesTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        ("NHWC", [2, 3, 4, 1]),
        ("NCHW", [2, 1, 3, 4]),
    )
    def test_images_get_the_compute_dtype_and_the_data_format(self, data_format, shape):
        images = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4, 1)
        with tf.Graph().as_default(), self.session():
            nn = layers.Layers(
                training=True,
                num_classes=2,
                data_format=data_format,
                dtype=tf.bfloat16,
            )
            x = inputs.Images((3, 4, 1), 2).prepare(tf.constant(images), nn)
            self.assertEqual((x.dtype, x.shape.as_list()), (tf.bfloat16, shape))
            self.assertAllEqual(tf.cast(tf.reshape(x, [-1]), tf.float32), range(24))

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
