"""The count of damaged examples belongs to the position, however a run got there."""

import dataclasses
import pathlib

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader, file_sources, trainer
from tests.image_folders import REQUEST, ImageFoldersTestCase
from towers.compute.tower import TowerSpec
from towers.data import damaged_count, inputs
from towers.evaluation import eval_graph
from towers.layout import placement
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_EPOCH = 24


class DamagedCountTest(ImageFoldersTestCase):
    def setUp(self):
        super().setUp()
        self._folder = self.folder("folders")
        paths = sorted(pathlib.Path(self._folder, "train").rglob("*.JPEG"))
        for path in paths[3:24:7]:
            path.write_bytes(path.read_bytes()[:300])
        source = self.source(self._folder, max_damaged=3)
        self.assertEqual(source.num_examples, _EPOCH)
        weights = batch_reader.read(source, 6, layout="1x12")[2]
        self._damaged = np.flatnonzero(weights == 0)  # indices in the stream

    def _count(self, position):
        """The damaged examples of the epoch up to this position in the stream."""
        begun = position // _EPOCH * _EPOCH
        return np.sum((self._damaged >= begun) & (self._damaged < position))

    def _trainer(self, most=3, **options):
        source = self.source(self._folder, max_damaged=most)
        return trainer.Trainer(file_sources.images(), source, **options)

    def _counted(self, training):
        return int(training.values()[damaged_count.NAME])

    @parameterized.parameters(
        dict(towers=1, batch_size=5),
        dict(towers=3, batch_size=4, variable_update="replicated"),
        dict(towers=2, batch_size=2, accumulate_steps=3),
        dict(towers=2, batch_size=30),  # more than an epoch in a step
        dict(towers=2, batch_size=4, class_weight=[0.0] * 500 + [1.0] * 500),
        dict(towers=2, batch_size=4, limit=29),
    )
    def test_it_is_that_of_the_position(self, **options):
        limit = options.get("limit", 1000)
        training = self._trainer(**options).start()
        for step in range(1, 4):
            position = min(training.steps(step)["position"], limit)
            if position <= 72:  # of which the damaged are known
                self.assertEqual(self._counted(training), self._count(position))

    def test_steps_inside_the_graph_and_without_training(self):
        training = self._trainer(towers=2, batch_size=3).add_loop().start()
        training.run([], 3, steps_per_loop=3)
        self.assertEqual(self._counted(training), self._count(18))
        forward = self._trainer(batch_size=10, forward_only=True).start()
        forward.steps(2)
        self.assertEqual(self._counted(forward), self._count(20))

    def test_asynchronous_towers(self):
        training = self._trainer(
            towers=2, batch_size=4, variable_update="asynchronous"
        ).start()
        training.run([], 5)
        self.assertBetween(self._counted(training), 0, 3)

    def test_a_resumed_run_ends_at_the_same_example(self):
        ends = self._damaged[2] + 1  # so many examples have three damaged ones
        whole = self._trainer(2, batch_size=1).start()
        with self.assertRaisesRegex(tf.errors.OpError, "more than max_damaged"):
            whole.steps(ends)
        folder = self.create_tempdir().full_path
        before = self._trainer(2, batch_size=1).start()
        before.steps(self._damaged[1] + 1)
        before.save(folder)
        # Three towers, that have not read the first two damaged examples.
        resumed = self._trainer(2, towers=3, batch_size=4).start(folder)
        with self.assertRaises(tf.errors.OpError) as caught:
            resumed.steps(self._damaged[1] + 9)
        self.assertStartsWith(
            inputs.explain(caught.exception), "more than max_damaged_examples=2 "
        )

    def test_checkpoints_without_a_count(self):
        folders = [self.create_tempdir().full_path for _ in range(2)]
        source = self.source(str(self.root / "folders"))
        without = trainer.Trainer(file_sources.images(), source, batch_size=6).start()
        self.assertNotIn(damaged_count.NAME, without.steps(1))
        without.save(folders[0])
        counting = self._trainer(batch_size=6).start(folders[0])
        counting.steps(4)
        counting.save(folders[1])
        again = trainer.Trainer(file_sources.images(), source, batch_size=6)
        self.assertEqual(again.start(folders[1]).values()["position"], 24)

    def test_an_evaluation_counts_those_of_all_hosts(self):
        request = dataclasses.replace(
            REQUEST, data_dir=self._folder, max_damaged=3, augment=False
        )
        source = inputs.get("imagenet", request, split="train", training=False)
        where, task = (
            placement.local(2, kind="cpu"),
            TowerSpec(file_sources.images(), num_classes=1000, training=False),
        )
        with tf.Graph().as_default():
            mode = VARIABLE_UPDATES["parameter_server"](where)
            built = eval_graph.attach(
                task, source, placement=where, mode=mode, batch_size=5
            )
            with v1.Session(config=placement.session_config(where)) as session:
                session.run(v1.global_variables_initializer())
                result = eval_graph.run(built, session, 1)
                self.assertEqual(result.num_examples, _EPOCH)
                # As on two hosts that have read two of them each.
                fewer = built.feed.left_out._replace(most=2)
                feed = built.feed._replace(left_out=fewer)
                with self.assertRaisesRegex(ValueError, "more than max_damaged"):
                    eval_graph.run(built._replace(feed=feed), session, 1)
