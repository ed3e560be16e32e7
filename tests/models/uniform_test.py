"""Uniform numbers that belong to examples."""

import numpy as np
import tensorflow as tf

from models.uniform import example_normal, example_uniform
from tests.preprocessing_cases import run

_OF_SEED_3 = (
    (0.71710145, 0.24235833, 0.56627274, 0.79089642),
    (0.67829680, 0.86085045, 0.34116149, 0.83022797),
)


class ExampleUniformTest(tf.test.TestCase):
    def test_rows_belong_to_examples(self):
        whole = run(lambda: example_uniform((12, 3, 2), seed=5, first=8))
        parts = run(
            lambda: [example_uniform((4, 3, 2), seed=5, first=f) for f in (8, 12, 16)]
        )
        self.assertAllEqual(whole, np.concatenate(parts))

    def test_the_draws_of_a_seed_stay_the_same(self):
        """A run is resumed by another version, too."""
        draws = run(lambda: example_uniform((2, 4), seed=3, first=5))
        self.assertAllClose(draws, _OF_SEED_3, rtol=0, atol=1e-7)

    def test_seed_and_salt_tell_draws_apart(self):
        draws = run(
            lambda: [
                example_uniform((9, 4), seed=seed, first=0, salt=salt)
                for seed, salt in ((1, 0), (2, 0), (1, 1), (-1, 0))
            ]
        )
        for index, draw in enumerate(draws):
            for other in draws[:index]:
                self.assertNotAllClose(draw, other)

    def test_xla_draws_the_same(self):
        with_kernels = tf.function(
            lambda: example_uniform((3, 5), seed=7, first=9), autograph=False
        )
        compiled = tf.function(
            lambda: example_uniform((3, 5), seed=7, first=9),
            autograph=False,
            jit_compile=True,
        )
        self.assertAllEqual(with_kernels(), compiled())

    def test_is_uniform(self):
        draw = run(lambda: example_uniform((20000, 5), seed=3, first=10**12))
        counts, _ = np.histogram(draw, 10, (0, 1))
        self.assertAllClose(counts / draw.size, np.full(10, 0.1), atol=0.005)

    def test_normal_numbers(self):
        draw = run(lambda: example_normal((20000, 5), seed=3, first=10**12))
        self.assertTrue(np.isfinite(draw).all())
        for below, share in ((-2, 0.02275), (-1, 0.15866), (0, 0.5), (1.5, 0.93319)):
            self.assertAllClose(np.mean(draw < below), share, atol=0.005)
        neighbours = np.corrcoef(draw[:, :-1].ravel(), draw[:, 1:].ravel())[0, 1]
        self.assertAllClose(neighbours, 0, atol=0.01)

    def test_normal_numbers_belong_to_examples(self):
        whole = run(lambda: example_normal((12, 3), seed=5, first=8))
        parts = run(
            lambda: [example_normal((4, 3), seed=5, first=f) for f in (8, 12, 16)]
        )
        self.assertAllClose(whole, np.concatenate(parts), 1e-6, 1e-6)
