"""Towers on all devices: in turn, and batch norm over the batches of all of them."""

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers import graph
from towers.layout import placement
from towers.layout.stages import Pipeline


def _normed() -> Model:
    """Two batch norms, one of them after another's output."""

    def block(x, nn):
        x = nn.batch_norm(nn.conv(x, 4, 3, use_bias=False), activation=tf.nn.relu)
        x = nn.batch_norm(nn.conv(x, 3, 2, use_bias=False), scale=False)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(block)


def _trained(towers: int, steps: int = 6, **options):
    made = trainer.Trainer(
        _normed(),
        trainer.random_source(),
        towers=towers,
        batch_size=24 // towers,
        **options,
    )
    return made.start().steps(steps)


class SyncBatchNormTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, "parameter_server"), (3, "parameter_server"), (4, "replicated")
    )
    def test_towers_are_one_on_the_joined_batch(self, towers, mode):
        """Gradients, moving averages and all; against TensorFlow's own batch norm."""
        one = _trained(1)
        other = _trained(towers, batch_norm="sync", variable_update=mode)
        self.assertLess(trainer.difference(one, other), 1e-5)

    def test_each_by_itself_is_not(self):
        self.assertGreater(trainer.difference(_trained(1), _trained(4)), 1e-3)

    @parameterized.parameters("independent", "asynchronous")
    def test_towers_that_do_not_step_together_cannot(self, mode):
        with self.assertRaisesRegex(ValueError, "batch_norm=sync: the towers must"):
            _trained(2, batch_norm="sync", variable_update=mode)


class FitTest(parameterized.TestCase):
    @parameterized.parameters(
        (Pipeline(2, 3), 2, "Pipeline.micro_batches is 3, and does not divide .* of 8"),
        (Pipeline(2, 4), 1, "each tower of the placement has 1 of the .* ask for 2"),
        (Pipeline(2, 4), 4, "each tower of the placement has 4 of the .* ask for 2"),
        (None, 2, "each tower of the placement has 2 of the .* ask for 1"),
    )
    def test_the_pipeline_and_the_placement(self, how, num_stages, sentence):
        with self.assertRaisesRegex(ValueError, f"^{sentence}"):
            graph.build(
                trainer.dense_model(),
                trainer.random_source(),
                trainer.MOMENTUM,
                placement=placement.local(4, kind="cpu", num_stages=num_stages),
                options=graph.Options(batch_size=8, pipeline=how),
            )


class TurnsTest(tf.test.TestCase, parameterized.TestCase):
    def _trainer(self, at_a_time, model=None, towers=5, **options):
        return trainer.Trainer(
            model or trainer.dense_model(),
            trainer.random_source(),
            towers=towers,
            batch_size=4,
            at_a_time=at_a_time,
            **options,
        )

    def _waits_for(self, made) -> dict[int, set[int]]:
        """Tower -> the others that are before it, however far."""
        towers = made.train.towers
        found = {}
        for tower in towers:
            seen, left = set(), [tower.loss.op]
            while left:
                op = left.pop()
                if op not in seen:
                    seen.add(op)
                    left += [*(x.op for x in op.inputs), *op.control_inputs]
            ends = {other.index for other in towers if other.loss.op in seen}
            found[tower.index] = ends - {tower.index}
        return found

    @parameterized.parameters(
        (0, {}),
        (1, {1: {0}, 2: {0, 1}, 3: {0, 1, 2}, 4: {0, 1, 2, 3}}),
        (2, {2: {0}, 3: {1}, 4: {0, 2}}),
        (5, {}),
    )
    def test_a_tower_begins_when_one_before_it_has_ended(self, at_a_time, wanted):
        found = self._waits_for(self._trainer(at_a_time))
        self.assertEqual(found, {k: wanted.get(k, set()) for k in range(5)})

    @parameterized.parameters(
        {},
        {"variable_update": "replicated"},
        {"variable_update": "staged"},
        {"accumulate_steps": 2},
        {"xla_compile": True},
    )
    def test_the_steps_are_the_same(self, **options):
        one, other = (
            self._trainer(at_a_time, towers=3, **options).start().steps(3)
            for at_a_time in (0, 2)
        )
        self.assertEqual(trainer.difference(one, other), 0.0)

    @parameterized.parameters(
        {"variable_update": "asynchronous"},
        {"batch_norm": "sync", "model": _normed()},
        {"pipeline": Pipeline(stages=1, micro_batches=2)},
    )
    def test_none_waits_where_it_may_not(self, **options):
        found = self._waits_for(self._trainer(1, **options))
        self.assertEqual(found, {k: set() for k in range(5)})


if __name__ == "__main__":
    tf.test.main()
