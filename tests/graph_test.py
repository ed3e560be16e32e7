"""The train graph: one graph, towers where they belong, what is saved and what not."""

import dataclasses
import gc

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from models.model import Images, Model, Recipe, Schedule
from tests import trainer
from towers import graph
from towers.data import inputs
from towers.data.feed import Request
from towers.data.synthetic import SyntheticSource
from towers.layout import placement
from towers.session import loop
from towers.updates.optimizer import Piecewise, Update

v1 = tf.compat.v1


def _normed_model() -> Model:
    def normed(x, nn):
        return nn.batch_norm(nn.flatten(x)[:, None, None, :], momentum=0.5)

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes)

    return Model(
        name="normed",
        blocks=(("normed", normed), ("logits", logits)),
        inputs=Images(shape=(2, 2, 1), num_classes=5),
        recipe=Recipe(batch_size=4, schedule=Schedule(rates=(0.1,))),
    )


class GraphTest(parameterized.TestCase):
    def test_every_operation_of_a_tower_is_on_its_device(self):
        made = trainer.Trainer(
            trainer.dense_model(), trainer.random_source(), towers=3, batch_size=4
        )
        for op in made.train.graph.get_operations():
            scope, _, inner = op.name.partition("/")
            if inner and scope in ("tower_0", "tower_1", "tower_2"):
                wanted = made.placement.towers[int(scope[-1])]
                self.assertEqual(op.device, wanted, op.name)
        for variable in made.train.saved.values():
            self.assertEqual(variable.device, "/device:CPU:0")

    def test_a_graph_for_gpus_can_be_built_and_read_without_any(self):
        towers = tuple(placement.device("GPU", i) for i in range(4))
        where = placement.Placement(
            kind="gpu",
            towers=towers,
            hosts=(placement.device("CPU", 0),) * 4,
            parameters=towers,
        )
        built = graph.build(
            models.get("resnet20"),
            SyntheticSource(Request(shape=(32, 32, 3), num_classes=10)),
            Update("momentum", Piecewise((0.1,))),
            placement=where,
            options=graph.Options(batch_size=2, data_format="NCHW"),
        )
        load = dict.fromkeys(towers, 0)
        for variable in built.mode.variables.values():
            load[variable.device] += variable.shape.num_elements()
        biggest = max(v.shape.num_elements() for v in built.mode.variables.values())
        self.assertLessEqual(max(load.values()) - min(load.values()), biggest)
        self.assertEqual([tower.device for tower in built.towers], list(towers))
        for tower in built.towers:
            for gradient in tower.gradients:
                self.assertEqual(gradient.device, tower.device)

    def test_names_in_the_checkpoint_are_those_of_the_model(self):
        names = set()
        for towers, mode in ((1, "parameter_server"), (4, "replicated")):
            made = trainer.Trainer(
                trainer.dense_model(),
                trainer.random_source(),
                towers=towers,
                variable_update=mode,
            )
            names.add(tuple(sorted(made.train.saved)))
        [found] = names
        variables = ["hidden/dense/bias", "hidden/dense/kernel"]
        variables += ["logits/dense/bias", "logits/dense/kernel"]
        slots = [f"{name}/Momentum" for name in variables]
        self.assertEqual(
            list(found), sorted(["global_step", "position", *variables, *slots])
        )

    def test_moving_averages_follow_the_mean_of_the_towers_statistics(self):
        images = np.arange(32, dtype=np.float32).reshape(8, 2, 2, 1)
        labels = np.zeros(8, int)
        source = inputs.from_arrays(images, labels, num_classes=5, training=False)
        made = trainer.Trainer(_normed_model(), source, towers=2, batch_size=4).start()
        found = made.steps(1)
        halves = images.reshape(2, 4, 4)
        mean = halves.mean(axis=(0, 1))
        variance = halves.var(axis=1, ddof=1).mean(axis=0)
        np.testing.assert_allclose(
            found["normed/batch_norm/moving_mean"], 0.5 * mean, rtol=1e-6
        )
        np.testing.assert_allclose(
            found["normed/batch_norm/moving_variance"], 0.5 + 0.5 * variance, rtol=1e-5
        )

    def test_loss_and_metrics_are_means_over_the_examples_that_count(self):
        made = trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(num_examples=10),
            towers=2,
            batch_size=4,
            update=dataclasses.replace(
                trainer.MOMENTUM, learning_rate=Piecewise((0.0,))
            ),
            limit=11,
        ).start()
        losses = []
        for _ in range(2):
            fetched = [made.train.loss, made.train.total_loss, made.train.step]
            fetched += [tower.loss for tower in made.train.towers]
            loss, total, step, *shares = made.session.run(fetched)
            self.assertAlmostEqual(sum(shares), loss, places=5)
            self.assertGreater(total, loss)
            losses.append((step, *shares))
        self.assertEqual([step for step, *_ in losses], [1, 2])
        self.assertEqual(losses[1][2], 0)  # three examples: the second tower has none
        self.assertEqual(made.values()["position"], 11)

    def test_the_penalty_is_that_of_the_values_that_the_step_begins_with(self):
        update = Update("sgd", Piecewise((0.5,)), weight_decay=0.5)
        made = trainer.Trainer(
            trainer.dense_model(), trainer.random_source(), update=update
        ).start()
        for _ in range(20):
            values = made.values().values()
            squares = sum(np.sum(v**2) for v in values if v.dtype == np.float32)
            found, _ = made.session.run([made.train.penalty, made.train.step])
            np.testing.assert_allclose(found, 0.25 * squares, rtol=1e-5)

    def test_the_learning_rate_goes_by_the_position_in_the_stream(self):
        rate = Piecewise((0.5, 0.25, 0.125), (0.5, 1.0))
        made = trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(num_examples=64),
            towers=2,
            batch_size=4,
            update=Update("sgd", rate),
        ).start()
        for steps, wanted in ((0, 0.5), (3, 0.5), (4, 0.25), (9, 0.125)):
            made.steps(steps)
            self.assertEqual(made.session.run(made.train.learning_rate), wanted)

    def test_moving_averages_of_variables(self):
        made = trainer.Trainer(
            trainer.dense_model(),
            trainer.random_source(),
            update=dataclasses.replace(trainer.MOMENTUM, ema_decay=0.5),
        ).start()
        before = made.values()
        after = made.steps(1)
        name = "logits/dense/kernel"
        # At step 0 TensorFlow's decay is min(0.5, (1 + 0) / (10 + 0)).
        np.testing.assert_allclose(
            after[f"{name}/ExponentialMovingAverage"],
            0.1 * before[name] + 0.9 * after[name],
            rtol=1e-5,
            atol=1e-6,
        )

    def test_importing_and_building_change_nothing_in_the_process(self):
        trainer.Trainer(trainer.dense_model(), trainer.random_source())
        self.assertTrue(gc.isenabled())
        self.assertTrue(tf.executing_eagerly())
        self.assertTrue(v1.resource_variables_enabled())
        self.assertEqual(tf.constant(2).numpy(), 2)

    def test_two_graphs_in_one_process_do_not_meet(self):
        one = trainer.Trainer(trainer.dense_model(), trainer.random_source()).start()
        other = trainer.Trainer(trainer.dense_model(), trainer.random_source()).start()
        trainer.assert_same_bits(one.steps(3), other.steps(3))
        loop.run(one.train, one.session, [], last_step=4)
        self.assertEqual(other.values()["global_step"], 3)


if __name__ == "__main__":
    tf.test.main()
