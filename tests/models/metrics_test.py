"""Metrics are those of scikit-learn, from sums over examples."""

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

from models import metrics

v1 = tf.compat.v1

# Six classes: 4 is predicted only, 5 does not occur.
_RANDOM = np.random.RandomState(0)
_LABELS = _RANDOM.randint(0, 4, 97)
_LOGITS = _RANDOM.standard_normal((97, 6)).astype(np.float32)
_LOGITS[np.arange(97), _LABELS] += 1
_LOGITS[:, 5] -= 10
_SCORES = _RANDOM.uniform(size=97).astype(np.float32)
_POSITIVE = _RANDOM.uniform(size=97) < _SCORES
_TARGET = (1000 + _RANDOM.standard_normal((97, 2))).astype(np.float32)
_OUTPUT = (_TARGET + 0.5 * _RANDOM.standard_normal((97, 2))).astype(np.float32)
_FIRST = (10 + _RANDOM.standard_normal((97, 3))).astype(np.float32)
_SECOND = (_FIRST @ _RANDOM.standard_normal((3, 3)) + 4).astype(np.float32)
_MANY = _RANDOM.randint(0, 2, (97, 3))

# Of scikit-learn 1.9.1 (`from sklearn import metrics as m`), with the arrays above and
# `guess = _LOGITS.argmax(1)`:
# m.confusion_matrix(_LABELS, guess)
_MATRIX = [
    [15, 2, 2, 2, 3],
    [3, 11, 3, 5, 1],
    [4, 2, 5, 4, 4],
    [5, 3, 4, 12, 7],
    [0, 0, 0, 0, 0],
]
# m.precision_score(_LABELS, guess, average="macro", zero_division=0), and so on
_MACRO = {
    "precision": 0.40910973084886126,
    "recall": 0.35070310769912155,
    "f1": 0.37445908148921064,
    "iou": 0.24952380952380954,  # m.jaccard_score
}
# m.top_k_accuracy_score(_LABELS, _LOGITS, k=2, labels=range(6))
_TOP_2 = 0.6701030927835051
# m.roc_auc_score(_POSITIVE, np.floor(_SCORES * 512)); 0.84527 of the scores themselves
_AUC = 0.845694799658994
# m.mean_absolute_error(_TARGET, _OUTPUT), m.mean_squared_error, m.r2_score of float64
_ERRORS = 0.4044746160507202, 0.27010902762413025, 0.71723042121556
_FIRST_R2 = 0.7897760913668392  # of the first target
# m.f1_score(_MANY, _LOGITS[:, :3] > 0, average="macro")
_F1_OF_MANY = 0.5120933611830738
# The formula with numpy's `cov` of float64 and SciPy 1.17.1's `sqrtm`.
_FRECHET = 866.3893086373577


def _values(function, *arrays, **options):
    """Of each example."""
    with tf.Graph().as_default(), v1.Session() as session:
        return session.run(function(*map(tf.constant, arrays), **options))


def _sums(function, *arrays, **options):
    return _values(function, *arrays, **options).sum(0, dtype=np.float64)


class ClassesTest(parameterized.TestCase):
    def test_confusion_matrix(self):
        matrix = _sums(metrics.confusion_matrix, _LOGITS, _LABELS)
        np.testing.assert_array_equal(matrix[:5, :5], _MATRIX)
        self.assertEqual(matrix.shape, (6, 6))
        self.assertEqual(matrix.sum(), 97)

    @parameterized.parameters(*_MACRO)
    def test_ratios_of_counts(self, name):
        counts = _sums(metrics.class_counts, _LOGITS, _LABELS)
        per_class = getattr(metrics, name)(counts)
        self.assertAlmostEqual(metrics.macro(per_class), _MACRO[name], places=14)
        self.assertEqual(per_class[4], 0)
        self.assertTrue(np.isnan(per_class[5]))
        matrix = _sums(metrics.confusion_matrix, _LOGITS, _LABELS)
        np.testing.assert_array_equal(metrics.counts_of(matrix), counts)

    def test_accuracy(self):
        self.assertAlmostEqual(
            _sums(metrics.accuracy, _LOGITS, _LABELS, k=2) / 97, _TOP_2, places=14
        )
        hits = _values(metrics.accuracy, _LOGITS, _LABELS)
        np.testing.assert_array_equal(hits, _LOGITS.argmax(1) == _LABELS)

    def test_pixels_without_a_class_are_not_counted(self):
        """A mask of 6 pixels in each of 16 examples, two of which are void."""
        logits, labels = _LOGITS[:96].reshape(16, 2, 3, 6), _LABELS[:96].copy()
        labels[[3, 50]] = 255, -1
        matrix = _sums(metrics.confusion_matrix, logits, labels.reshape(16, 2, 3))
        wanted = np.zeros((6, 6))
        for label, guess in zip(labels, _LOGITS[:96].argmax(1)):
            if 0 <= label < 6:
                wanted[label, guess] += 1
        np.testing.assert_array_equal(matrix, wanted)
        counts = _sums(metrics.class_counts, logits, labels.reshape(16, 2, 3))
        np.testing.assert_array_equal(counts, metrics.counts_of(wanted))
        rates = _values(metrics.accuracy, logits, labels.reshape(16, 2, 3))
        hits = (_LOGITS[:96].argmax(1) == labels).reshape(16, 6)
        np.testing.assert_allclose(rates, hits.mean(1), rtol=1e-6)

    def test_examples_of_many_classes(self):
        counts = _sums(metrics.label_counts, _LOGITS[:, :3], _MANY)
        macro = metrics.macro(metrics.f1(counts))
        self.assertAlmostEqual(macro, _F1_OF_MANY, places=14)


class ScoresTest(absltest.TestCase):
    def test_auc(self):
        histogram = _sums(metrics.score_histogram, _SCORES, _POSITIVE)
        self.assertAlmostEqual(metrics.auc(histogram), _AUC, places=14)

    def test_the_curve_has_this_area(self):
        false, true = metrics.roc(_sums(metrics.score_histogram, _SCORES, _POSITIVE))
        self.assertEqual([false[0], true[0], false[-1], true[-1]], [0, 0, 1, 1])
        area = np.sum(np.diff(false) * (true[1:] + true[:-1]) / 2)
        self.assertAlmostEqual(area, _AUC, places=14)
        # Where half of the bins count as positive.
        self.assertEqual(true[256], np.mean(_SCORES[_POSITIVE] >= 0.5))

    def test_a_score_of_1_is_in_the_last_bin(self):
        histogram = _sums(
            metrics.score_histogram, np.float32([0, 1, 0.5]), [0, 1, 1], bins=4
        )
        np.testing.assert_array_equal(histogram, [[1, 0, 0, 0], [0, 0, 1, 1]])


class NumbersTest(absltest.TestCase):
    def test_errors(self):
        for function, wanted in zip(
            (metrics.absolute_error, metrics.squared_error), _ERRORS
        ):
            mean = _sums(function, _OUTPUT, _TARGET) / 97
            self.assertAlmostEqual(mean, wanted, places=6)

    def test_r2_of_labels_far_from_0(self):
        sums = _sums(metrics.regression_sums, _OUTPUT, _TARGET)
        self.assertAlmostEqual(metrics.r2(sums), _ERRORS[2], places=8)
        first = _sums(metrics.regression_sums, _OUTPUT[:, 0], _TARGET[:, 0])
        self.assertAlmostEqual(metrics.r2(first), _FIRST_R2, places=8)

    def test_frechet_distance(self):
        sums = [_sums(metrics.moments, features) for features in (_FIRST, _SECOND)]
        self.assertAlmostEqual(metrics.frechet_distance(*sums), _FRECHET, places=8)
        self.assertAlmostEqual(metrics.frechet_distance(sums[0], sums[0]), 0, places=9)
