"""A checkpoint holds the vocabulary of its training, and refuses another."""

import os
import pathlib

import tensorflow as tf

from flags import config
from models import language
from models.inputs import Tokens
from models.model import Model, Recipe, Schedule
from tests import digit_runs
from towers import planning
from towers.checkpoints import constants
from towers.checkpoints.checkpoint import Checkpoints

v1 = tf.compat.v1

_NAME = "constant/vocabulary"


def _words_model(name: str) -> Model:
    """Reads three of a text's seven most frequent words at a time."""

    def logits(x, nn):
        table = nn.variable("words", [nn.num_classes, 4])
        return nn.dense(nn.embedding(x, table), nn.num_classes)

    return Model(
        name=name,
        blocks=(("logits", logits),),
        inputs=Tokens(3, 7, preprocessing="words"),
        recipe=Recipe(4, Schedule((0.1,)), num_epochs=1),
        loss=language.mean_cross_entropy,
        metrics=language.bits_per_token,
    )


class RunTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        self.texts = pathlib.Path(self.create_tempdir().full_path)

    def text(self, name, words):
        path = self.texts / name
        path.write_text(f"{words} " * 40)
        return os.fspath(path)

    def train(self, text, **settings):
        return self.run_flags(
            **{"num_batches": 4, "num_warmup_batches": 0, **settings},
            data_name=text,
            train_dir=self.directory,
            get_model=_words_model,
        )

    def test_a_text_with_other_words_is_refused(self):
        text = self.text("a.txt", "a a a a b b b c c d")
        self.train(text)
        words_saved = [word.decode() for word in self.values()[_NAME]]
        self.assertEqual(words_saved, ["a", "b", "c", "d", "<unk>"])
        refusal = (
            f"train_dir={self.directory}: model.ckpt-4 has another vocabulary (%s); "
            "name the data that it was trained on, or another train_dir"
        )
        before = sorted(os.listdir(self.directory))
        for name, words, difference in (
            (
                "b.txt",
                "a a a a b b b d d c",
                "number 2 is 'c' in it and 'd' in this run",
            ),
            (
                "c.txt",
                "a a a a b b b c c d e",
                "number 4 is '<unk>' in it and 'e' in this run",
            ),
            ("d.txt", "a a b", "number 2 is 'c' in it and '<unk>' in this run"),
        ):
            other = self.text(name, words)
            for settings in ({"num_batches": 8}, {"eval": True}):
                with self.subTest(f"{name} {settings}"):
                    with self.assertRaises(ValueError) as caught:
                        self.train(other, **settings)
                    self.assertEqual(str(caught.exception), refusal % difference)
        with self.assertRaises(ValueError) as caught:
            self.train("synthetic", num_batches=8)
        reason = "5 entries in it and none in this run"
        self.assertEqual(str(caught.exception), refusal % reason)
        self.assertEqual(sorted(os.listdir(self.directory)), before)
        # The same words, each as often, in another order: the same vocabulary.
        again = self.text("e.txt", "b a c a d b a c a b")
        lines = self.train(again, num_batches=8, eval_at_end=True)
        self.assertIn(f"Resuming from {self.directory}/model.ckpt-4", lines)

    def test_evaluation_is_told_in_the_words_of_training(self):
        """Also where no split is called `train`."""
        self.text("valid.txt", "a a b c")
        self.text("test.txt", "c c c b b d")
        splits = {"train_split": "validation", "eval_split": "test"}
        data = {"device": "cpu", "data_name": f"{self.texts}", **splits}
        plan = planning.make(config.make(eval_at_end=True, **data), _words_model)
        self.assertEqual(plan.source.vocabulary, (b"a", b"b", b"c", b"<unk>"))
        self.assertEqual(plan.eval_source.vocabulary, plan.source.vocabulary)


class CheckpointTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.directory = self.create_tempdir().full_path

    def _session(self, words, start=0.0, **options):
        """A session, the checkpoints for it, and its one variable beside words."""
        with tf.Graph().as_default() as graph:
            a = v1.get_variable("a", initializer=[start] * 2, use_resource=True)
            source = type("Source", (), {"vocabulary": words})
            saved = {"a": a} | constants.of(source, "/device:CPU:0")
            checkpoints = Checkpoints(self.directory, saved, **options)
            session = v1.Session(graph=graph)
            self.addCleanup(session.close)
            session.run(v1.variables_initializer(list(saved.values())))
        return session, checkpoints, a

    def _saved(self, words):
        session, checkpoints, _ = self._session(words, 1.0)
        checkpoints.save(session, 1)

    def test_the_number_of_workers_is_kept_and_need_not_be_the_same(self):
        self.assertEqual(constants.nominal_workers(f"{self.directory}/none"), 0)
        for step, workers in enumerate((4, 3, 0)):
            with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
                a = v1.get_variable("a", initializer=1.0, use_resource=True)
                held = constants.of(object(), "/device:CPU:0", workers=workers)
                checkpoints = Checkpoints(self.directory, {"a": a} | held)
                session.run(v1.variables_initializer([a, *held.values()]))
                checkpoints.restore(session)
                checkpoints.save(session, step + 1)
        for step, workers in enumerate((4, 3, 0)):
            path = f"{self.directory}/model.ckpt-{step + 1}"
            self.assertEqual(constants.nominal_workers(path), workers)

    def test_a_checkpoint_from_before_there_were_constants_is_loaded(self):
        self._saved(())
        session, checkpoints, a = self._session((b"x", b"y"))
        checkpoints.restore(session)
        self.assertAllEqual(session.run(a), [1, 1])
        checkpoints.save(session, 2)
        reader = tf.train.load_checkpoint(self.directory)
        self.assertAllEqual(reader.get_tensor(_NAME), [b"x", b"y"])

    def test_only_who_reads_a_part_of_a_checkpoint_may_have_none(self):
        self._saved((b"x", b"y"))
        session, checkpoints, a = self._session((), partial=True)
        checkpoints.restore(session)
        self.assertAllEqual(session.run(a), [1, 1])
        session, checkpoints, _ = self._session(())
        with self.assertRaisesRegex(ValueError, "2 entries in it and none in this run"):
            checkpoints.restore(session)

    def test_what_differs_is_shown_though_it_is_no_text(self):
        self._saved((b"x", b"\xff\n"))
        session, checkpoints, _ = self._session((b"x", b"y\x00"))
        with self.assertRaisesRegex(
            ValueError, r"number 1 is '\\\\xff\\n' in it and 'y\\x00' in this run"
        ):
            checkpoints.restore(session)
