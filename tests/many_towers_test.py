"""One small measurement of many towers."""

import contextlib
import io
import json

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import many_towers, startup


class ManyTowersTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters("--graph_optimizers", "--no-graph_optimizers")
    def test_measures(self, optimizers):
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            many_towers.main(
                [
                    "--model=mlp",
                    "--image_size=8",
                    "--num_towers=2",
                    "--num_batches=2",
                    optimizers,
                ]
            )
        first, numbers = output.getvalue().splitlines()
        self.assertEqual(first, startup.FIRST_STEP)
        numbers = json.loads(numbers)
        self.assertGreater(startup.to_first_step(numbers), 0.0)
        self.assertGreater(numbers["images_per_second"], 0.0)


if __name__ == "__main__":
    tf.test.main()
