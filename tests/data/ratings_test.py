"""Ratings as pairs: the last of each user is held out, others are drawn."""

import os
import pathlib
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader, make_imagenet
from tests.ratings_dataset import EACH, ITEMS, USERS, Films, rated_by_users
from towers.data import inputs, ratings
from towers.data.source import Request


class FewFilms(Films):
    """One user has rated everything."""

    def rated(self):
        return [*rated_by_users(), *(("all", f"{i}", i) for i in range(ITEMS))]


class RatingsTest(parameterized.TestCase, tf.test.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        rated = rated_by_users()
        users = sorted({user for user, _, _ in rated})
        items = sorted({item for _, item, _ in rated})
        cls.num_items = len(items)
        cls.rated = [[] for _ in users]
        for user, item, _ in rated:  # rows are in the order of time
            cls.rated[users.index(user)].append(items.index(item))

    def setUp(self):
        super().setUp()
        folder = self.create_tempdir().full_path
        self.request = Request(
            shape=(2,), kind="pairs", preprocessing="pairs", data_dir=folder
        )

    @parameterized.parameters(0, 2**28)
    def test_training(self, memory):
        records = ratings.find_ratings("films", self.request, splits=("train",))
        self.assertEqual(records.num_classes, (USERS, self.num_items))
        self.assertEqual(records.num_examples, USERS * (EACH - 1) * 5)
        source = inputs.DatasetSource(records, self.request, memory=memory)
        steps = 2 * records.num_examples // 12 + 1
        pairs, labels, _, _ = batch_reader.read(source, steps)
        epochs = [np.s_[: records.num_examples], np.s_[records.num_examples :]]
        drawn = []
        for part in epochs:
            part = np.s_[part.start or 0 : (part.start or 0) + records.num_examples]
            mine, liked = pairs[part], labels[part] == 1
            wanted = [(u, i) for u, row in enumerate(self.rated) for i in row[:-1]]
            self.assertCountEqual(map(tuple, mine[liked].tolist()), wanted)
            counts = np.bincount(mine[~liked, 0])
            self.assertAllEqual(counts, [4 * (EACH - 1)] * USERS)
            self.assertAllInRange(mine[:, 1], 0, self.num_items - 1)
            drawn.append(sorted(map(tuple, mine[~liked].tolist())))
        self.assertNotEqual(*drawn)

    def test_validation(self):
        for _ in range(2):  # the second time it finds the file
            source = inputs.get("films", self.request, training=False)
            self.assertEqual(
                (source.num_examples, source.features.shape), (USERS, (100, 2))
            )
            pairs, labels, _, _ = batch_reader.read(source, 2)
            for user, row in enumerate(self.rated[:24]):
                self.assertAllEqual(pairs[user, :, 0], np.full(100, user))
                self.assertEqual(pairs[user, 0, 1], row[-1])
                others = set(pairs[user, 1:, 1].tolist())
                self.assertLen(others, 99)
                self.assertEmpty(others & set(row))
            self.assertAllEqual(labels.sum(1), np.ones(24))
            self.assertAllEqual(labels[:, 0], np.ones(24))

    def test_every_row_of_the_table_is_tested(self):
        self.assertCountEqual(ratings.SPLITS, ["train", "validation"])

    def test_refuses(self):
        with self.assertRaisesRegex(ValueError, "no split test, only train, valid"):
            ratings.find_ratings("films", self.request, splits=("test",))
        several = mock.Mock(info=mock.Mock(splits={"train": None, "test": None}))
        several.name = "shows"
        with self.assertRaisesRegex(ValueError, "=shows: .* splits train, test, and"):
            ratings._ratings(several, "movie_id")
        with self.assertRaisesRegex(ValueError, "digits: not a data set of ratings"):
            ratings.find_ratings("digits", self.request, splits=("train",))
        with self.assertRaisesRegex(ValueError, "few_films: too few items"):
            ratings.find_ratings("few_films", self.request, splits=("train",))
        path = os.path.join(self.request.data_dir, "few_films/1.0.0/train.pairs")
        self.assertFalse(os.path.exists(path))
        for split, training in (("train", False), ("validation", True)):
            flag = "train_split" if training else "eval_split"
            with self.assertRaisesRegex(ValueError, f"^{flag}={split}: of ratings"):
                inputs.get("films", self.request, split=split, training=training)

    def _written(self, user, item, time):
        """Rows of the pairs to train on, and the held-out item of each user."""
        folder = pathlib.Path(self.create_tempdir().full_path)
        count = len(set(user))
        others = np.arange(200) + 1000  # rated by users who each rate twenty of them
        user = np.append(user, others // 20)
        item, time = np.append(item, others), np.append(time, others)
        ratings._write("mine", folder, (user, item, time))
        train, held_out = (
            np.fromfile(folder / f"{split}.pairs", np.int32)[2:].reshape(-1, width)
            for split, width in (("train", 2), ("validation", 101))
        )
        return train[train[:, 0] < count].tolist(), held_out[:count, 1].tolist()

    def test_an_item_that_is_rated_again_is_not_trained_on_and_held_out(self):
        user, item = np.array([0, 0, 0, 1, 1]), np.array([4, 5, 4, 5, 4])
        train, held_out = self._written(user, item, np.arange(5))
        self.assertCountEqual(train, [[0, 1], [1, 1]])
        self.assertEqual(held_out, [0, 0])

    def test_nothing_to_train_on(self):
        numbers = np.arange(200)
        with self.assertRaisesRegex(ValueError, "^data_name=mine: every user rated"):
            ratings._write("mine", pathlib.Path(), (numbers, numbers, numbers))

    def test_files_of_movielens(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        make_imagenet.write_ratings(folder)
        pairs = []
        for inside in ("ml-1m", "ml-100k", "ml-latest"):
            name = os.fspath(folder / "movielens" / inside)
            records = ratings.find_ratings(name, self.request, splits=("train",))
            self.assertEqual(records.name, inside)
            self.assertEqual(records.num_classes[0], 12)
            self.assertEqual(records.num_examples, 5 * sum(15 + n for n in range(12)))
            source = inputs.DatasetSource(records, self.request)
            pairs.append(batch_reader.read(source, 20)[0])
        self.assertAllEqual(pairs[0], pairs[1])
        self.assertAllEqual(pairs[0], pairs[2])
        with open(f"{name}/ratings.csv", "a") as file:
            file.write("3,five,4,1\n")
        os.utime(f"{name}/ratings.csv", (2e9, 2e9))
        with self.assertRaisesRegex(
            ValueError, "ratings.csv has a line that is not us"
        ):
            ratings.find_ratings(name, self.request, splits=("train",))
        with self.assertRaisesRegex(
            ValueError, "has none of ratings.dat, u.data, .*ml-"
        ):
            ratings.find_ratings(f"{folder}/movielens", self.request, splits=("train",))
