"""The driver of tf_cnn_benchmarks' input, with its modules played."""

import contextlib
import importlib
import io
import sys
import types
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks.lib import process

v1 = tf.compat.v1

_FLAGS = (
    "distortions",
    "resize_method",
    "distort_color_in_yiq",
    "fuse_decode_and_crop",
)


class _Preprocessor:
    """Has seven batches."""

    def __init__(self, batch_size, shapes, num_splits, **options):
        self.options = options
        assert (shapes[0][0], num_splits) == (batch_size, 1)

    def minibatch(self, dataset, subset, params):
        """One device's images and labels."""
        assert (dataset.folder, subset, params.device) == ("/d", "train", "cpu")

        rows = tf.data.Dataset.range(7)  # as many as are read
        iterator = v1.data.make_initializable_iterator(rows)
        v1.add_to_collection(v1.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return [iterator.get_next()], []


class _Dataset:
    def __init__(self, folder, make):
        self.folder, self.make = folder, make

    def get_input_preprocessor(self, name):
        """What makes the preprocessor of that name."""
        assert name == "default"
        return self.make


class TfCnnInputTest(parameterized.TestCase):
    @parameterized.parameters("training", "evaluation")
    def test_reads_the_batches_of_its_own_preprocessor(self, kind):
        preprocessors = []

        def make(*args, **options):
            preprocessors.append(_Preprocessor(*args, **options))
            return preprocessors[-1]

        def create(folder, name):
            assert name == "imagenet"
            return _Dataset(folder, make)

        def make_params(**given):
            flags = dict.fromkeys(_FLAGS, 1)
            return types.SimpleNamespace(**given, **flags, input_preprocessor="default")

        modules = {
            "benchmark_cnn": types.SimpleNamespace(make_params=make_params),
            "datasets": types.SimpleNamespace(create_dataset=create),
            "tensorflow.compat.v1": v1,
        }
        argv = ["tf_cnn_input.py", "/d", kind, "4", "2", "5"]
        with (
            mock.patch.dict(sys.modules, modules),
            mock.patch.object(sys, "argv", argv),
            mock.patch.object(v1, "disable_v2_behavior"),
            contextlib.redirect_stdout(io.StringIO()) as stdout,
            tf.Graph().as_default(),
        ):
            importlib.import_module("benchmarks.peers.tf_cnn_input").main()
        sys.modules.pop("benchmarks.peers.tf_cnn_input", None)
        self.assertEqual(preprocessors[0].options["train"], kind == "training")
        self.assertRegex(stdout.getvalue(), process.TOTAL)
