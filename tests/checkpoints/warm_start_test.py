"""A warm start reads what fits, and says what does not."""

import dataclasses
import os
import shutil
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, trainer
from towers.checkpoints import checkpoint, warm_start

v1 = tf.compat.v1

_MODES = ("parameter_server", "replicated", "distributed_replicated", "independent")


def _wider(name):
    """`digit_runs.small_model` with other logits, and a variable more."""

    def logits(x, nn):
        with v1.variable_scope("more"):
            x = nn.dense(x, 12)
        return nn.dense(x, nn.num_classes)

    model = digit_runs.small_model()
    blocks = (model.blocks[0], ("logits", logits))
    return dataclasses.replace(model, blocks=blocks)


def _of_images(name):
    """A model whose dense layer reads 6 x 6 x 256 numbers, as alexnet's first."""

    def block(x, nn):
        return nn.flatten(nn.conv(x, 256, 3))

    model = digit_runs.small_model()
    return dataclasses.replace(model, blocks=(("block", block), model.blocks[1]))


def _shaped(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


# The variables of `_of_images` as tf_cnn_benchmarks names them.
_THEIRS = {
    "v0/cg/conv0/conv2d/kernel": _shaped((3, 3, 1, 256), 0),
    "v0/cg/conv0/biases": _shaped((256,), 1),
    "v0/cg/affine0/weights": _shaped((9216, 10), 2),
    "v0/cg/affine0/biases": _shaped((10,), 3),
}


def _write_theirs(folder, data_format, write_meta_graph=True):
    """A checkpoint as a run of tf_cnn_benchmarks saves it, with a second replica."""
    others = {name.replace("v0", "v1"): 0 * value for name, value in _THEIRS.items()}
    with tf.Graph().as_default(), v1.Session() as session:
        held = {
            name: v1.get_variable(name, initializer=value)
            for name, value in {**others, **_THEIRS}.items()
        }
        if data_format == "NCHW":
            tf.transpose(v1.placeholder(tf.float32, [2, 6, 6, 1]), [0, 3, 1, 2])
        session.run(v1.global_variables_initializer())
        saver = v1.train.Saver(held)
        path = os.path.join(folder, "model.ckpt")
        return saver.save(session, path, 7, write_meta_graph=write_meta_graph)


class WarmStartTest(digit_runs.Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.source = tempfile.mkdtemp()  # of a run that all tests begin with
        cls.addClassCleanup(shutil.rmtree, cls.source)

    def setUp(self):
        super().setUp()
        if not checkpoint.latest(self.source):
            self.run_flags(num_batches=6, train_dir=self.source, num_warmup_batches=0)
        reader = tf.train.load_checkpoint(checkpoint.latest(self.source))
        names = reader.get_variable_to_shape_map()
        self.given = {name: reader.get_tensor(name) for name in names}

    def _begin(self, given, **flags):
        """The values that a run begins with: it ends after a step at rate 0."""
        flags = dict(num_batches=1, num_warmup_batches=0, num_gpus=2) | flags
        flags |= dict(init_learning_rate=0.0, weight_decay=0.0)
        lines = self.run_flags(init_checkpoint=given, train_dir=self.directory, **flags)
        return self.values(), [line for line in lines if "variables are in it" in line]

    @parameterized.parameters(
        *({"variable_update": mode} for mode in _MODES),
        dict(num_stages=2),
        dict(shard_classifier=2),
    )
    def test_variables_and_averages_begin_with_the_values(self, **flags):
        values, [line] = self._begin(self.source, **flags)
        path = checkpoint.latest(self.source)
        self.assertEqual(line, f"Starting from {path}: 7 of 7 variables are in it")
        for name, given in self.given.items():
            variable = name.removesuffix("/ExponentialMovingAverage")
            if name.endswith("ExponentialMovingAverage"):
                given = self.given[variable]
            if "kernel" in variable or "bias" in variable:
                if not name.endswith("Momentum"):
                    np.testing.assert_allclose(values[name], given, rtol=1e-6)
        self.assertEqual(values["global_step"], 1)  # counters are not read
        self.assertEqual(values["position"], 32 if "variable_update" in flags else 16)

    def test_a_checkpoint_of_the_run_is_continued(self):
        self.run_flags(num_batches=3, num_warmup_batches=0, train_dir=self.directory)
        before = self.values()
        values, said = self._begin(self.source, num_batches=4)
        self.assertEmpty(said)
        self.assertEqual(values["global_step"], 4)
        kernel = "logits/dense/kernel"
        np.testing.assert_array_equal(values[kernel], before[kernel])

    @parameterized.parameters(
        *({"data_format": "NCHW", "variable_update": mode} for mode in _MODES),
        dict(data_format="NCHW", num_stages=2),
        dict(data_format="NCHW", shard_classifier=2),
        dict(data_format="NHWC"),
        dict(data_format="NHWC", num_stages=2),
    )
    def test_begins_with_variables_of_tf_cnn_benchmarks(self, data_format, **flags):
        path = _write_theirs(self.create_tempdir().full_path, data_format)
        values, [line] = self._begin(
            os.path.dirname(path), get_model=_of_images, **flags
        )
        self.assertEqual(line, f"Starting from {path}: 4 of 4 variables are in it")
        kernel, bias, weights, biases = _THEIRS.values()
        np.testing.assert_array_equal(values["block/conv/kernel"], kernel)
        np.testing.assert_array_equal(values["block/conv/bias"], bias)
        np.testing.assert_array_equal(values["logits/dense/bias"], biases)
        activation = _shaped((2, 6, 6, 256), 4)
        order = (0, 3, 1, 2) if data_format == "NCHW" else (0, 1, 2, 3)
        logits = activation.transpose(order).reshape(2, -1) @ weights
        ours = activation.reshape(2, -1) @ values["logits/dense/kernel"]
        np.testing.assert_allclose(ours, logits, rtol=1e-3, atol=1e-3)

    def test_refuses_an_unknown_order_of_rows(self):
        folder = self.create_tempdir().full_path
        path = _write_theirs(folder, "NCHW", write_meta_graph=False)
        words = "and .*model.ckpt-7.meta is not there; put the .meta file"
        with self.assertRaisesRegex(ValueError, words):
            self._begin(path, get_model=_of_images)
        with open(f"{path}.meta", "wb"):
            pass
        with self.assertRaisesRegex(ValueError, "model.ckpt-7.meta is empty"):
            self._begin(path, get_model=_of_images)
        with open(f"{path}.meta", "wb") as file:
            file.write(b"damaged")
        with self.assertRaisesRegex(ValueError, "model.ckpt-7.meta cannot be read"):
            self._begin(path, get_model=_of_images)

    def test_refuses_another_network_of_tf_cnn_benchmarks(self):
        path = _write_theirs(self.create_tempdir().full_path, "NHWC")
        words = "of another network: .* only; choose the model that it is of"
        with self.assertRaisesRegex(ValueError, words):
            self._begin(path)

    def test_says_what_is_not_read(self):
        path = checkpoint.latest(self.source)
        _, [line] = self._begin(path, get_model=_wider)
        self.assertEqual(
            line,
            f"Starting from {path}: 6 of 9 variables are in it; not in it: "
            "logits/more/dense/kernel, logits/more/dense/bias; of another shape: "
            "logits/dense/kernel is [288, 10] in it and [12, 10] in this run",
        )

    def test_refuses_what_is_no_checkpoint(self):
        empty = self.create_tempdir().full_path
        damaged = os.path.join(self.create_tempdir(), "damaged")
        shutil.copytree(self.source, damaged)
        index = f"{checkpoint.latest(damaged)}.index"
        with open(index, "wb") as file:
            file.write(b"no index")
        other = os.path.join(self.create_tempdir(), "other")
        trainer.Trainer(towers=1).start().save(other)
        for given, words in (
            (empty, "there is no checkpoint in it$"),
            (f"{empty}/model.ckpt-3", "there is no such checkpoint; name its folder"),
            (index, "there is no such checkpoint; name its folder"),
            (damaged, r"model\.ckpt-6 cannot be read \("),
            (other, "no variable of the model is in .* with the same name and shape"),
        ):
            with (
                self.subTest(given),
                self.assertRaisesRegex(ValueError, words) as error,
            ):
                self._begin(given)
            self.assertStartsWith(str(error.exception), f"init_checkpoint={given}: ")
            self.assertFalse(os.path.exists(self.directory))

    def test_no_checkpoint_is_given(self):
        self.assertIsNone(warm_start.of(None, {}, {}))
