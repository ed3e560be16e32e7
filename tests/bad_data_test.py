"""Bad data of a user's own: one sentence that names the example, from both sides.

Each case is trained by the command and by `towers.fit`.
"""

import contextlib
import io
import os
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import towers
from models import Inputs, Model, Recipe, Schedule
from tests import bad_rows
from tests.bad_rows import Rows, X, Y, kill, leave, raise_error
from towers import data as td
from towers import train

_HERE = "tests.bad_data_test"
_ONES = np.ones(40, np.float32)


def net():
    """Three classes of three numbers."""
    return Model(
        name="bad",
        blocks=(("logits", lambda x, nn: nn.dense(x, nn.num_classes)),),
        inputs=Inputs(tf.TensorSpec([3]), tf.TensorSpec([], tf.int32), num_classes=3),
        recipe=Recipe(batch_size=4, schedule=Schedule((0.1,)), num_epochs=1),
    )


def data(split):
    """The case; the tests put one in its place."""
    raise NotImplementedError(split)


def _at_33(array, value):
    array = array.copy()
    array[33] = value
    return array


def _dataset(*arrays):
    return lambda: tf.data.Dataset.from_tensor_slices(arrays)


def _generated(change):
    """A dataset of a Python generator, of whose elements one is of `change`."""

    def generate():
        rows = Rows(change)
        for i in range(40):
            yield rows[i]

    signature = (tf.TensorSpec([3]), tf.TensorSpec([], tf.int32))
    return lambda: tf.data.Dataset.from_generator(generate, output_signature=signature)


def _records(x=X):
    path = os.path.join(os.environ["TEST_TMPDIR"], "bad.tfrecord")
    with tf.io.TFRecordWriter(path) as writer:
        for row in x:
            writer.write(row.tobytes())
    return [path]


def _numbers(record):
    return tf.ensure_shape(tf.io.decode_raw(record, tf.float32), [3])


def _files(make, x=X):
    return td.from_files(_records(x), lambda record: make(_numbers(record)))


def _checked(numbers):
    if numbers[0] > 0.985:
        raise ValueError("cannot be used")
    return numbers


def _in_python(x):
    (x,) = tf.numpy_function(_checked, [x], [tf.float32])
    return tf.ensure_shape(x, [3]), 1


# Name -> (makes the examples, what is said, exit status).
_CASES = {
    # Features and specs.
    "float64": (
        lambda: td.from_arrays(X.astype("f8"), Y),
        r"features is float64 \[3\], the model reads float32 \[3\]",
        2,
    ),
    "another_name": (
        lambda: td.from_arrays({"table": X}, Y),
        r"features\['table'\] is float32 \[3\], the model reads nothing of that name",
        2,
    ),
    "no_labels": (
        lambda: td.from_dataset(_dataset(X), num_examples=40),
        r"labels is missing, the model reads int32 \[\]",
        2,
    ),
    # Examples of unequal shape.
    "source_shape": (
        lambda: td.from_source(Rows(lambda i: (X[i][:2], Y[i]))),
        r"source\[33\] has features of float32 \[2\], and source\[0\] of",
        1,
    ),
    "second_shape": (
        lambda: td.from_source(Rows(lambda i: (X[i][:2], Y[i]), changed=1)),
        r"source\[1\] has features of float32 \[2\], and source\[0\] of",
        2,
    ),
    "files_shape": (
        lambda: _files(lambda x: (x, 1), [*X[:33], X[33][:2], *X[34:]]),
        r"record 33 of .*bad.tfrecord cannot be read: Shape of tensor .*\[2\]",
        1,
    ),
    "dataset_shape": (
        lambda: td.from_dataset(
            _generated(lambda i: (X[i][:2], Y[i])), num_examples=40
        ),
        r"element 33 cannot be read: .* yielded an element of shape \(2,\)",
        1,
    ),
    # Errors of the user's code.
    "source_raises": (
        lambda: td.from_source(Rows(raise_error)),
        rf"source\[33\] failed: KeyError: 'no row 33' \({bad_rows.__file__}:\d+\)",
        1,
    ),
    "source_exits": (
        lambda: td.from_source(Rows(leave)),
        rf"source\[33\] failed: SystemExit: 33 \({bad_rows.__file__}:\d+\)",
        1,
    ),
    "worker_raises": (
        lambda: td.from_source(Rows(raise_error), workers=2),
        rf"source\[33\] failed: KeyError: 'no row 33' \({bad_rows.__file__}:\d+\)",
        1,
    ),
    "worker_killed": (
        lambda: td.from_source(Rows(kill), workers=2),
        r"worker process \d+ was ended by SIGKILL while it read .*source\[\d+\]",
        1,
    ),
    "parse_raises": (
        lambda: _files(lambda x: {}["no key"]),
        rf"parse failed: KeyError: 'no key' \({__file__}:\d+\)",
        2,
    ),
    "python_in_parse": (
        lambda: _files(_in_python),
        rf"record 33 of .* cannot be read: ValueError: cannot.*\({__file__}:\d+\)",
        1,
    ),
    "generator_raises": (
        lambda: td.from_dataset(_generated(raise_error), num_examples=40),
        rf"element 33 cannot be .*: KeyError: 'no row 33' \({bad_rows.__file__}:\d+\)",
        1,
    ),
    # The number of examples.
    "length_changes": (
        lambda: td.from_source(Rows(lengths=[40, 40, 40, 39])),
        r"len\(source\) is 39 and was 40 when the run began",
        1,
    ),
    "endless": (
        lambda: td.from_dataset(lambda: _dataset(X, Y)().repeat(), num_examples=40),
        "the dataset is endless; leave out its repeat",
        2,
    ),
    "endless_generator": (
        lambda: td.from_dataset(
            lambda: _dataset(X, Y)().repeat().filter(lambda *_: True),
            num_examples=40,
        ),
        "num_examples=40, and the dataset has more than 40",
        1,
    ),
    "too_short": (
        lambda: td.from_dataset(
            lambda: _dataset(X, Y)().filter(lambda x, _: x[0] > 0.5), num_examples=40
        ),
        "num_examples=40, and the dataset has 23",
        1,
    ),
    "empty_arrays": (lambda: td.from_arrays(X[:0], Y[:0]), "features is empty", 2),
    "empty_source": (lambda: td.from_source([]), r"source\[0\] is empty", 2),
    "empty_files": (lambda: _files(lambda x: (x, 1), []), "holds no records", 2),
    "empty_dataset": (
        lambda: td.from_dataset(_dataset(X[:0], Y[:0]), num_examples=40),
        "num_examples=40, and the dataset has 0",
        2,
    ),
    # NaN and infinity.
    "arrays_nan": (
        lambda: td.from_arrays(_at_33(X, np.nan), Y),
        "features of example 33 is not finite",
        2,
    ),
    "first_nan": (
        lambda: td.from_source(Rows(lambda i: (X[i] * np.nan, Y[i]), changed=0)),
        r"source\[0\] has features that is not finite",
        2,
    ),
    "source_nan": (
        lambda: td.from_source(Rows(lambda i: (X[i] * np.inf, Y[i]))),
        r"source\[33\] has features that is not finite",
        1,
    ),
    "files_nan": (
        lambda: _files(lambda x: (x, 1), _at_33(X, np.nan)),
        "features of example 33 is not finite in the data, so replace .*; nothing was",
        1,
    ),
    "dataset_nan": (
        lambda: td.from_dataset(
            _dataset(_at_33(X, np.nan), Y), num_examples=40, shuffle_buffer=30
        ),
        "features of example 33 is not finite in the data",
        1,
    ),
    # Weights.
    "arrays_weight": (
        lambda: td.from_arrays(X, Y, _at_33(_ONES, -1)),
        "weights of example 33 is negative",
        2,
    ),
    "first_weight": (
        lambda: td.from_source([(x, y, -1.0) for x, y in zip(X, Y)]),
        r"source\[0\] has the weight -1.0, which is negative",
        2,
    ),
    "source_weight": (
        lambda: td.from_source(
            [(x, y, -1.0 if i == 33 else 1.0) for i, (x, y) in enumerate(zip(X, Y))]
        ),
        r"source\[33\] has the weight -1.0, which is negative",
        1,
    ),
    "files_weight": (
        lambda: _files(lambda x: (x, 1, tf.where(tf.equal(x[1], 1), -1.0, 1.0))),
        "weights of example 33 is -1; it must be 0 or more",
        1,
    ),
    "dataset_weight": (
        lambda: td.from_dataset(_dataset(X, Y, _at_33(_ONES, -1)), num_examples=40),
        "weights of example 33 is -1; it must be 0 or more",
        1,
    ),
    "arrays_weights_0": (
        lambda: td.from_arrays(X, Y, 0 * _ONES),
        "weights are all 0",
        2,
    ),
    "source_weights_0": (
        lambda: td.from_source([(x, y, 0.0) for x, y in zip(X, Y)]),
        "the weights of an epoch are all 0",
        1,
    ),
    "files_weights_0": (
        lambda: _files(lambda x: (x, 1, 0.0)),
        "the weights of an epoch are all 0",
        1,
    ),
    "dataset_weights_0": (
        lambda: td.from_dataset(_dataset(X, Y, 0 * _ONES), num_examples=40),
        "the weights of an epoch are all 0",
        1,
    ),
    # Classes.
    "arrays_class": (
        lambda: td.from_arrays(X, _at_33(Y, 3)),
        r"labels of example 33 is 3; it must be a class, in \[0, 3\)",
        2,
    ),
    "fewer_classes": (
        lambda: td.from_arrays(X, np.minimum(Y, _at_33(Y, 2) // 2 * 2), num_classes=2),
        r"labels of example 2 is 2; it must be a class, in \[0, 2\)",
        2,
    ),
    "source_class": (
        lambda: td.from_source(Rows(lambda i: (X[i], np.int32(-1)))),
        r"labels of example 33 is -1; it must be a class, in \[0, 3\)",
        1,
    ),
    "first_class": (
        lambda: td.from_source(Rows(lambda i: (X[i], np.int32(3)), changed=0)),
        r"labels of example 0 is 3; it must be a class, in \[0, 3\)",
        2,
    ),
    "files_class": (
        lambda: _files(lambda x: (x, tf.where(tf.equal(x[1], 1), 3, 1))),
        r"labels of example 33 is 3; it must be a class, in \[0, 3\)",
        1,
    ),
    "dataset_class": (
        lambda: td.from_dataset(
            _dataset(X, _at_33(Y, 3)), num_examples=40, shuffle_buffer=30
        ),
        r"labels of example 33 is 3; it must be a class, in \[0, 3\)",
        1,
    ),
}


class BadDataTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        folder = self.create_tempdir().full_path
        patch = mock.patch.dict(os.environ, TEST_TMPDIR=folder)
        patch.start()
        self.addCleanup(patch.stop)

    @parameterized.parameters(*_CASES)
    def test_a_sentence_from_the_command(self, case):
        make, words, wanted = _CASES[case]
        out = io.StringIO()
        flags = ["--device=cpu", "--num_gpus=2", "--num_warmup_batches=0"]
        flags += ["--num_epochs=2", "--noeval_at_end"]
        flags += [f"--model={_HERE}:net", f"--data_name={_HERE}:data"]
        with (
            mock.patch(f"{_HERE}.data", lambda split: make()),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(out),
        ):
            status = train.main(["train", *flags])
        *_, last = out.getvalue().strip().splitlines()
        self.assertRegex(last, f"^error: .*{words}")
        self.assertNotIn("learning_rate", last)
        self.assertNotIn("Traceback", out.getvalue())
        self.assertEqual(status, wanted)

    @parameterized.parameters(*_CASES)
    def test_a_sentence_from_python(self, case):
        make, words, _ = _CASES[case]
        settings = dict(num_epochs=2.0, num_gpus=2, device="cpu", num_warmup_batches=0)
        with (
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaisesRegex((ValueError, RuntimeError), words),
        ):
            towers.fit(net(), make(), **settings)

    def test_the_last_checkpoint_is_named(self):
        folder = self.create_tempdir().full_path
        settings = dict(train_dir=folder, save_model_steps=1, num_epochs=1.0)
        with (
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaisesRegex(
                ValueError, rf"no row 33.*; the last checkpoint is {folder}/model.ckpt-"
            ),
        ):
            towers.fit(
                net(), td.from_source(Rows(raise_error)), device="cpu", **settings
            )

    def test_good_data_is_trained_on(self):
        settings = dict(num_epochs=1.0, device="cpu", num_warmup_batches=0)
        for examples in (
            td.from_arrays(X, Y, _at_33(_ONES, 0)),
            td.from_source(Rows(lambda i: (X[i], Y[i]))),
            _files(lambda x: (x, 2, x[0])),
            td.from_dataset(_dataset(X, Y, X[:, 0] // 0.5), num_examples=40),
        ):
            with contextlib.redirect_stdout(io.StringIO()):
                towers.fit(net(), examples, **settings)

    def test_predicting_without_a_checkpoint(self):
        folder = self.create_tempdir().full_path
        with (
            contextlib.redirect_stdout(io.StringIO()),
            self.assertRaisesRegex(ValueError, "checkpoint"),
        ):
            towers.predict(net(), td.from_arrays(X, Y), train_dir=folder, device="cpu")
