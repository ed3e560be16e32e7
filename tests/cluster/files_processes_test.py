"""Data sets in files on clusters of real processes: they train as one tower."""

import contextlib
import io
import pathlib

import tensorflow as tf
from absl.testing import parameterized

from tests import file_sources, in_process_cluster, trainer
from tests.image_folders import ImageFoldersTestCase
from towers import train
from towers.checkpoints import checkpoint


class FilesOnClusterTest(ImageFoldersTestCase):
    def _flags(self, layout, *, model=None, **changes):
        """The model, by default the layout's, the data, and four steps of training."""
        of_layout, settings = file_sources.settings_of(layout, self.root)
        model = model or of_layout
        model = model if model == "ncf" else f"{file_sources.__file__}:{model}"
        flags = [f"--{name}={value}" for name, value in (settings | changes).items()]
        flags += [f"--model={model}", "--num_batches=4", "--num_warmup_batches=0"]
        return [*flags, "--optimizer=sgd", "--init_learning_rate=0.1"]

    def _differ(self, flags, **how):
        """How much four towers of a cluster train other variables than one tower."""
        values = []
        for size in (3, 12):
            folder = self.create_tempdir().full_path
            here = [*flags, f"--batch_size={size}", f"--train_dir={folder}"]
            if size == 3:
                in_process_cluster.ended(*here, data_dir=str(self.root), **how)
            else:
                here.append("--device=cpu")
                with contextlib.redirect_stdout(io.StringIO()):
                    self.assertEqual(train.main(["train", *here]), 0)
            reader = tf.train.load_checkpoint(checkpoint.latest(folder))
            names = reader.get_variable_to_shape_map()
            values.append({name: reader.get_tensor(name) for name in names})
        return trainer.difference(*values)

    @parameterized.parameters(
        ("tfrecords", False),
        ("tfrecords", True),
        ("tfds", False),
        ("tfds", True),
        ("folders", False),
        ("cifar10", True),
        ("movielens/ml-1m", True),
    )
    def test_they_train_as_one_tower(self, layout, between):
        self.assertLess(self._differ(self._flags(layout), between=between), 1e-5)

    @parameterized.parameters(False, True)
    def test_a_state_is_carried_from_window_to_window(self, between):
        flags = self._flags("ptb", model="recurrent")
        self.assertLess(self._differ(flags, between=between), 1e-5)

    @parameterized.parameters(False, True)
    def test_damaged_examples_are_left_out_on_each_host(self, between):
        folder = self.folder("folders")
        for name in ("n01443537/00009.JPEG", "n01440764/00004.JPEG"):
            path = pathlib.Path(folder, "train", name)
            path.write_bytes(path.read_bytes()[:300])
        flags = self._flags("folders", data_name=folder, max_damaged_examples=2)
        flags += ["--num_batches=3"]  # ends within an epoch: the count is compared, too
        self.assertLess(self._differ(flags, between=between), 1e-5)
