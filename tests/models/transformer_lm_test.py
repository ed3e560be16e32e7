"""Transformers: published sizes; the same for any number of towers; they learn."""

import dataclasses
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import sequences, transformer_lm
from tests import arrays, digit_runs, trainer
from towers.data import inputs, text
from towers.data.source import Request

v1 = tf.compat.v1


def _tiny() -> models.Model:
    """Two layers of 8 units, with dropout."""
    size = transformer_lm.TransformerSize(
        layers=2, units=8, heads=2, length=6, dropout=0.25
    )
    model = models.get("transformer_lm")
    return dataclasses.replace(
        model,
        blocks=transformer_lm.chain(size),
        inputs=dataclasses.replace(model.inputs, length=size.length),
    )


class TransformerTest(parameterized.TestCase, tf.test.TestCase):
    def _source(self, length: int) -> inputs.DatasetSource:
        path = self.create_tempfile(content="to be or not to be, " * 30).full_path
        request = Request(shape=(length,), kind="tokens", preprocessing="bytes", seed=5)
        records = text.find(path, request, splits=("train",))
        return inputs.DatasetSource(records, request)

    @parameterized.parameters(
        # github.com/openai/gpt-2 and, to the last parameter, its checkpoints.
        ("124m", 124_439_808),
        ("355m", 354_823_168),
        ("774m", 774_030_080),
        ("1.5b", 1_557_611_200),
    )
    def test_published_sizes(self, name, wanted):
        row = transformer_lm.GPT2[name]
        # Kernels, biases and two normalisations of a layer; tables; one normalisation.
        layer = 12 * row.units**2 + 13 * row.units
        count = row.layers * layer + (50257 + 1024 + 2) * row.units
        self.assertEqual(count, wanted)
        # models_test checks each model's count against its variables.
        self.assertEqual(models.get(f"gpt2_{name}").num_parameters, wanted)

    def test_initial_values(self):
        model = models.get("transformer_lm")
        with tf.Graph().as_default(), v1.Session() as session:
            v1.set_random_seed(1)
            nn = sequences.SequenceLayers(training=True, num_classes=256)
            with v1.variable_scope("", use_resource=True):
                outputs = model.run(tf.zeros([1, 4], tf.int32), nn)
            session.run(v1.global_variables_initializer())
            values = {v.op.name: session.run(v) for v in v1.trainable_variables()}
            loss = session.run(model.loss(outputs, tf.ones([1, 4], tf.int32)))
        self.assertAllClose(loss, [np.log(256)], atol=0.3)
        blocks = len(model.blocks) - 2
        for name, deviation in (
            ("embedding/tokens", 0.02),
            ("layer_0/attention/dense/kernel", 0.02),
            ("layer_0/attention/dense_1/kernel", 0.02 / np.sqrt(2 * blocks)),
            ("layer_0/dense/kernel", 0.02),
            ("layer_0/dense_1/kernel", 0.02 / np.sqrt(2 * blocks)),
        ):
            self.assertAllClose(values[name].std(), deviation, rtol=0.05, msg=name)
        undecayed = {n for n in values if not transformer_lm.decayed(n)}
        self.assertEqual(undecayed, {n for n in values if values[n].ndim == 1})

    def test_a_token_does_not_change_what_is_said_before_it(self):
        with tf.Graph().as_default(), v1.Session() as session:
            nn = sequences.SequenceLayers(training=False, num_classes=9)
            model, x = _tiny(), v1.placeholder(tf.int32, [1, 6])
            with v1.variable_scope("", use_resource=True):
                outputs = model.run(x, nn)
            session.run(v1.global_variables_initializer())
            before = session.run(outputs, {x: [[1, 2, 3, 4, 5, 6]]})
            other = session.run(outputs, {x: [[1, 2, 3, 8, 5, 6]]})
        arrays.assert_close(before[0, :3], other[0, :3], rtol=1e-6)
        arrays.assert_apart(before[0, 3:], other[0, 3:], rtol=1e-6)

    def test_any_number_of_towers(self):
        def train(towers, **options):
            training = trainer.Trainer(
                _tiny(),
                self._source(6),
                towers=towers,
                batch_size=12 // towers,
                **options,
            )
            return training.start().steps(8)

        one_tower = train(1)
        self.assertIn("embedding/tokens/Momentum", one_tower)
        self.assertLess(trainer.difference(one_tower, train(4)), 1e-5)
        replicated = train(2, variable_update="replicated")
        self.assertLess(trainer.difference(one_tower, replicated), 1e-5)

    def test_bfloat16_learns(self):
        training = trainer.Trainer(
            _tiny(), self._source(6), batch_size=16, dtype=tf.bfloat16
        ).start()
        before = training.session.run(training.train.loss)
        training.steps(40)
        self.assertLess(training.session.run(training.train.loss), before - 0.5)


class EmbeddedRunTest(digit_runs.Runs):
    def test_bits_per_character_go_down(self):
        lines = self.run_flags(
            get_model=models.get,
            model="transformer_lm",
            data_name=None,
            num_batches=40,
            num_warmup_batches=0,
            num_eval_batches=4,
            eval_at_end=True,
            eval_during_training_at_specified_steps=(1,),
        )
        pattern = r"bits_per_character = (.*) \[\d+ examples\]"
        matched = [re.fullmatch(pattern, line) for line in lines]
        first, last = (float(match.group(1)) for match in matched if match)
        self.assertLess(first, 8.5)
        self.assertLess(last, 5.0)
        self.assertRegex("\n".join(lines), r"total tokens/sec: \d+")
        self.assertRegex("\n".join(lines), "MFLOP per token")
