"""The number of workers for which a learning rate is given stays with the training."""

import tensorflow as tf
from absl.testing import absltest

from flags import config
from towers.checkpoints import constants, nominal_workers
from towers.checkpoints.checkpoint import Checkpoints
from towers.layout import cluster_spec

v1 = tf.compat.v1

_SPEC = cluster_spec.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w0:1", "w1:1"], controller="c:1"
)


class FindNominalTest(absltest.TestCase):
    def test_a_rate_that_does_not_follow_the_workers(self):
        settings = config.make(elastic="keep_batch")
        self.assertEqual(nominal_workers.find_nominal(settings, _SPEC, 16), (0, 16))
        alone = config.make(elastic="scale_lr")
        self.assertEqual(nominal_workers.find_nominal(alone, None, 16), (0, 16))

    def test_those_that_the_training_began_with(self):
        folder = self.create_tempdir().full_path
        settings = config.make(elastic="scale_lr", train_dir=folder)
        self.assertEqual(nominal_workers.find_nominal(settings, _SPEC, 16), (2, 16))
        with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
            step = v1.get_variable("step", initializer=1, use_resource=True)
            held = constants.of(object(), "/device:CPU:0", workers=5)
            session.run(v1.variables_initializer([step, *held.values()]))
            Checkpoints(folder, {"step": step} | held).save(session, 1)
        self.assertEqual(nominal_workers.find_nominal(settings, _SPEC, 16), (5, 40))
        moved = config.make(elastic="scale_lr")
        self.assertEqual(nominal_workers.find_nominal(moved, _SPEC, 16), (2, 16))
