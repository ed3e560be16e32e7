"""Training on data sets in files: modes, rounds, stages, resumed runs, evaluations."""

import contextlib
import dataclasses
import io

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import towers
from tests import batch_reader, file_sources, trainer
from tests.file_sources import LAYOUTS
from tests.image_folders import REQUEST, ImageFoldersTestCase
from towers.checkpoints import checkpoint
from towers.data import from_arrays, inputs
from towers.variable_update.modes import VARIABLE_UPDATES

_MODES = [name for name, mode in VARIABLE_UPDATES.items() if mode.exact]

# Each takes steps of twelve examples.
_WAYS = {
    **{mode: dict(num_gpus=4, batch_size=3, variable_update=mode) for mode in _MODES},
    "rounds": dict(num_gpus=2, batch_size=3, accumulate_steps=2),
    "stages": dict(num_gpus=4, batch_size=6, num_stages=2, num_micro_batches=3),
}


class TrainOnFilesTest(ImageFoldersTestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.of_one = {}  # layout -> the variables that one tower trains

    def _call(self, call, layout, data=None, **settings):
        """Calls `fit`, `evaluate` or `predict` on a data set."""
        model, named = file_sources.settings_of(layout, self.root)
        if model != "ncf":
            model = getattr(file_sources, model)()
        if data is None:
            data = named.pop("data_name")
            settings |= named
        with contextlib.redirect_stdout(io.StringIO()):
            return call(model, data, device="cpu", **settings)

    def _fit(self, layout, data=None, **settings):
        """The variables after a training of four steps, by name."""
        folder = settings.setdefault("train_dir", self.create_tempdir().full_path)
        settings = dict(num_batches=4, num_warmup_batches=0) | settings
        settings |= dict(optimizer="sgd", init_learning_rate=0.1)
        self._call(towers.fit, layout, data, **settings)
        reader = tf.train.load_checkpoint(checkpoint.latest(folder))
        return {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}

    def _of_one_tower(self, layout):
        if layout not in self.of_one:
            self.of_one[layout] = self._fit(layout, batch_size=12)
        return self.of_one[layout]

    @parameterized.parameters(
        *(("tfrecords", way) for way in _WAYS),
        *((layout, "rounds") for layout in LAYOUTS if layout != "tfrecords"),
        *((layout, "stages") for layout in LAYOUTS if layout != "tfrecords"),
    )
    def test_towers_take_the_steps_of_one(self, layout, way):
        trained = self._fit(layout, **_WAYS[way])
        wanted = self._of_one_tower(layout)
        self.assertEqual(wanted["position"], 48)
        self.assertLess(trainer.difference(wanted, trained), 1e-5)

    @parameterized.parameters(
        *(("tfrecords", mode) for mode in VARIABLE_UPDATES),
        ("tfds", "replicated"),
        ("tfds", "independent"),
    )
    def test_each_mode_trains_as_on_arrays(self, layout, mode):
        """On arrays of the same pixels, whose epochs have the same order."""
        _, named = file_sources.settings_of(layout, self.root)
        request = dataclasses.replace(REQUEST, data_dir=named["data_dir"])
        source = inputs.get(named["data_name"], request, split="train", training=False)
        images, labels, *_ = batch_reader.read(source, 2, layout="1x12")
        data = from_arrays(images, labels, num_classes=source.num_classes)
        # Towers that do not wait for each other take batches in any order.
        count = 1 if mode == "asynchronous" else 3
        how = dict(variable_update=mode, num_gpus=count, batch_size=4)
        trained = self._fit(layout, augment=False, **how)
        wanted = self._fit(layout, data, input_preprocessor="scale", **how)
        trainer.assert_same_bits(wanted, trained)

    @parameterized.parameters(*LAYOUTS)
    def test_a_run_goes_on_with_other_towers(self, layout):
        folder = self.create_tempdir().full_path
        for count, steps in ((3, 2), (2, 4)):
            resumed = self._fit(
                layout,
                num_batches=steps,
                num_gpus=count,
                batch_size=12 // count,
                train_dir=folder,
            )
        wanted = self._of_one_tower(layout)
        self.assertLess(trainer.difference(wanted, resumed), 1e-5)

    @parameterized.parameters(*LAYOUTS)
    def test_evaluations_and_predictions_of_towers_are_those_of_one(self, layout):
        folder = self.create_tempdir().full_path
        self._fit(layout, batch_size=12, train_dir=folder)
        means, rows = [], []
        for count in (1, 3):
            how = dict(train_dir=folder, num_gpus=count, batch_size=4)
            means.append(self._call(towers.evaluate, layout, **how))
            rows.append(self._call(towers.predict, layout, **how))
        np.testing.assert_allclose(rows[1], rows[0], 1e-5, 1e-6)
        self.assertEqual(means[0].keys(), means[1].keys())
        for name, value in means[0].items():
            np.testing.assert_allclose(means[1][name], value, 1e-5, err_msg=name)
