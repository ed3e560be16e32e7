"""TFDS data sets of any features are read by the names of a model's `Inputs`."""

import contextlib
import io

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds
from absl.testing import parameterized

from models import Inputs, Model, Recipe, Schedule
from tests import batch_reader
from tests.ratings_dataset import Films, rated_by_users
from towers import train
from towers.data import inputs, named_features
from towers.data.source import Request

_HERE = "tests.data.named_features_test"
_HEIGHTS = [4 + i % 3 for i in range(20)]
_WORDS = ["a dog", "two dogs at a lake"]


class Scenes(tfds.core.GeneratorBasedBuilder):
    """Images with masks, captions and boxes."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, 6, 3)),
            "mask": tfds.features.Image(shape=(None, 6, 1)),
            "caption": tfds.features.Text(),
            "sizes": tfds.features.Sequence(np.float32),
            "label": tfds.features.ClassLabel(num_classes=3),
        }
        return tfds.core.DatasetInfo(
            builder=self, features=tfds.features.FeaturesDict(features)
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        for i, height in enumerate(_HEIGHTS):
            pixels = np.full([height, 6, 1], i, np.uint8)
            yield (
                f"{i:02}",
                {
                    "image": np.repeat(10 * pixels, 3, 2),
                    "mask": pixels % 3,
                    "caption": _WORDS[i % 2],
                    "sizes": np.arange(i % 4, dtype=np.float32),
                    "label": i % 3,
                },
            )


def net():
    """A mask for each image, and a number of its caption."""

    def block(x, nn):
        text = nn.dense(tf.cast(x["caption"], nn.dtype) / 128, 3)
        return nn.conv(x["image"], 3, 3) + text[:, None, None]

    return Model(
        name="scenes",
        blocks=(("block", block),),
        inputs=Inputs(
            {
                "image": tf.TensorSpec([4, 6, 3]),
                "caption": tf.TensorSpec([8], tf.int32),
            },
            tf.TensorSpec([4, 6, 1], tf.int32, "mask"),
            num_classes=3,
        ),
        loss=lambda outputs, mask: tf.reduce_mean(
            tf.nn.sparse_softmax_cross_entropy_with_logits(mask[..., 0], outputs),
            [1, 2],
        ),
        metrics=lambda outputs, mask: {},
        recipe=Recipe(batch_size=4, schedule=Schedule((0.1,)), num_epochs=1),
    )


class NamedFeaturesTest(parameterized.TestCase, tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path

    def _source(self, name, features, labels=(), split="train", training=False):
        request = Request(
            shape=(),
            features=features,
            labels=labels,
            kind="examples",
            data_dir=self.folder,
        )
        return inputs.get(name, request, split=split, training=training)

    def test_features_are_made_to_fit(self):
        features = {
            "image": tf.TensorSpec([4, 6, 3]),
            "text": tf.TensorSpec([8], tf.int32, "caption"),
            "sizes": tf.TensorSpec([2]),
        }
        labels = (
            tf.TensorSpec([4, 6, 1], tf.int32, "mask"),
            tf.TensorSpec([], tf.int32, "label"),
        )
        source = self._source("scenes", features, labels)
        self.assertEqual(source.num_examples, 20)
        with tf.Graph().as_default(), batch_reader.session() as session:
            read = session.run(source.examples.read(tf.constant(7, tf.int64)))
        (here, (mask, label)) = read
        # The order of TFDS, which is not that of generation, says which example it is.
        number = round(here["image"][0, 0, 0] * 25.5)
        self.assertAllClose(here["image"], np.full([4, 6, 3], number / 25.5), 1e-6)
        self.assertAllEqual(mask, np.full([4, 6, 1], number % 3))
        self.assertEqual(label, number % 3)
        words = _WORDS[number % 2].encode()[:8].ljust(8, b"\0")
        self.assertEqual(bytes(here["text"].tolist()), words)
        sizes = np.arange(number % 4)[:2]
        self.assertAllEqual(here["sizes"], np.pad(sizes, [0, 2 - len(sizes)]))

    def test_texts_that_are_numbers(self):
        features = tf.TensorSpec([], tf.int32, "movie_id")
        labels = tf.TensorSpec([], tf.float32, "timestamp")
        source = self._source("films", features, labels)
        taken, times, _, _ = batch_reader.read(source, 20, layout="1x12")
        wanted = [(int(item), time) for _, item, time in rated_by_users()]
        pairs = zip(taken.tolist(), times.astype(int).tolist())
        self.assertCountEqual(pairs, wanted)
        self.assertEqual(Films.VERSION, "1.0.0")

    def test_parts_of_splits(self):
        features = tf.TensorSpec([], tf.int32, "label")
        counts = [
            self._source("scenes", features, split=split).num_examples
            for split in ("train[:25%]", "train[25%:]", "train[3:7]")
        ]
        self.assertEqual(counts, [5, 15, 4])
        parts = [
            batch_reader.read(
                self._source("scenes", features, split=split), 2, layout="1x2"
            )[0]
            for split in ("train[:4]", "train[2:6]")
        ]
        self.assertAllEqual(parts[0][2:], parts[1][:2])

    @parameterized.parameters(
        ({"photo": tf.TensorSpec([4, 6, 3])}, "label, and not 'photo'; name the"),
        ({"image": tf.TensorSpec([24])}, r"'image' is uint8 .*3\), the model reads fl"),
        (
            {"sizes": tf.TensorSpec([])},
            r"'sizes' is float32 \(None,\), the model reads",
        ),
        (tf.TensorSpec([4, 6, 3]), "and not 'features'; name the model's features"),
    )
    def test_what_does_not_fit_is_named(self, features, words):
        with self.assertRaisesRegex(ValueError, f"data_name=scenes: .*{words}"):
            self._source("scenes", features)

    def test_trains(self):
        for towers, batch_size in ((1, 8), (4, 2)):
            out = io.StringIO()
            folder = f"{self.folder}/{towers}"
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                status = train.main(
                    ["train", f"--model={_HERE}:net", "--data_name=scenes"]
                    + [f"--data_dir={self.folder}", f"--num_gpus={towers}"]
                    + [f"--batch_size={batch_size}", f"--train_dir={folder}"]
                    + ["--device=cpu", "--num_warmup_batches=0", "--noeval_at_end"]
                )
            self.assertEqual(status, 0, out.getvalue())
        alone, together = (
            tf.train.load_variable(f"{self.folder}/{towers}", "block/conv/kernel")
            for towers in (1, 4)
        )
        self.assertAllClose(alone, together, 1e-5, 1e-6)

    def test_a_text_that_is_no_number(self):
        with tf.Graph().as_default(), batch_reader.session() as session:
            spec = tf.TensorSpec([], tf.int32)
            number = named_features.fitted("id", tf.constant("x7"), spec)
            with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "x7"):
                session.run(number)
