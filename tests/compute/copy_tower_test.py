"""Towers as copies of a template, each with its own device, batch and variables."""

import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.compute import copy_tower
from towers.compute.tower import TowerSpec
from towers.data.source import Batch
from towers.layout import placeholders, placement
from towers.layout.graph_names import checkpoint_name
from towers.layout.stages import Pipeline
from towers.pipelines import tower_copies
from towers.variable_update.synchronous import ParameterServer

v1 = tf.compat.v1


def _batch(seed: int, first: int) -> Batch:
    features = tf.random.stateless_normal([4, 4, 4, 1], [seed, 0])
    labels = tf.range(4) % 5
    return Batch(features, labels, tf.ones([4]), tf.constant(first, tf.int64))


def _stamp(model, count: int, batches=None):
    """(template, towers) on so many logical CPU devices."""
    batches = batches or [_batch(0, 0) for _ in range(count)]
    return tower_copies.copy_towers(
        TowerSpec(model=model, num_classes=5),
        batches,
        ParameterServer(placement.local(count, kind="cpu")),
        scalars=[{"total_weight": tf.constant(4.0 * count)}] * count,
    )


def _values(fetches, count: int):
    config = placement.session_config(placement.local(count, kind="cpu"))
    with v1.Session(config=config) as session:
        session.run(v1.global_variables_initializer())
        return session.run(fetches)


class CopyTowerTest(tf.test.TestCase):
    def test_every_node_of_a_tower_is_on_its_device(self):
        with tf.Graph().as_default() as graph:
            _, towers = _stamp(trainer.dense_model(), 3)
            for tower in towers:
                scope = f"tower_{tower.index}/"
                ops = [o for o in graph.get_operations() if o.name.startswith(scope)]
                self.assertNotEmpty(ops)
                self.assertEqual({op.device for op in ops}, {tower.device})

    def test_equal_batches_give_equal_towers(self):
        with tf.Graph().as_default():
            _, towers = _stamp(trainer.dense_model(), 3)
            actual = _values([(t.loss, t.gradients) for t in towers], 3)
        for loss, gradients in actual[1:]:
            self.assertEqual(loss, actual[0][0])
            arrays.assert_all_same_bits(gradients, actual[0][1])

    def test_each_tower_computes_on_its_own_batch(self):
        with tf.Graph().as_default():
            batches = [_batch(0, 0), _batch(1, 4)]
            _, towers = _stamp(trainer.dense_model(), 2, batches)
            _, alone = _stamp_second_alone(batches[1])
            both, second = _values([[t.loss for t in towers], alone.loss], 2)
        self.assertNotEqual(both[0], both[1])
        self.assertEqual(both[1], second)

    def test_a_node_keeps_what_its_model_says_of_its_device(self):
        def block(x, nn):
            with tf.device(f"{placeholders.shard(0)}/device:CPU:0"):
                x = tf.identity(x, name="pinned")
            return nn.dense(nn.flatten(x), nn.num_classes)

        model = trainer.dense_model()
        model = type(model)(
            name="pinned",
            blocks=(("pinned", block),),
            inputs=model.inputs,
            recipe=model.recipe,
        )
        with tf.Graph().as_default() as graph:
            _stamp(model, 2)
            [pinned] = [
                op
                for op in graph.get_operations()
                if op.name.startswith("tower_1/") and op.name.endswith("/pinned")
            ]
        self.assertEqual(pinned.device, "/device:CPU:0")

    def test_a_name_scope_around_does_not_move_a_tower(self):
        with tf.Graph().as_default() as graph:
            with tf.name_scope("around"), tf.device("/device:CPU:7"):
                _, [tower] = _stamp(trainer.dense_model(), 1)
            self.assertStartsWith(tower.loss.op.name, "tower_0/")
            self.assertEqual(tower.loss.device, "/device:CPU:0")
            self.assertIs(tower.loss.graph, graph)

    def test_shares_add_up_or_are_averaged(self):
        with tf.Graph().as_default():
            _, towers = _stamp(trainer.dense_model(), 2)
            joined, _ = copy_tower.join_shares(towers)
            apart, _ = copy_tower.join_shares(towers, joined=False)
            losses, total, mean = _values([[t.loss for t in towers], joined, apart], 2)
        self.assertAllClose(total, sum(losses))
        self.assertAllClose(mean, sum(losses) / 2)


def _stamp_second_alone(batch: Batch):
    """The second batch in one tower that has the variables of the first two."""
    placed = placement.local(1, kind="cpu")
    variables = {
        checkpoint_name(variable): variable for variable in v1.global_variables()
    }

    class Same(ParameterServer):
        def create(self, name, shape, initializer, *, trainable):
            del shape, initializer, trainable
            self.variables[name] = variables[name]

    template, [tower] = tower_copies.copy_towers(
        TowerSpec(model=trainer.dense_model(), num_classes=5),
        [batch],
        Same(placed),
        scalars=[{"total_weight": tf.constant(8.0)}],
        scope="alone",
    )
    return template, tower


def normed(x, nn):
    return nn.dense(nn.flatten(nn.batch_norm(x)), nn.num_classes)


class TurnsTest(tf.test.TestCase, parameterized.TestCase):
    def _trainer(self, at_a_time, model=None, towers=5, **options):
        return trainer.Trainer(
            model, towers=towers, batch_size=4, at_a_time=at_a_time, **options
        )

    def _waits_for(self, training) -> dict[int, set[int]]:
        """Tower -> the others that are before it, however far."""
        towers = training.train.towers
        waits = {}
        for tower in towers:
            seen, left = set(), [tower.loss.op]
            while left:
                op = left.pop()
                if op not in seen:
                    seen.add(op)
                    left += [*(x.op for x in op.inputs), *op.control_inputs]
            ends = {other.index for other in towers if other.loss.op in seen}
            waits[tower.index] = ends - {tower.index}
        return waits

    @parameterized.parameters(
        (0, {}),
        (1, {1: {0}, 2: {0, 1}, 3: {0, 1, 2}, 4: {0, 1, 2, 3}}),
        (2, {2: {0}, 3: {1}, 4: {0, 2}}),
        (5, {}),
    )
    def test_a_tower_begins_when_one_before_it_has_ended(self, at_a_time, wanted):
        waits = self._waits_for(self._trainer(at_a_time))
        self.assertEqual(waits, {k: wanted.get(k, set()) for k in range(5)})

    @parameterized.parameters(
        {},
        {"variable_update": "replicated"},
        {"variable_update": "staged"},
        {"accumulate_steps": 2},
        {"xla_compile": True},
    )
    def test_the_steps_are_the_same(self, **options):
        first, second = (
            self._trainer(at_a_time, towers=3, **options).start().steps(3)
            for at_a_time in (0, 2)
        )
        self.assertEqual(trainer.difference(first, second), 0.0)

    @parameterized.parameters(
        {"variable_update": "asynchronous"},
        {"batch_norm": "sync", "model": trainer.model_of(normed)},
        {"pipeline": Pipeline(stages=1, micro_batches=2)},
    )
    def test_none_waits_where_it_may_not(self, **options):
        waits = self._waits_for(self._trainer(1, **options))
        self.assertEqual(waits, {k: set() for k in range(5)})
