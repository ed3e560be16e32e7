"""Arrays and datasets as records, and the errors about damaged ones."""

import numpy as np
import tensorflow as tf

from tests.batch_reader import read_records
from towers.data import records

v1 = tf.compat.v1


class OwnDataTest(tf.test.TestCase):
    def test_arrays(self):
        images = np.arange(24, dtype=np.uint8).reshape(3, 4, 2, 1)
        examples = records.from_arrays(images, np.array([2, 0, 1]), num_classes=3)
        self.assertEqual(examples.shape, (4, 2, 1))
        self.assertEqual(examples.num_bytes, 24)
        pairs = read_records(examples)
        self.assertAllEqual([image for image, _ in pairs], images)
        self.assertAllEqual([label for _, label in pairs], [2, 0, 1])

    def test_arrays_that_do_not_fit(self):
        images, labels = np.zeros((3, 4, 4, 1)), np.array([0, 1, 2])
        for bad, sentence in (
            ((images[0], labels), "must be .examples, height"),
            ((images, labels[:2]), r"not \[3, 4, 4, 1\] and \[2\]"),
            ((images[:0], labels[:0]), r"not \[0,"),
            ((images[:, :0], labels), r"not \[3, 0, 4, 1\] and"),
            (
                (images + [[[[0]]], [[[np.nan]]], [[[0]]]], labels),
                r"and images\[1\] is",
            ),
            (
                (images - [[[[0]]], [[[0]]], [[[np.inf]]]], labels),
                r"and images\[2\] is",
            ),
            ((images, labels + 8), r"in \[0, 10\), not in \[8, 10\]"),
            ((images, labels - 1), r"not in \[-1, 1\]"),
            ((images, labels * 1.0), "integer scalars, not float64"),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                records.from_arrays(*bad, num_classes=10)

    def test_datasets_that_do_not_fit(self):
        zeros = tf.zeros
        for make, sentence in (
            (lambda: tf.data.Dataset.range(3), "pairs is needed"),
            (lambda: tf.data.Dataset.from_tensors((zeros([4, 4]), 1)), r"not \(4, 4\)"),
            (
                lambda: tf.data.Dataset.from_tensors((zeros([4, 4, 1]), [1])),
                r"scalars, not int32 \(1,\)",
            ),
        ):
            with self.assertRaisesRegex(ValueError, sentence):
                records.from_dataset(make, num_examples=3, num_classes=2)

    def test_a_label_out_of_range_is_an_error_of_reading(self):
        for label in (-1, 2):
            examples = records.from_dataset(
                lambda label=label: tf.data.Dataset.from_tensors(
                    (tf.zeros([4, 4, 1]), label)
                ),
                num_examples=1,
                num_classes=2,
            )
            with self.assertRaises(tf.errors.InvalidArgumentError) as raised:
                read_records(examples)
            self.assertIn(
                f"label {label} is not in [0, 2)",
                records.explain(raised.exception, examples=[examples]),
            )


class PermutationTest(tf.test.TestCase):
    def test_is_one_and_depends_on_the_seed(self):
        with tf.Graph().as_default(), v1.Session() as session:
            seeds = [[1, 0], [1, 1], [2, 0], [1, 0]]
            orders = session.run(
                [records.permutation(50, tf.constant(seed, tf.int64)) for seed in seeds]
            )
        for order in orders:
            self.assertAllEqual(np.sort(order), np.arange(50))
        self.assertAllEqual(orders[0], orders[3])
        self.assertLen({tuple(order) for order in orders}, 3)


class ExplainTest(tf.test.TestCase):
    def _records(self, *paths):
        images = np.zeros([1, 2, 2, 1])
        examples = records.from_arrays(images, [0], num_classes=1)
        return [examples._replace(path=path) for path in paths]

    def test_names_the_damage_and_the_place(self):
        for words in (
            "truncated record at 12' failed with EOF",
            "corrupted record at 0",
            "Read less bytes than requested",
            'input file "/a b.txt" has body length 9 bytes, which is not an exact '
            "multiple of the record length",
            "/data/x.tfrecord-00000-of-00001; No such file or directory",
            "expected to contain 9 elements but contained only 7 elements.",
        ):
            message = f"Graph execution error:\n{words}\n[[{{node IteratorGetNext}}]]"
            error = tf.errors.DataLossError(None, None, message)
            examples = self._records("/data/a", "", "/data/a")
            sentence = records.explain(error, examples=examples)
            self.assertRegex(
                sentence, r"damaged \(.*\): put /data/a back as it was, or "
            )
            self.assertIn(words[:20], sentence)

    def test_leaves_other_errors_alone(self):
        for message in (
            "truncated record at 12 [[{{node save/RestoreV2}}]]",
            "something else [[{{node IteratorGetNext}}]]",
        ):
            error = tf.errors.DataLossError(None, None, message)
            examples = self._records("/data/a")
            self.assertIsNone(records.explain(error, examples=examples))

    def test_looks_for_what_tensorflow_does_not_say(self):
        (whole, *_), (damaged, *_) = self._records("/whole"), self._records("/damaged")
        whole = whole._replace(locate=lambda most: "")
        damaged = damaged._replace(locate=lambda most: "record 7 of x: empty")
        message = "what is new [[{{node decode/Some}}]] [[IteratorGetNext]]"
        error = tf.errors.InvalidArgumentError(None, None, message)
        sentence = records.explain(error, examples=[whole, damaged])
        self.assertStartsWith(
            sentence, "the data set is damaged (record 7 of x: empty): put /damaged ba"
        )
        self.assertIsNone(records.explain(error, examples=[whole]))

    def test_does_not_look_for_the_faults_of_others(self):
        (examples,) = self._records("/data/a")
        examples = examples._replace(locate=lambda most: self.fail("looked"))
        for kind, message in (
            (tf.errors.InvalidArgumentError, "[[{{node tower_0/a/MatMul}}]] [[%s]]"),
            (tf.errors.UnavailableError, "connection lost [[{{node input/%s}}]]"),
        ):
            error = kind(None, None, message % "IteratorGetNext")
            self.assertIsNone(records.explain(error, examples=[examples]))
