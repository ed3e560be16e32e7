"""The norms are those of the gradient of one tower on the joined batch."""

import csv
import os

import numpy as np
from absl.testing import parameterized

from tests import embedding_models, trainer
from towers.callbacks import GradientNorms
from towers.callbacks.base import TrainingRun
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.loss_scale import LossScaling
from towers.optimizers.optimizer import Update

tf = trainer.tf

# value -= gradient
_UPDATE = Update("sgd", Piecewise((1.0,)))


class GradientNormsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.path = os.path.join(self.create_tempdir(), "norms.csv")

    def _norms(self, *, steps_per_loop=1, every=2, last_step=5, **options):
        """The rows of the file, by step."""
        training = trainer.Trainer(update=_UPDATE, **options)
        norms = GradientNorms(self.path, every=every)
        with training.train.graph.as_default():
            norms.set_up(TrainingRun(training.train))
        if steps_per_loop > 1:
            training.add_loop()
        training.start().run([norms], last_step, steps_per_loop)
        with open(self.path, newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertAlmostEqual(norms.norms["all"], float(rows[-1]["all"]), places=6)
        return {
            int(row.pop("step")): {name: float(v) for name, v in row.items()}
            for row in rows
        }

    def _wanted(self, step, **options):
        """The norms of what one tower's step changes."""
        training = trainer.Trainer(update=_UPDATE, **options).start()
        before = training.steps(step - 1)
        after = training.steps(step)
        names = training.train.template.trainable
        changes = {name: before[name] - after[name] for name in names}
        norms = {name: np.linalg.norm(change) for name, change in changes.items()}
        return {**norms, "all": np.linalg.norm([*norms.values()])}

    @parameterized.named_parameters(
        ("one_tower", dict(towers=1, batch_size=12)),
        ("parameter_server", dict()),
        ("inside_the_graph", dict(steps_per_loop=3)),
        ("parts", dict(exchange=dict(partition_bytes=100))),
        ("replicated", dict(variable_update="replicated")),
        ("distributed", dict(variable_update="distributed_replicated")),
        ("accumulated", dict(towers=2, batch_size=2, accumulate_steps=3)),
        ("stages", dict(pipeline=Pipeline(stages=2, micro_batches=3))),
    )
    def test_of_several_towers(self, options):
        norms = self._norms(**{"towers": 4, "batch_size": 3, **options})
        self.assertEqual([*norms], [2, 4])
        for step, row in norms.items():
            wanted = self._wanted(step, batch_size=12)
            self.assertEqual(set(row), set(wanted))
            for name, value in wanted.items():
                np.testing.assert_allclose(row[name], value, 1e-4, 1e-6, name)

    @parameterized.parameters(1, 4)
    def test_rows_that_several_examples_share(self, towers):
        parts = (embedding_models.model(), embedding_models.source())
        options = dict(zip(("model", "source"), parts))
        size = 12 // towers
        norms = self._norms(towers=towers, batch_size=size, **options)
        for name, value in self._wanted(4, batch_size=12, **options).items():
            np.testing.assert_allclose(norms[4][name], value, 1e-4, err_msg=name)

    def test_a_loss_scale_is_taken_out(self):
        scaled = dict(dtype=tf.float16, loss_scaling=LossScaling(1024.0))
        norms = self._norms(towers=2, batch_size=6, **scaled)
        for name, value in self._wanted(4, batch_size=12).items():
            np.testing.assert_allclose(norms[4][name], value, 2e-2, 1e-3, name)

    def test_where_towers_step_apart_it_is_the_first_ones(self):
        norms = self._norms(towers=2, batch_size=6, variable_update="asynchronous")
        self.assertTrue(np.isfinite([*norms[2].values()]).all())

    def test_a_step_that_is_not_due_computes_none(self):
        training = trainer.Trainer(update=_UPDATE, towers=2, batch_size=6)
        norms = GradientNorms(self.path, every=3)
        with training.train.graph.as_default():
            norms.set_up(TrainingRun(training.train))
        training.start()
        norms.after_create_session(training.session, None)
        for step in (1, 2, 3):
            fetches = tf.nest.flatten(norms.before_run(None).fetches)
            self.assertEqual(len(fetches) > 1, step == 3)
            norms.step = step
