"""Losses and metrics of next tokens against numpy."""

import math

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from models import language, logits

v1 = tf.compat.v1


class LanguageTest(absltest.TestCase):
    def setUp(self):
        super().setUp()
        rng = np.random.default_rng(0)
        self.logits = rng.normal(size=(3, 4, 5)).astype(np.float32)
        self.labels = rng.integers(0, 5, (3, 4)).astype(np.int32)
        logs = self.logits - np.log(np.exp(self.logits).sum(-1, keepdims=True))
        self.wanted = -np.take_along_axis(logs, self.labels[..., None], -1)[..., 0]

    def _run(self, function, dtype=tf.float32):
        with tf.Graph().as_default(), v1.Session() as session:
            logits = tf.cast(self.logits, dtype)
            return session.run(function(logits, tf.constant(self.labels)))

    def test_losses(self):
        for function, wanted in (
            (logits.cross_entropy, self.wanted),
            (language.mean_cross_entropy, self.wanted.mean(1)),
            (language.summed_cross_entropy, self.wanted.sum(1)),
        ):
            np.testing.assert_allclose(self._run(function), wanted, rtol=1e-5)

    def test_the_loss_of_bfloat16_logits_is_float32(self):
        loss = self._run(language.mean_cross_entropy, tf.bfloat16)
        self.assertEqual(loss.dtype, np.float32)
        np.testing.assert_allclose(loss, self.wanted.mean(1), rtol=0.02)

    def test_metrics(self):
        bits = self.wanted.mean(1) / math.log(2)
        metrics = self._run(language.bits_per_character)
        np.testing.assert_allclose(metrics["bits_per_character"], bits, rtol=1e-5)
        metrics = self._run(language.bits_per_token)
        np.testing.assert_allclose(metrics["bits_per_token"], bits, rtol=1e-5)

    def test_perplexity(self):
        self.assertEqual(
            language.perplexity({"loss": 9.0, "bits_per_token": 3.0}),
            {"perplexity": 8.0},
        )
        worst = language.perplexity({"bits_per_token": 1e6})
        self.assertEqual(worst, {"perplexity": math.inf})
