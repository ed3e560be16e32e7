"""The time to build a few towers is measured."""

import contextlib
import io
import json

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import startup
from benchmarks.lib import many_towers


class ManyTowersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ["--model=mlp", "--graph_optimizers"],
        ["--model=mlp", "--no-graph_optimizers"],
        ["--model=lenet", "--plain"],
    )
    def test_measures(self, *flags):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            many_towers.main(
                [*flags, "--image_size=8", "--num_towers=2", "--num_batches=2"]
            )
        numbers = json.loads(output.getvalue())
        self.assertGreater(startup.to_first_step(numbers), 0.0)
        self.assertGreater(numbers["images_per_second"], 0.0)
