"""Chunks: a pass is one call; gradients add up over micro-batches and uses."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.compute import tower
from towers.pipelines import calls, chunk, segment

v1 = tf.compat.v1


def _shared(name, shape):
    scope = v1.VariableScope(
        reuse=v1.AUTO_REUSE, custom_getter=v1.get_variable_scope().custom_getter
    )
    with v1.variable_scope(scope, auxiliary_name_scope=False):
        return v1.get_variable(name, shape)


def _hidden(x, nn):
    return tf.tanh(nn.flatten(x) @ _shared("square", [8, 8]))


def _gather(x, nn):
    rows = tf.cast(x[:, 0] > 0, tf.int32)
    return x + tf.gather(_shared("table", [2, 8]), rows)


def _logits(x, nn):
    return nn.dense(x, 3)


_BLOCKS = (("a", _hidden), ("b", _hidden), ("gather", _gather), ("logits", _logits))
_SIZE = 2


def _chunk(*, apart=True, recomputed=False, micro_batches=2):
    model = trainer.model_of(*_BLOCKS, name="test", shape=(2, 2, 2), num_classes=3)
    segments = segment.trace(
        tower.TowerSpec(model=model, num_classes=3),
        [[block] for block in _BLOCKS] if apart else [_BLOCKS],
        segment.MicroBatchSpec(
            tf.TensorSpec([_SIZE, 2, 2, 2]), tf.TensorSpec([_SIZE], tf.int32)
        ),
        create=lambda *args, **options: None,
        recomputed=range(len(_BLOCKS)) if recomputed else (),
    )
    return chunk.make(0, segments, micro_batches)


def _values(seed=0):
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return tf.constant(rng.normal(size=shape).astype("f4"))

    return {
        "features": normal(_SIZE, 2, 2, 2),
        "labels": tf.constant(rng.integers(0, 3, _SIZE), tf.int32),
        "weights": tf.ones([_SIZE]),
        "total_weight": tf.constant(4.0),
        "first": tf.constant(0, tf.int64),
        "read/square": normal(8, 8),
        "read/table": normal(2, 8),
        "read/logits/dense/kernel": normal(8, 3),
        "read/logits/dense/bias": normal(3),
    }


def _run(chunk_, passes):
    """The values after these passes, each (function, values to add)."""
    values, chunk_ = _values(), calls.Calls()
    for i, (function, added) in enumerate(passes):
        values |= added(values)
        values |= chunk_.add(function, values, name=f"pass_{i}", device="")
    chunk_.place()
    ends = {k: v.tensor() for k, v in values.items() if k[:2] in ("su", "sp")}
    with v1.Session() as session:
        return session.run(ends)


class ChunkTest(parameterized.TestCase):
    def _gradients(self, **options):
        with tf.Graph().as_default() as graph:
            chunk_ = _chunk(**options)
            nothing = lambda values: {}  # noqa: E731
            actual = _run(
                chunk_, [(*chunk_.forward, nothing), (*chunk_.first, nothing)]
            )
            found_calls = [op for op in graph.get_operations() if "Call" in op.type]
        return chunk_, actual, found_calls

    def test_a_pass_is_one_call(self):
        _, _, found_calls = self._gradients()
        self.assertLen(found_calls, 2)

    def test_segments_are_one_chain_however_they_are_cut(self):
        _, whole, _ = self._gradients(apart=False)
        for recomputed in (False, True):
            chunk_, gradients, _ = self._gradients(recomputed=recomputed)
            self.assertEqual(chunk_.blocks, ("a", "b", "gather", "logits"))
            self.assertEqual(set(gradients), set(whole))
            for name, value in whole.items():
                arrays.assert_close(gradients[name], value, rtol=1e-5, atol=1e-6)

    def test_a_gather_alone_stays_sparse_and_two_uses_add_up(self):
        chunk_, gradients, _ = self._gradients()
        self.assertEqual(chunk_.sparse, ("table",))
        self.assertIn("square", chunk_.dense)
        self.assertEqual(gradients["sparse0/table/0"].shape, (_SIZE, 8))
        self.assertEqual(gradients["sparse0/table/1"].shape, (_SIZE,))

    def test_later_micro_batches_add_to_the_sums(self):
        with tf.Graph().as_default():
            chunk_ = _chunk()
            nothing = lambda values: {}  # noqa: E731
            once = _run(chunk_, [(*chunk_.forward, nothing), (*chunk_.first, nothing)])
            twice = _run(
                chunk_,
                [
                    (*chunk_.forward, nothing),
                    (*chunk_.first, nothing),
                    (*chunk_.later, nothing),
                ],
            )
        for name, value in once.items():
            if name.startswith("sum"):
                arrays.assert_close(twice[name], 2 * value, rtol=1e-6)

    def test_one_micro_batch_needs_no_sum(self):
        with tf.Graph().as_default():
            self.assertEqual(_chunk(micro_batches=1).later, ())

    def test_recomputing_waits_for_the_gradient_from_above(self):
        with tf.Graph().as_default():
            chunk_ = _chunk(recomputed=True)
        body = chunk_.first[0].concrete.graph
        held = [op for op in body.get_operations() if op.control_inputs]
        # One block after another: all but the last wait for a gradient.
        self.assertLen({op.name for op in held if op.type == "Identity"}, 3)
