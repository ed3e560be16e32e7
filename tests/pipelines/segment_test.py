"""Segments: forward and backward pieces, cut apart, are the model's chain."""

import itertools

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.compute import tower
from towers.pipelines import segment

v1 = tf.compat.v1


def _conv(x, nn):
    return nn.batch_norm(nn.conv(x, 4, 3, activation=tf.nn.relu))


def _scaled(x, nn):
    """Reads a variable through operations that do not depend on the batch."""
    kernel = tf.nn.l2_normalize(nn.variable("kernel", [64, 8]), 0)
    return tf.nn.tanh(nn.dropout(nn.flatten(x), 0.5) @ kernel)


def _logits(x, nn):
    return nn.dense(x, nn.num_classes)


_BLOCKS = (("conv", _conv), ("scaled", _scaled), ("logits", _logits))
_BATCH = segment.MicroBatchSpec(
    tf.TensorSpec([2, 4, 4, 2]), tf.TensorSpec([2], tf.int32)
)


def _reader(shape=(), dtype=tf.float32, reuse=v1.AUTO_REUSE, **options):
    """A block that multiplies by a variable of no block."""

    def block(x, nn):
        getter = v1.get_variable_scope().custom_getter
        options.update(shape=shape, dtype=dtype, reuse=reuse)
        return x * tf.cast(getter(None, "tied", **options), x.dtype)

    return block


def _trace(*groups, blocks=_BLOCKS, variables_made=None, **options):
    model = trainer.model_of(*blocks, name="test", shape=(4, 4, 2), num_classes=3)
    task = tower.TowerSpec(
        model=model, num_classes=3, training=options.pop("training", True)
    )

    def create(name, shape, initializer, *, trainable, segment):
        del initializer
        if variables_made is not None:
            variables_made.append((name, tuple(shape), trainable, segment))

    groups = groups or [[block] for block in blocks]
    return segment.trace(task, groups, _BATCH, create=create, **options)


def _types(piece):
    return [op.type for op in piece.operations]


def _draws(piece):
    return [name for name in _types(piece) if name.startswith("StatelessRandom")]


class CutTest(parameterized.TestCase):
    def test_pieces_meet_at_their_values(self):
        segments = _trace()
        for piece, then in itertools.pairwise(segments):
            n = then.number
            self.assertIn(f"x{n}/0", piece.forward.outputs)
            self.assertIn(f"x{n}/0", then.forward.inputs)
            self.assertIn(f"dx{n}/0", then.backward.outputs)
            self.assertIn(f"dx{n}/0", piece.backward.inputs)
        self.assertIn("features", segments[0].forward.inputs)
        self.assertNotIn("dx0/0", segments[0].backward.outputs)
        shares = {n for n in segments[-1].forward.outputs if n.startswith("share/")}
        self.assertEqual(
            shares, {"share/loss", "share/top_1_accuracy", "share/top_5_accuracy"}
        )

    def test_the_backward_pieces_do_not_compute_activations_again(self):
        conv, scaled, logits = _trace()
        for piece in (conv, scaled, logits):
            saved = {n for n in piece.forward.outputs if n.startswith("saved")}
            self.assertTrue(saved)
            used = {n for n in piece.backward.inputs if n.startswith("saved")}
            self.assertEqual(used, saved)
        self.assertNotIn("Conv2D", _types(conv.backward))
        self.assertNotIn("FusedBatchNormV3", _types(conv.backward))
        self.assertFalse(_draws(scaled.backward))
        self.assertNotIn("Tanh", _types(scaled.backward))

    def test_what_does_not_depend_on_the_batch_is_not_kept_per_micro_batch(self):
        _, scaled, _ = _trace()
        self.assertIn("Rsqrt", _types(scaled.forward))
        self.assertIn("Rsqrt", _types(scaled.backward))
        shapes = [tuple(t.shape) for t in scaled.forward.outputs.values()]
        self.assertNotIn((64, 8), shapes)

    def test_recomputing_pieces_keep_nothing_and_draw_the_same(self):
        segments = _trace(recomputed=range(3))
        for piece in segments:
            self.assertEqual(
                [n for n in piece.forward.outputs if n.startswith("saved")], []
            )
        conv, scaled, _ = segments
        self.assertIn("Conv2D", _types(conv.backward))
        self.assertTrue(_draws(scaled.backward))
        self.assertIn("first", scaled.backward.inputs)
        # Statistics come from the forward pass only.
        outputs = [*conv.forward.outputs, *conv.backward.outputs]
        self.assertEqual(sum(n.startswith("statistic0/") for n in outputs), 2)

    def test_evaluation_has_no_backward_pieces(self):
        for piece in _trace(training=False):
            self.assertIsNone(piece.backward)
            self.assertEqual(piece.statistics, ())

    def test_work_and_parameters_do_not_depend_on_the_cut(self):
        apart = _trace()
        [whole] = _trace(_BLOCKS)
        again = _trace(recomputed=range(3))
        self.assertEqual(sum(s.flops for s in apart), whole.flops)
        self.assertEqual(sum(s.flops for s in again), whole.flops)
        names = [name for piece in apart for name in piece.trainable]
        self.assertEqual(tuple(names), whole.trainable)
        self.assertEqual(whole.blocks, ("conv", "scaled", "logits"))

    def test_variables_are_made_for_the_segment_that_asks(self):
        variables_made = []
        _trace(variables_made=variables_made)
        self.assertEqual(variables_made[0], ("conv/conv/kernel", (3, 3, 2, 4), True, 0))
        self.assertEqual(variables_made[-1], ("logits/dense/bias", (3,), True, 2))
        self.assertIn(("conv/batch_norm/moving_mean", (4,), False, 0), variables_made)


class ChainTest(parameterized.TestCase):
    def test_a_whole_number_beside_the_activations_has_no_gradient(self):
        def beside(x, nn):
            return x, tf.cast(x[:, 0, 0, 0] > 0, tf.int32)

        def chosen(xs, nn):
            x, which = xs
            return nn.dense(nn.flatten(x), 3) + tf.one_hot(which, 3)

        first, second = _trace(blocks=(("beside", beside), ("chosen", chosen)))
        self.assertIn("x1/1", second.forward.inputs)
        self.assertNotIn("dx1/1", second.backward.outputs)
        # No earlier block has variables, so no gradient goes back.
        self.assertNotIn("dx1/1", first.forward.inputs)

    def test_complex_numbers_have_gradients(self):
        def waves(x, nn):
            return tf.signal.rfft(nn.dense(nn.flatten(x), 8))

        def real(x, nn):
            return tf.abs(x)

        blocks = (("waves", waves), ("real", real), ("logits", _logits))
        self.assertIn(
            "grad0/waves/dense/kernel/0", _trace(blocks=blocks)[0].backward.outputs
        )

    def test_a_block_that_hands_on_what_it_got(self):
        def same(x, nn):
            return x

        blocks = (("conv", _conv), ("same", same), ("scaled", _scaled))
        segments = _trace(blocks=(*blocks, ("logits", _logits)))
        with tf.Graph().as_default():
            x = tf.ones([2, 4, 4, 4])
            outputs = segments[1].forward.legs[0]({"x1/0": x})
        self.assertIs(outputs["x2/0"], x)

    @parameterized.parameters(
        ({"dtype": tf.bfloat16}, "'tied' is read as bfloat16 and as float32"),
        ({"shape": [2]}, r"'tied' is \(\) and is to be shared as \(2,\)"),
        ({"reuse": False}, "'tied' is there already"),
    )
    def test_blocks_share_a_variable_as_in_one_piece(self, other, wrong):
        blocks = (
            ("a", _reader()),
            ("b", _reader(**other)),
            ("scaled", lambda x, nn: nn.dense(nn.flatten(x), 3)),
        )
        for groups in ((blocks,), ()):
            with self.assertRaisesRegex(ValueError, f"^block 'b' .*: .*{wrong}"):
                _trace(*groups, blocks=blocks)

    @parameterized.parameters(True, False)
    def test_the_first_block_says_whether_a_variable_is_trained(self, trained):
        blocks = (
            ("a", _reader(trainable=trained)),
            ("b", _reader(shape=None, trainable=not trained)),
            ("scaled", lambda x, nn: nn.dense(nn.flatten(x), 3)),
        )
        variables_made = []
        first, second, _ = _trace(blocks=blocks, variables_made=variables_made)
        self.assertEqual(variables_made[0], ("tied", (), trained, 0))
        self.assertNotEqual(variables_made[1][0], "tied")
        self.assertEqual([first.trainable, second.trainable], [("tied",) * trained] * 2)

    def test_a_block_before_the_last_may_be_narrower_than_the_classes(self):
        def narrow(x, nn):
            return nn.dense(nn.flatten(x), 2)

        segments = _trace(blocks=(("narrow", narrow), ("logits", _logits)))
        self.assertLen(segments, 2)

    def test_stateful_draws_are_refused(self):
        def noisy(x, nn):
            return nn.dense(nn.flatten(x + tf.random.normal(x.shape)), 3)

        with self.assertRaisesRegex(ValueError, "stateful"):
            _trace(blocks=(("noisy", noisy),))

    def test_a_collected_loss_is_refused_but_where_it_is_handed_on(self):
        def penalised(x, nn):
            return x, v1.losses.absolute_difference(x, 0.0 * x, reduction="none")

        def left(x, nn):
            return penalised(x, nn)[0]

        last = ("logits", lambda x, nn: _logits(nn.flatten(tf.nest.flatten(x)[0]), nn))
        self.assertLen(_trace(blocks=(("first", penalised), last)), 2)
        with self.assertRaisesRegex(ValueError, "is in the collection 'losses'"):
            _trace(blocks=(("first", left), last))
