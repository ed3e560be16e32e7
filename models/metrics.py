"""Metrics to choose from, and the numbers that are derived from their sums.

The functions above the line take tensors, and are for `Model.metrics`.  Those below it
take arrays, the sums over an evaluation, and are for `Model.derived`:

    from models import metrics

    Model(
        ...,
        metrics=lambda outputs, labels: {
            "accuracy": metrics.accuracy(outputs, labels),
            "counts": metrics.class_counts(outputs, labels),
        },
        derived=lambda values: {
            "macro_f1": metrics.macro(metrics.f1(values["counts"])),
        },
    )

Sums are exact for any number of towers and any batch size, so the derived numbers are
those that scikit-learn computes from all examples.  A wide metric takes memory for each
example of a batch; a smaller `--eval_batch_size` takes less.
"""

import numpy as np
import tensorflow as tf

from models.logits import Logits, argmax, in_top_k


def accuracy(outputs: tf.Tensor | Logits, labels: tf.Tensor, k: int = 1) -> tf.Tensor:
    """Whether the label is among the k best classes.

    Args:
      outputs: logits, float [batch, ..., classes], or in pieces.
      labels: int [batch, ...]; those that are no class are no hits.
      k: at least 1.

    Returns:
      float32 [batch]; of several labels per example the mean.
    """
    if not isinstance(outputs, Logits):
        outputs = tf.reshape(outputs, [-1, outputs.shape[-1]])
    hits = in_top_k(outputs, tf.reshape(labels, [-1]), k)
    return tf.reduce_mean(_rows(tf.cast(hits, tf.float32), labels.shape[0]), 1)


def confusion_matrix(outputs: tf.Tensor | Logits, labels: tf.Tensor) -> tf.Tensor:
    """How often a label was taken for which class.

    Args:
      outputs: logits, float [batch, ..., classes], or in pieces.
      labels: int [batch, ...]; those that are no class (the void of a mask) are not
        counted.

    Returns:
      float32 [batch, classes, classes]: rows are labels, columns what was predicted.
    """
    classes = outputs.shape[-1]
    return _table(labels, argmax(outputs), classes, classes)


def class_counts(outputs: tf.Tensor | Logits, labels: tf.Tensor) -> tf.Tensor:
    """The counts of each class that precision, recall, F1 and IoU are made of.

    Smaller than a confusion matrix where there are many classes.

    Args:
      outputs: logits, float [batch, ..., classes], or in pieces.
      labels: int [batch, ...]; those that are no class are not counted.

    Returns:
      float32 [batch, 3, classes]: labels that were predicted, predictions, labels.
    """
    classes = outputs.shape[-1]
    actual = tf.one_hot(_rows(labels, labels.shape[0]), classes)
    predicted = tf.one_hot(_rows(argmax(outputs), labels.shape[0]), classes)
    predicted *= tf.reduce_sum(actual, -1, keepdims=True)
    counts = [actual * predicted, predicted, actual]
    return tf.reduce_sum(tf.stack(counts, 1), 2)


def label_counts(
    outputs: tf.Tensor, labels: tf.Tensor, threshold: float = 0.0
) -> tf.Tensor:
    """As `class_counts`, of examples that have any number of classes each.

    Args:
      outputs: logits, float [batch, classes]; a class is predicted above the threshold.
      labels: [batch, classes], 1 or true for each class of the example, else 0.
      threshold: of the logits: 0 is a probability of one half.

    Returns:
      float32 [batch, 3, classes].
    """
    predicted = tf.cast(outputs > threshold, tf.float32)
    actual = tf.cast(labels, tf.float32)
    return tf.stack([actual * predicted, predicted, actual], 1)


def score_histogram(scores: tf.Tensor, labels: tf.Tensor, bins: int = 512) -> tf.Tensor:
    """How many negatives and positives have a score in which bin, for AUC and ROC.

    Args:
      scores: float [batch, ...] in [0, 1], as probabilities are.
      labels: [batch, ...], 1 or true for positives, else 0.
      bins: of equal width; scores of a bin count as equal.

    Returns:
      float32 [batch, 2, bins]: negatives, positives.
    """
    column = tf.cast(tf.cast(scores, tf.float32) * bins, tf.int32)
    return _table(tf.cast(labels, tf.int32), tf.minimum(column, bins - 1), 2, bins)


def absolute_error(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Absolute errors of numbers [batch, ...]: float32 [batch], means per example."""
    return tf.reduce_mean(_rows(tf.abs(_error(outputs, labels)), labels.shape[0]), 1)


def squared_error(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """Squared errors of numbers [batch, ...]: float32 [batch], means per example."""
    squares = tf.square(_error(outputs, labels))
    return tf.reduce_mean(_rows(squares, labels.shape[0]), 1)


def regression_sums(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """What R² is made of.

    Args:
      outputs: float [batch] or [batch, targets].
      labels: numbers of the same shape.

    Returns:
      float64 [batch, 4] or [batch, 4, targets]: 1, the label, its square, and the
      squared error.
    """
    label, output = (tf.cast(x, tf.float64) for x in (labels, outputs))
    parts = [tf.ones_like(label), label, tf.square(label), tf.square(output - label)]
    return tf.stack(parts, 1)


def moments(features: tf.Tensor) -> tf.Tensor:
    """What the mean and the covariance of features are made of.

    Args:
      features: float [batch, n].

    Returns:
      float64 [batch, n + 1, n + 1], the products of (1, features) with itself: 34 MB
      for each example of the 2048 features of Inception.
    """
    row = tf.pad(tf.cast(features, tf.float64), [[0, 0], [1, 0]], constant_values=1)
    return row[:, :, None] * row[:, None, :]


def _rows(x: tf.Tensor, batch_size: int) -> tf.Tensor:
    return tf.reshape(x, [batch_size, -1])


def _error(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    return tf.cast(outputs, tf.float32) - tf.cast(labels, tf.float32)


def _table(
    rows: tf.Tensor, columns: tf.Tensor, num_rows: int, num_columns: int
) -> tf.Tensor:
    """Counts of pairs: int [batch, ...] each to float32 [batch, rows, columns]."""
    return tf.matmul(
        tf.one_hot(_rows(rows, rows.shape[0]), num_rows),
        tf.one_hot(_rows(columns, rows.shape[0]), num_columns),
        transpose_a=True,
    )


# ------------------------------------------------------------------------------------


def counts_of(matrix: np.ndarray) -> np.ndarray:
    """The sums of `class_counts`, [3, classes], from a confusion matrix."""
    return np.stack([np.diag(matrix), matrix.sum(0), matrix.sum(1)])


def precision(counts: np.ndarray) -> np.ndarray:
    """Which share of the predictions of each class was right.

    Args:
      counts: the sums of `class_counts` or `label_counts`, [3, classes].

    Returns:
      float64 [classes]; 0 for a class that was never predicted, NaN for one that did
      not occur at all, neither among labels nor among predictions.
    """
    return _ratio(counts, counts[0], counts[1])


def recall(counts: np.ndarray) -> np.ndarray:
    """Which share of the labels of each class was predicted; as `precision`."""
    return _ratio(counts, counts[0], counts[2])


def f1(counts: np.ndarray) -> np.ndarray:
    """The harmonic mean of precision and recall of each class; as `precision`."""
    return _ratio(counts, 2 * counts[0], counts[1] + counts[2])


def iou(counts: np.ndarray) -> np.ndarray:
    """Intersection over union (Jaccard index) of each class; as `precision`."""
    return _ratio(counts, counts[0], counts[1] + counts[2] - counts[0])


def _ratio(
    counts: np.ndarray, numerator: np.ndarray, denominator: np.ndarray
) -> np.ndarray:
    ratio = numerator / np.where(denominator, denominator, 1)
    return np.where(counts[1] + counts[2], ratio, np.nan)


def macro(per_class: np.ndarray) -> float:
    """The mean over the classes that occur: macro F1, mean IoU (mIoU)."""
    return float(np.nanmean(per_class))


def r2(sums: np.ndarray) -> float:
    """The coefficient of determination, of several targets the mean.

    Args:
      sums: of `regression_sums`.
    """
    count, label, square, error = sums
    return float(np.mean(1 - error / (square - label**2 / count)))


def roc(histogram: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The ROC curve: rates of false and of true positives, from (0, 0) to (1, 1).

    Args:
      histogram: the sums of `score_histogram`, [2, bins].

    Returns:
      float64 [bins + 1] each, one point for each bin's lower edge.
    """
    above = np.cumsum(histogram[:, ::-1], axis=1)
    false, true = np.pad(above / above[:, -1:], [(0, 0), (1, 0)])
    return false, true


def auc(histogram: np.ndarray) -> float:
    """The area under the ROC curve: how often a positive has the larger score.

    Args:
      histogram: the sums of `score_histogram`, [2, bins].
    """
    negative, positive = histogram
    below = np.cumsum(negative) - negative
    wins = np.sum(positive * (below + negative / 2))
    return float(wins / (negative.sum() * positive.sum()))


def frechet_distance(first: np.ndarray, second: np.ndarray) -> float:
    """The Fréchet distance of two sets of features, as normal distributions.

    |m1 - m2|² + tr(C1 + C2 - 2 (C1 C2)^(1/2)): Heusel et al., "GANs Trained by a Two
    Time-Scale Update Rule", 2017, equation 6; of Inception's features it is the FID.

    Args:
      first, second: the sums of `moments`, [n + 1, n + 1], of two examples or more.
    """
    (m1, c1), (m2, c2) = (_mean_and_covariance(sums) for sums in (first, second))
    # The trace of (C1 C2)^(1/2) is that of (R C2 R)^(1/2), with R the root of C1.
    values, vectors = np.linalg.eigh(c1)
    root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
    squares = np.linalg.eigvalsh(root @ c2 @ root)
    common = np.sum(np.sqrt(np.maximum(squares, 0)))
    return float(np.sum((m1 - m2) ** 2) + np.trace(c1 + c2) - 2 * common)


def _mean_and_covariance(sums: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count = sums[0, 0]
    mean = sums[0, 1:] / count
    return mean, (sums[1:, 1:] - count * np.outer(mean, mean)) / (count - 1)
