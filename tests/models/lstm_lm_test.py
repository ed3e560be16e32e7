"""LSTM language models: published sizes and recipes; the same for all towers."""

import dataclasses
import itertools
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import lstm_lm
from tests import digit_runs, trainer
from towers.data import inputs, text
from towers.data.source import Request
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update

_TINY = lstm_lm.SIZES["medium"]._replace(units=6, length=5, scale=0.4)


def _tiny() -> models.Model:
    """Six units, five words, and the dropout of the medium size."""
    model = models.get("lstm_lm")
    return dataclasses.replace(
        model,
        blocks=lstm_lm.chain(_TINY),
        inputs=dataclasses.replace(model.inputs, length=_TINY.length),
    )


class LstmTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters(
        # The paper, section 4.1: 20, 35 steps; 200, 650, 1500 units; 10,000 words.
        ("small", 200, 4.7),
        ("medium", 650, 19.8),
        ("large", 1500, 66.0),
    )
    def test_sizes(self, name, units, millions):
        size = lstm_lm.SIZES[name]
        cells = 2 * (2 * units * 4 * units + 4 * units)
        wanted = 10_000 * units + cells + (units + 1) * 10_000
        self.assertEqual((size.units, size.num_parameters), (units, wanted))
        self.assertEqual(round(wanted / 1e6, 1), millions)

    def test_learning_rate_of_the_small_size(self):
        recipe = models.get("lstm_lm").recipe
        epochs = [0.0, *recipe.schedule.epochs, recipe.num_epochs]
        rates = [
            rate
            for rate, (begin, end) in zip(
                recipe.schedule.rates, itertools.pairwise(epochs)
            )
            for _ in range(int(end - begin))
        ]
        # ptb_word_lm: 0.5 to the power of max(epoch + 1 - 4, 0), in 13 epochs from 0.
        self.assertEqual(rates, [0.5 ** max(epoch + 1 - 4, 0) for epoch in range(13)])

    def test_any_number_of_towers(self):
        rng = np.random.default_rng(0)
        words = " ".join(rng.choice(["to", "be", "or", "not"], 700))
        path = self.create_tempfile(content=words).full_path
        request = Request(
            shape=(5,), kind="tokens", preprocessing="words", num_classes=9, seed=5
        )
        records = text.find(path, request, splits=("train",))
        self.assertEqual(records.num_classes, 5)

        def train(towers, **options):
            training = trainer.Trainer(
                _tiny(),
                inputs.DatasetSource(records, request),
                towers=towers,
                batch_size=12 // towers,
                update=Update("sgd", Piecewise((0.3,)), clip_norm=5.0),
                **options,
            )
            return training.start().steps(8)

        one_tower = train(1)
        self.assertIn("lstm_1/lstm/recurrent", one_tower)
        self.assertLess(trainer.difference(one_tower, train(3)), 1e-5)
        replicated = train(2, variable_update="replicated")
        self.assertLess(trainer.difference(one_tower, replicated), 1e-5)


class RunTest(digit_runs.Runs):
    def test_perplexity_of_words_goes_down(self):
        lines = self.run_flags(
            get_model=lambda name: _tiny(),
            data_name=None,
            num_batches=40,
            num_warmup_batches=0,
            num_eval_batches=4,
            eval_at_end=True,
            eval_during_training_at_specified_steps=(1,),
        )
        pattern = r"bits_per_token = (.*) perplexity = (.*) \[\d+ examples\]"
        matches = [re.fullmatch(pattern, line) for line in lines]
        numbers = [tuple(map(float, m.groups())) for m in matches if m]
        for bits, perplexity in numbers:
            self.assertAlmostEqual(2**bits / perplexity, 1, places=3)
        (_, first), (_, last) = numbers
        self.assertLess(last, first / 5)
