"""Towers that wait: how long, and that their gradients are exchanged."""

import contextlib
import io
import json

import numpy as np
from absl.testing import parameterized

from benchmarks.lib import waiting_towers
from tests import trainer
from towers.data import inputs
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update


class WaitingTowersTest(parameterized.TestCase):
    @parameterized.parameters("parameter_server", "replicated:tree")
    def test_a_step_takes_the_wait_and_says_what_it_cost(self, mode):
        flags = f"--mode={mode} --num_towers=3 --wait=0.4 --num_batches=3 --floats=7"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(waiting_towers.main(flags.split()), 0)
        report = json.loads(out.getvalue().splitlines()[-1])
        names = "step client process build first operations"
        self.assertEqual(set(report), set(names.split()))
        # Three waits one after another take 1.2 s at least.
        self.assertBetween(report["step"], 0.4, 1.2)
        self.assertLess(report["client"], report["step"])
        self.assertGreater(report["operations"], 50)

    def test_the_gradients_are_the_means(self):
        source = inputs.from_arrays(
            np.full((8, 1, 1, 1), 3.0, np.float32),
            np.zeros(8, np.int64),
            num_classes=2,
            training=False,
        )
        training = trainer.Trainer(
            waiting_towers.model(0.0, 2, 4),
            source,
            towers=2,
            batch_size=2,
            update=Update("sgd", Piecewise((1.0,))),
        ).start()
        values = training.steps(1)
        # The loss is 3 x the sum of two means over 4 floats.
        for name in ("weights/weights_0", "weights/weights_1"):
            np.testing.assert_allclose(values[name], np.full(4, 1 - 3 / 4), rtol=1e-6)
