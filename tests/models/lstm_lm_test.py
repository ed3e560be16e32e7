"""LSTM language models: published sizes and recipes; the same for all towers."""

import dataclasses
import itertools
import os
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import lstm_lm
from tests import batch_reader, digit_runs, trainer
from towers.compute.tower import TowerSpec
from towers.data import inputs, text
from towers.data.source import Request
from towers.evaluation import eval_graph
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update

v1 = tf.compat.v1

_TINY = lstm_lm.SIZES["medium"]._replace(units=6, length=5, scale=0.4)


def _tiny(size: lstm_lm.LstmSize = _TINY) -> models.Model:
    """Six units, five words, and the dropout of the medium size."""
    model = models.get("lstm_lm")
    return dataclasses.replace(
        model,
        blocks=lstm_lm.chain(size),
        inputs=dataclasses.replace(model.inputs, length=size.length),
    )


def _ptb_producer(raw, batch_size, num_steps):
    """What `ptb_producer` of TensorFlow's tutorial makes of a text: (x, y) by step."""
    batch_len = len(raw) // batch_size
    data = raw[: batch_size * batch_len].reshape(batch_size, batch_len)
    for i in range((batch_len - 1) // num_steps):
        begin = i * num_steps
        x = data[:, begin : begin + num_steps]
        yield x, data[:, begin + 1 : begin + num_steps + 1]


class _ByNumpy:
    """Two LSTM layers by the paper's equations, with a state that is carried."""

    def __init__(self, rows: int):
        self.states = np.zeros((2, 2, rows, _TINY.units))  # layer; cell and output

    def losses(self, values, x, y) -> np.ndarray:
        """-log of the probability of each next word, [rows, words]."""
        losses = []
        for words, nexts in zip(x.T, y.T):
            h = values["embedding/words"][words].astype(np.float64)
            for layer in range(2):
                h = self._cell(values, layer, h)
            z = h @ values["logits/dense/kernel"] + values["logits/dense/bias"]
            logs = z - np.log(np.exp(z).sum(1, keepdims=True))
            losses.append(-logs[np.arange(len(nexts)), nexts])
        return np.stack(losses, 1)

    def _cell(self, values, layer, x):
        of = {n: values[f"lstm_{layer}/lstm/{n}"] for n in ("kernel", "recurrent")}
        c, h = self.states[layer]
        gates = x @ of["kernel"] + h @ of["recurrent"]
        gates = gates + values[f"lstm_{layer}/lstm/bias"]
        i, j, f, o = np.split(gates, 4, 1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(j)
        h = _sigmoid(o) * np.tanh(c)
        self.states[layer] = c, h
        return h


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


_REQUEST = Request(
    shape=(5,), kind="tokens", preprocessing="words", num_classes=9, seed=5
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

    def _records(self, split="train"):
        """Words of a text, and their numbers."""
        rng = np.random.default_rng(0)
        words = rng.choice(["to", "be", "or", "not"], 700)
        folder = self.create_tempdir().full_path
        for name, part in (("train", words[:450]), ("valid", words[450:])):
            with open(os.path.join(folder, f"ptb.{name}.txt"), "w") as file:
                file.write(" ".join(part))
        records = text.find(folder, _REQUEST, splits=("train",))
        request = dataclasses.replace(_REQUEST, vocabulary=records.vocabulary)
        part = words[:450] if split == "train" else words[450:]
        ids = [records.vocabulary.index(word.encode()) for word in part]
        return text.find(folder, request, splits=(split,)), np.array(ids)

    def test_loss_and_state_of_each_step_by_numpy(self):
        records, words = self._records()
        training = trainer.Trainer(
            _tiny(_TINY._replace(dropout=0.0)),
            inputs.DatasetSource(records, _REQUEST),
            towers=3,
            batch_size=1,
            update=Update("sgd", Piecewise((1.0,)), clip_norm=5.0),
        ).start()
        train, by_numpy = training.train, _ByNumpy(rows=3)
        for x, y in itertools.islice(_ptb_producer(words, 3, 5), 4):
            values = training.values()
            fetches = train.loss, train.metrics["bits_per_token"], train.train_op
            loss, bits, _ = training.session.run(fetches)
            from_zero = _ByNumpy(rows=3).losses(values, x, y)
            wanted = by_numpy.losses(values, x, y)
            self.assertAllClose(loss, wanted.sum(1).mean(), rtol=1e-5)
            self.assertAllClose(bits, wanted.mean() / np.log(2), rtol=1e-5)
            if training.values()["global_step"] > 1:
                self.assertGreater(abs(from_zero.sum(1).mean() / loss - 1), 1e-4)
        states = np.stack(
            [
                training.values()[f"carried/state/lstm_{layer}/lstm/{name}"]
                for layer in range(2)
                for name in ("state", "output")
            ]
        )
        wanted = by_numpy.states.reshape(states.shape)
        self.assertAllClose(states, wanted, rtol=1e-5)

    def test_an_epoch_is_that_of_the_tutorial(self):
        records, words = self._records()
        source = inputs.DatasetSource(records, _REQUEST).in_rows(4)
        batches = list(_ptb_producer(words, 4, 5))
        self.assertEqual(source.num_examples, 4 * len(batches))
        x, y = batch_reader.read(source, 4, layout="1x12")[:2]
        for number, (features, labels) in enumerate(batches[:12]):
            place = slice(4 * number, 4 * number + 4)
            self.assertAllEqual(x[place], features)
            self.assertAllEqual(y[place], labels)

    @parameterized.parameters((1, 1), (3, 2))
    def test_perplexity_of_every_word_by_numpy(self, towers, batch_size):
        records, words = self._records("validation")
        self.assertNotEqual((len(words) - 1) % 5, 0)
        model = _tiny()
        training = trainer.Trainer(
            model,
            inputs.DatasetSource(self._records()[0], _REQUEST),
            towers=towers,
            batch_size=2,
            update=Update("sgd", Piecewise((1.0,))),
        )
        with training.train.graph.as_default():
            graph = eval_graph.attach(
                TowerSpec(model, records.num_classes, training=False),
                inputs.DatasetSource(records, _REQUEST, training=False),
                placement=training.placement,
                mode=eval_graph.AveragedVariables(training.train.mode, {}),
                batch_size=batch_size,
            )
        values = training.start().steps(2)
        rows = towers * batch_size
        size = -(-(len(words) - 1) // rows)
        losses = []
        for row in range(rows):
            part = words[row * size : (row + 1) * size + 1][None]
            by_numpy = _ByNumpy(rows=1)
            losses.append(by_numpy.losses(values, part[:, :-1], part[:, 1:]))
        wanted = np.concatenate(losses, 1)
        self.assertEqual(wanted.size, len(words) - 1)
        for follows in (False, True):
            result = eval_graph.run(graph, training.session, 2, follows=follows)
            means = model.with_derived(result.values)
            perplexity = np.exp(wanted.mean())
            self.assertAllClose(means["perplexity"], perplexity, rtol=1e-5)
            self.assertAllClose(means["loss"], 5 * wanted.mean(), rtol=1e-5)

    def test_any_number_of_towers(self):
        records, _ = self._records()
        self.assertEqual(records.num_classes, 5)

        def train(towers, **options):
            training = trainer.Trainer(
                _tiny(),
                inputs.DatasetSource(records, _REQUEST),
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
