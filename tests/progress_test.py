"""`nn.progress` is the share of the training that is done, in every way to train."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import exact_settings, trainer
from towers.compute.tower import TowerSpec
from towers.evaluation import eval_graph
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.modes import VARIABLE_UPDATES
from towers.verification import reference, verdict

_EPOCHS, _EXAMPLES, _BATCH = 2.0, 70, 32  # of a training, an epoch and a step

_WAYS = {
    **exact_settings.of_batch(_BATCH),
    "one": {},
    "in turn": dict(towers=4, at_a_time=1),
}


def _add(x, nn):
    """Adds a variable times the progress, which is then its gradient."""
    start = tf.compat.v1.zeros_initializer()
    return x + nn.variable("weight", [], start) * nn.progress


def _model():
    def first(x, nn):
        return _add(0.0 * nn.flatten(x), nn)

    return trainer.model_of(
        *(first, ("second", _add)),
        loss=lambda outputs, labels: outputs[:, 0],
        metrics=lambda outputs, labels: {"output": outputs[:, 0]},
    )


def _trainer(*, towers=1, **options):
    return trainer.Trainer(
        _model(),
        update=Update("sgd", Piecewise((1.0,))),
        towers=towers,
        **{"batch_size": _BATCH // towers, "epochs": _EPOCHS, **options},
    )


def _wanted(steps):
    """The weights after so many steps of rate 1."""
    done = np.arange(steps) * _BATCH / (_EPOCHS * _EXAMPLES)
    return -np.minimum(done, 1.0).sum()


class ProgressTest(parameterized.TestCase):
    def _check(self, values, steps):
        for name in ("first/weight", "second/weight"):
            np.testing.assert_allclose(values[name], _wanted(steps), rtol=1e-6)

    @parameterized.named_parameters((way, options) for way, options in _WAYS.items())
    def test_of_all_towers_and_pieces(self, options):
        self._check(_trainer(**options).start().steps(7), 7)

    def test_inside_the_graph(self):
        training = _trainer(towers=2).add_loop().start()
        training.run([], 7, steps_per_loop=3)
        self._check(training.values(), 7)

    def test_of_a_resumed_run(self):
        folder = self.create_tempdir().full_path
        training = _trainer(towers=2).start()
        training.steps(3)
        training.save(folder)
        self._check(_trainer(towers=1).start(folder).steps(7), 7)

    def test_is_1_in_evaluation(self):
        training = _trainer()
        with training.train.graph.as_default():
            source = trainer.random_source()
            graph = eval_graph.attach(
                TowerSpec(_model(), source.num_classes, training=False),
                source,
                placement=training.placement,
                mode=training.train.mode,
                batch_size=8,
            )
        training.start().steps(3)
        result = eval_graph.run(graph, training.session, step=3)
        self.assertAlmostEqual(result.means["output"], 2 * _wanted(3), places=5)

    def test_towers_of_their_own_are_as_far_as_one_on_all_rows(self):
        subject = trainer.subject(
            model=_model(), update=Update("sgd", Piecewise((1.0,)))
        )
        options = dataclasses.replace(subject.options, epochs=0.5)
        subject = dataclasses.replace(subject, options=options)
        case = verdict.Case("independent", 2)
        train = reference.build(subject, case, VARIABLE_UPDATES)
        for alone in reference.References(subject).of(case, train):
            done = np.arange(3) * subject.global_batch / (0.5 * _EXAMPLES)
            np.testing.assert_allclose(
                alone.values[-1]["second/weight"], -done.sum(), rtol=1e-6
            )
