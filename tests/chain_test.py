"""A model that is no chain is refused in a sentence when it is cut."""

import tensorflow as tf
from absl.testing import parameterized

from models.model import Images, Model, Recipe, Schedule
from towers.compute import tower
from towers.pipelines import segment


def _model(*, add: bool) -> Model:
    """Its last block reads what the first made, behind the chain's back."""
    seen = []

    def first(x, nn):
        seen[:] = [nn.dense(nn.flatten(x), 5)]
        return seen[0]

    def middle(x, nn):
        return nn.dense(x, 5)

    def last(x, nn):
        return x + seen[0] if add else seen[0]

    return Model(
        name="skips",
        blocks=(("first", first), ("middle", middle), ("last", last)),
        inputs=Images(shape=(2, 2, 1), num_classes=5),
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.1,))),
    )


class ChainTest(tf.test.TestCase, parameterized.TestCase):
    def _trace(self, model, ends):
        blocks = model.blocks
        return segment.trace(
            tower.Task(model=model, num_classes=5),
            [blocks[a:b] for a, b in zip((0, *ends), ends)],
            segment.Batch(tf.TensorSpec([4, 2, 2, 1]), tf.TensorSpec([4], tf.int32)),
            create=lambda *args, **options: None,
        )

    @parameterized.product(add=(True, False), ends=((1, 3), (2, 3), (1, 2, 3)))
    def test_a_tensor_behind_the_chain(self, add, ends):
        with self.assertRaisesRegex(
            ValueError, "^block 'last' .*: it reads a tensor .* no chain"
        ):
            self._trace(_model(add=add), ends)

    @parameterized.parameters(True, False)
    def test_is_no_harm_within_a_segment(self, add):
        self.assertLen(self._trace(_model(add=add), (3,)), 1)

    def test_other_errors_pass(self):
        def wrong(x, nn):
            raise ValueError("as it was")

        model = _model(add=True)
        blocks = (*model.blocks[:2], ("last", wrong))
        model = Model("wrong", blocks, model.inputs, model.recipe)
        with self.assertRaisesRegex(ValueError, r"as it was \(.*chain_test.py:\d+\)$"):
            self._trace(model, (1, 3))


if __name__ == "__main__":
    tf.test.main()
