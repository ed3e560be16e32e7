"""Neural collaborative filtering: its size, its metrics, and sparse gradients."""

import dataclasses
import math
import re

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models import layers, ncf
from tests import arrays, digit_runs, ratings_dataset, trainer
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource

v1 = tf.compat.v1

_TABLES = {
    f"embeddings/{who}_{part}"
    for who in ("user", "item")
    for part in ("factors", "dense")
}


def _source() -> SyntheticSource:
    request = Request(shape=(2,), num_classes=(30, 20), kind="pairs", num_examples=500)
    return SyntheticSource(request)


class NcfTest(parameterized.TestCase, tf.test.TestCase):
    def _run(self, function, *arrays):
        with tf.Graph().as_default(), v1.Session() as session:
            return session.run(function(*map(tf.constant, arrays)))

    def test_size(self):
        tables = (138_493 + 26_744) * (64 + 128)
        dense = 257 * 256 + 257 * 128 + 129 * 64 + 129
        self.assertEqual(models.get("ncf").num_parameters, tables + dense)

    def test_loss(self):
        logits, labels = np.float32([[2, -1], [0, 3]]), np.int32([[1, 0], [1, 0]])
        each = np.where(labels, np.log1p(np.exp(-logits)), np.log1p(np.exp(logits)))
        values = self._run(ncf.cross_entropy, logits, labels)
        self.assertAllClose(values, each.mean(1))
        values = self._run(ncf.cross_entropy, logits[:, 0], labels[:, 0])
        self.assertAllClose(values, each[:, 0])

    def test_accuracy_of_pairs(self):
        values = self._run(
            ncf.metrics, np.float32([2, -1, 3, -4]), np.int32([1, 1, 0, 0])
        )
        self.assertEqual(set(values), {"accuracy"})
        self.assertAllEqual(values["accuracy"], [1, 0, 0, 1])

    def test_rank_among_candidates(self):
        scores = np.zeros((4, 100), np.float32)
        scores[:, 1:] = np.arange(99)
        scores[:, 0] = [98.5, 95.5, 89.5, 88.5]  # 0, 3, 9 and 10 are better
        labels = np.zeros((4, 100), np.int32)
        labels[:, 0] = 1
        values = self._run(ncf.metrics, scores, labels)
        self.assertAllEqual(values["hit_rate_at_10"], [1, 1, 1, 0])
        wanted = [1, 1 / math.log2(5), 1 / math.log2(11), 0]
        self.assertAllClose(values["ndcg_at_10"], wanted)
        equal = self._run(ncf.metrics, np.zeros_like(scores), labels)
        self.assertAllEqual(equal["hit_rate_at_10"], [0, 0, 0, 0])
        broken = self._run(ncf.metrics, scores * np.nan, labels)
        self.assertAllEqual(broken["hit_rate_at_10"], [0, 0, 0, 0])

    def test_several_candidates_are_scored_as_pairs_are(self):
        x = np.random.default_rng(0).integers(0, 9, (2, 5, 2)).astype(np.int32)
        with tf.Graph().as_default(), v1.Session() as session:
            nn = layers.Layers(training=False, num_classes=(9, 9))
            with v1.variable_scope("", use_resource=True) as scope:
                joined = models.get("ncf").run(tf.constant(x), nn)
                scope.reuse_variables()
                apart = models.get("ncf").run(tf.constant(x.reshape(10, 2)), nn)
            session.run(v1.global_variables_initializer())
            joined, apart = session.run([joined, apart])
        arrays.assert_close(joined.ravel(), apart, rtol=1e-5)

    def test_gradients_of_the_tables_stay_sparse(self):
        training = trainer.Trainer(models.get("ncf"), _source(), towers=2)
        template = training.train.template
        sparse = {
            name
            for name, parts in zip(template.trainable, template.gradients)
            if len(parts) == 3
        }
        self.assertEqual(sparse, _TABLES)
        for name, gradient in zip(
            template.trainable, training.train.towers[1].gradients
        ):
            self.assertEqual(isinstance(gradient, tf.IndexedSlices), name in _TABLES)

    @parameterized.parameters("parameter_server", "replicated")
    def test_any_number_of_towers(self, mode):
        model = dataclasses.replace(models.get("ncf"))

        def train(towers):
            training = trainer.Trainer(
                model,
                _source(),
                towers=towers,
                batch_size=12 // towers,
                variable_update=mode,
            )
            return training.start().steps(10)

        self.assertLess(trainer.difference(train(1), train(3)), 1e-5)


class RunTest(digit_runs.Runs):
    def test_the_item_held_out_is_ranked(self):
        lines = self.run_flags(
            get_model=models.get,
            model="ncf",
            data_name=ratings_dataset.Films.name,
            data_dir=self.create_tempdir().full_path,
            batch_size=50,
            num_gpus=2,
            num_epochs=8.0,
            eval_batch_size=8,
            eval_at_end=True,
            init_learning_rate=0.01,
        )
        pattern = r"hit_rate_at_10 = (.*) ndcg_at_10 = (.*) \[40 examples\]"
        [match] = filter(None, (re.fullmatch(pattern, line) for line in lines))
        hit, gain = map(float, match.groups())
        self.assertBetween(gain, 0.0, hit)
        self.assertLessEqual(hit, 1.0)
        self.assertRegex("\n".join(lines), r"total examples/sec: \d+")
