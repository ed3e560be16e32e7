"""Every model for images: towers, stages, bfloat16, evaluation; swept over the table.

A row of `models.MODELS` joins by being there.  A model is tried with small images and
without the blocks that repeat the one before them; of rows that differ only in numbers
the first is tried.
"""

import dataclasses
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models.model import Model
from tests import trainer
from tests.small_models import IMAGES, SHAPES, shortened
from towers.compute.tower import TowerSpec
from towers.evaluation import eval_graph
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import DEFAULT
from towers.verification import agreement
from towers.verification.verdict import Case

_CLASSES = 7
_SGD = Update("sgd", Piecewise((0.01,)))
# Of a row whose gradients cancel: rounding alone is this much of a variable's change.
_BOUNDS = {"inception3": 2e-5}


def _small(name: str) -> Model:
    """The row as a small model."""
    model = shortened(models.get(name))
    shape = SHAPES.get(name, model.inputs.shape)
    inputs = dataclasses.replace(model.inputs, shape=shape, num_classes=_CLASSES)
    return dataclasses.replace(model, inputs=inputs)


def _source(model: Model, num_examples: int):
    return trainer.random_source(
        model.inputs.shape, _CLASSES, num_examples=num_examples
    )


class TowersTest(parameterized.TestCase):
    @parameterized.parameters(*IMAGES)
    def test_towers_of_two_stages_take_the_step_of_one_tower(self, name):
        model = _small(name)
        subject = trainer.subject(
            model=model,
            source=_source(model, 8),
            update=_SGD,
            global_batch=8,
            num_steps=1,
            bound=_BOUNDS.get(name, 1e-5),
        )
        pipeline = Pipeline(2, 2, balance="params", recompute="block")
        case = Case(DEFAULT, 2, pipeline=pipeline)
        # Without kinks, rounding takes no other derivative, and stays small.
        with mock.patch.object(tf.nn, "relu", tf.nn.softplus):
            (outcome,) = agreement.compare(subject, [case])
        self.assertTrue(outcome.agrees, outcome)
        self.assertEqual(outcome.grown, 0)


class Bfloat16Test(parameterized.TestCase):
    @parameterized.parameters(*IMAGES)
    def test_trains_and_evaluates_in_bfloat16(self, name):
        model = _small(name)
        source = _source(model, 6)
        training = trainer.Trainer(
            model, source, update=_SGD, batch_size=2, dtype=tf.bfloat16
        )
        train = training.train
        spec = TowerSpec(model, _CLASSES, training=False, dtype=tf.bfloat16)
        with train.graph.as_default():
            evaluation = eval_graph.attach(
                spec,
                source,
                placement=training.placement,
                mode=train.mode,
                batch_size=2,
            )
        training.start()
        loss, _ = training.session.run([train.loss, train.train_op])
        self.assertTrue(np.isfinite(loss), loss)
        result = eval_graph.run(evaluation, training.session, 1)
        self.assertEqual(result.num_examples, 6)
        self.assertTrue(np.isfinite(result.means["loss"]), result.means)
        self.assertContainsSubset(["top_1_accuracy"], result.means)
