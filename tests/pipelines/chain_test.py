"""A model that is no chain of blocks is refused when it is cut into stages."""

import dataclasses

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers.compute import tower
from towers.pipelines import segment

_WAYS = {
    "added": lambda x, seen: x + seen,
    "handed on": lambda x, seen: seen,
    "waited for": lambda x, seen: _after(seen, x),
    "captured": lambda x, seen: tf.function(lambda y: y + seen)(x),
}


def _after(first, then):
    with tf.control_dependencies([first]):
        return tf.identity(then)


def _model(way: str = "added") -> Model:
    """Its last block reads what the first made, behind the chain's back."""
    seen = []

    def first(x, nn):
        seen[:] = [nn.dense(nn.flatten(x), 5)]
        return seen[0]

    def middle(x, nn):
        return nn.dense(x, 5)

    def last(x, nn):
        return _WAYS[way](x, seen[0])

    return trainer.model_of(first, middle, last, name="skips", shape=(2, 2, 1))


class ChainTest(tf.test.TestCase, parameterized.TestCase):
    def _trace(self, model, ends):
        blocks = model.blocks
        return segment.trace(
            tower.TowerSpec(model=model, num_classes=5),
            [blocks[a:b] for a, b in zip((0, *ends), ends)],
            segment.MicroBatchSpec(
                tf.TensorSpec([4, 2, 2, 1]), tf.TensorSpec([4], tf.int32)
            ),
            create=lambda *args, **options: None,
        )

    @parameterized.product(way=list(_WAYS), ends=((1, 3), (2, 3), (1, 2, 3)))
    def test_a_tensor_behind_the_chain(self, way, ends):
        with self.assertRaisesRegex(
            ValueError, "^block 'last' .*: it reads a tensor .* cannot be cut"
        ):
            self._trace(_model(way), ends)

    @parameterized.parameters(*_WAYS)
    def test_is_no_harm_within_a_segment(self, way):
        self.assertLen(self._trace(_model(way), (3,)), 1)

    def test_a_loss_that_looks_behind_the_last_block(self):
        kept = []

        def middle(x, nn):
            kept[:] = [tf.reduce_mean(nn.flatten(x), 1)]
            return x

        plain = _model()
        blocks = (("middle", middle), plain.blocks[0])
        for loss in (lambda _, labels: kept[0], lambda _, labels: kept[0] + 1.0):
            model = dataclasses.replace(plain, blocks=blocks, loss=loss)
            self.assertLen(self._trace(model, (2,)), 1)
            with self.assertRaisesRegex(
                ValueError, "^the loss or a metric of model 'skips': it reads a tensor"
            ):
                self._trace(model, (1, 2))

    def test_a_loss_of_what_blocks_collected(self):
        def middle(x, nn):
            tf.compat.v1.losses.add_loss(tf.reduce_mean(nn.flatten(x), 1))
            return x

        def loss(outputs, labels):
            return tf.add_n(tf.compat.v1.losses.get_losses())

        plain = _model()
        blocks = (("middle", middle), ("between", lambda x, nn: x), plain.blocks[0])
        model = dataclasses.replace(plain, blocks=blocks, loss=loss)
        self.assertLen(self._trace(model, (3,)), 1)
        for ends in ((1, 3), (1, 2, 3)):
            with self.assertRaisesRegex(
                ValueError, "^the loss or a metric of model 'skips': it reads a tensor"
            ):
                self._trace(model, ends)

    def test_what_no_block_can_read_is_told_as_of_a_whole_model(self):
        def ragged(x, nn):
            return tf.RaggedTensor.from_tensor(nn.flatten(x))

        plain = _model()
        model = dataclasses.replace(plain, blocks=(("ragged", ragged), plain.blocks[0]))
        with self.assertRaisesRegex(
            ValueError, "^block 'ragged' returned RaggedTensor"
        ):
            self._trace(model, (1, 2))

    def test_other_errors_pass(self):
        def wrong(x, nn):
            raise ValueError("as it was")

        model = _model()
        blocks = (*model.blocks[:2], ("last", wrong))
        model = Model("wrong", blocks, model.inputs, model.recipe)
        with self.assertRaisesRegex(ValueError, r"as it was \(.*chain_test.py:\d+\)$"):
            self._trace(model, (1, 3))
