"""`--data_name=FILE:function`: the user's data, and what is wrong with it."""

import dataclasses
import os

import tensorflow as tf
from absl.testing import parameterized

from tests import batch_reader
from towers.data import inputs, own_data
from towers.data.source import Request

_FILE = """
import numpy as np
from towers.data import from_arrays, from_csv

def words(split):
    return from_csv(["{FOLDER}/" + split + ".csv"], "word")

def data(split):
    n = {"train": 8, "validation": 3}[split]
    return from_arrays(np.arange(n, dtype=np.float32))

def none():
    pass

def nothing(split):
    pass
"""


class OwnDataTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.file = os.path.join(self.create_tempdir().full_path, "my_data.py")
        with open(self.file, "w") as file:
            file.write(_FILE.replace("{FOLDER}", os.path.dirname(self.file)))
        self.request = Request(
            shape=(), kind="examples", preprocessing="", features=tf.TensorSpec([])
        )

    def test_the_function_gets_the_split(self):
        name = f"{self.file}:data"
        train = inputs.get(name, self.request)
        self.assertEqual((train.num_examples, train.name), (8, "my_data.py:data"))
        held_out = inputs.get(name, self.request, training=False)
        self.assertAllEqual(batch_reader.read(held_out, 1)[0], [0, 1, 2] * 4)

    def test_categories_are_those_of_the_training(self):
        for split, words in (("train", "b\na\nc\n"), ("validation", "c\nc\n")):
            with open(f"{os.path.dirname(self.file)}/{split}.csv", "w") as file:
                file.write(f"word\n{words}")
        request = dataclasses.replace(
            self.request, features=tf.TensorSpec([], tf.int32)
        )
        name = f"{self.file}:words"
        train = inputs.get(name, request)
        self.assertEqual(train.vocabulary, (b"word=a", b"word=b", b"word=c"))
        request = dataclasses.replace(request, vocabulary=train.vocabulary)
        held_out = inputs.get(name, request, training=False)
        self.assertAllEqual(batch_reader.read(held_out, 1)[0], [2] * 12)
        self.assertEqual(held_out.vocabulary, train.vocabulary)

    @parameterized.parameters(
        ("none", None, "none is to take the name of a split and return its examples"),
        ("nothing", None, r"nothing\('train'\) returned NoneType; return what a func"),
        ("data", "test", r"data\('test'\) failed: KeyError: 'test' \(.*my_data.py:9\)"),
        ("date", None, "has no function 'date'; did you mean data?"),
    )
    def test_what_is_wrong_is_told(self, function, split, words):
        name = f"{self.file}:{function}"
        with self.assertRaisesRegex(ValueError, f"^data_name={name}: .*{words}"):
            inputs.get(name, self.request, split=split)

    def test_data_that_does_not_fit(self):
        request = Request(shape=(8, 8, 1))
        words = r"data\('train'\): the model reads images .*, and features are features"
        with self.assertRaisesRegex(ValueError, words):
            inputs.get(f"{self.file}:data", request)

    def test_a_folder_has_no_effect(self):
        request = Request(shape=(), kind="examples", data_dir="/there")
        with self.assertRaisesRegex(ValueError, "data_dir=/there: is where TFDS"):
            inputs.get(f"{self.file}:data", request)

    @parameterized.parameters(
        ("a/b.py:f", True),
        ("a.b:f", True),
        ("cifar10:3.0.2", False),
        ("cifar10", False),
        ("a/b:f", False),
    )
    def test_names_of_functions(self, name, is_function):
        self.assertEqual(own_data.is_function(name), is_function)
