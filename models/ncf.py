"""Neural collaborative filtering: which user likes which item.

He, Liao, Zhang, Nie, Hu, Chua: Neural Collaborative Filtering, WWW 2017,
arXiv:1708.05031: NeuMF, in the size of MLPerf and of tf_cnn_benchmarks' `ncf`.
"""

import math

import tensorflow as tf

from models.inputs import Pairs
from models.layers import Layers
from models.model import Model, Recipe, Schedule

v1 = tf.compat.v1

_FACTORS = 64
_UNITS = (256, 128, 64)  # of the dense layers; the first reads as many

# Among how many of the best scored items the one that was held out is a hit.
_BEST = 10


def embeddings(x: tf.Tensor, nn: Layers) -> tuple[tf.Tensor, tf.Tensor]:
    """Two rows for the user and two for the item, of tables of their own.

    Args:
      x: int32 [..., 2], users and items.

    Returns:
      float [..., 64], the product of the factors, and [..., 256], what the dense layers
      read.
    """
    rows = {}

    for name, count, ids in zip(
        ("user", "item"), nn.num_classes, (x[..., 0], x[..., 1])
    ):
        for part, units in (("factors", _FACTORS), ("dense", _UNITS[0] // 2)):
            initializer = v1.random_normal_initializer(stddev=0.01)
            table = nn.variable(f"{name}_{part}", [count, units], initializer)
            rows[name, part] = nn.embedding(ids, table)
    product = rows["user", "factors"] * rows["item", "factors"]
    return product, tf.concat([rows["user", "dense"], rows["item", "dense"]], -1)


def dense(x: tuple[tf.Tensor, tf.Tensor], nn: Layers) -> tuple[tf.Tensor, tf.Tensor]:
    """Dense layers of rectified units beside the product."""
    product, y = x
    for units in _UNITS:
        initializer = v1.glorot_uniform_initializer()
        y = nn.dense(y, units, activation=tf.nn.relu, initializer=initializer)
    return product, y


def score(x: tuple[tf.Tensor, tf.Tensor], nn: Layers) -> tf.Tensor:
    """One number per pair, the logit of its being liked: float [...]."""
    initializer = v1.variance_scaling_initializer(mode="fan_in", distribution="uniform")
    y = nn.dense(tf.concat(x, -1), 1, initializer=initializer)
    return tf.squeeze(y, -1)


def cross_entropy(outputs: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
    """The cross-entropy of each example, averaged over its candidates.

    Args:
      outputs: logits, float [batch] or [batch, candidates].
      labels: int32 of the same shape: 1 for liked, 0 for not.

    Returns:
      float32 [batch].
    """
    losses = tf.nn.sigmoid_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.float32), logits=tf.cast(outputs, tf.float32)
    )
    return tf.reduce_mean(tf.reshape(losses, [losses.shape[0], -1]), axis=1)


def metrics(outputs: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
    """The accuracy of single pairs, or the rank of the liked one among candidates.

    Args:
      outputs: logits, float [batch] or [batch, candidates].
      labels: int32 of the same shape; of several candidates the first is the liked.

    Returns:
      `accuracy`, float32 [batch]; or `hit_rate_at_10` and `ndcg_at_10`.
    """
    logits = tf.cast(outputs, tf.float32)
    if logits.shape.rank == 1:
        right = tf.equal(logits > 0, labels > 0)
        return {"accuracy": tf.cast(right, tf.float32)}
    # A tie counts against the liked one, or scores that are all equal would be hits;
    # so does what is not a number.
    worse = tf.less(logits[:, 1:], logits[:, :1])
    better = tf.cast(tf.logical_not(worse), tf.float32)
    rank = tf.reduce_sum(better, axis=1)
    hit = tf.cast(rank < _BEST, tf.float32)
    return {
        f"hit_rate_at_{_BEST}": hit,
        f"ndcg_at_{_BEST}": hit * math.log(2) / tf.math.log(rank + 2),
    }


def ncf() -> Model:
    """NeuMF with the users and items of MovieLens 20M."""
    return Model(
        name="ncf",
        blocks=(("embeddings", embeddings), ("dense", dense), ("score", score)),
        inputs=Pairs(
            num_classes=(138_493, 26_744),
            # Of each user all ratings but the last, and four drawn pairs for each.
            num_examples=5 * (20_000_263 - 138_493),
        ),
        recipe=Recipe(
            batch_size=2048,
            schedule=Schedule((0.0005,)),
            num_epochs=10,
            optimizer="adam",
            published="hit rate at 10 of MovieLens 1M 0.730 (He et al., table 2, after "
            "pretraining of its parts)",
        ),
        loss=cross_entropy,
        metrics=metrics,
        num_parameters=31_832_577,
    )
