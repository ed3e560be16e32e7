"""Towers of different batch sizes in one step take the steps of one tower."""

import tensorflow as tf
from absl.testing import parameterized

from tests import embedding_models, stateful_models, trainer
from towers import graph
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.loss_scale import LossScaling
from towers.verification.cases import SPECS

_SIZES = (6, 1, 3, 2)
_TOTAL = sum(_SIZES)


def _trained(sizes, model=None, *, steps=4, rounds=1, **options) -> dict:
    """The variables after some steps of towers with these batches."""
    training = trainer.Trainer(
        model,
        towers=len(sizes),
        tower_batch_sizes=tuple(size // rounds for size in sizes),
        accumulate_steps=rounds,
        **options,
    ).start()
    values = training.steps(steps)
    return {name: v for name, v in values.items() if "carried" not in name}


class ExactTest(tf.test.TestCase, parameterized.TestCase):
    def _check(self, sizes=_SIZES, model=None, reference=None, **options):
        joined = _trained([sum(sizes)], model, **(reference or {}))
        values = _trained(sizes, model, **options)
        self.assertLess(trainer.difference(joined, values), 1e-5)

    @parameterized.parameters(
        "parameter_server", "replicated", "distributed_replicated"
    )
    def test_modes(self, mode):
        self._check(variable_update=mode)

    @parameterized.parameters(*SPECS)
    def test_reductions(self, spec):
        self._check(variable_update="replicated", exchange={"all_reduce_spec": spec})

    @parameterized.parameters("staged", "relaxed")
    def test_late_gradients(self, mode):
        how = {"variable_update": mode}
        self._check(reference=how, **how)

    @parameterized.parameters("parameter_server", "replicated")
    def test_sparse_gradients(self, mode):
        self._check(model=trainer.embedding_model(), variable_update=mode)

    def test_rounds(self):
        self._check((8, 4, 2, 2), rounds=2)

    def test_rounds_of_sparse_gradients(self):
        self._check((8, 4, 2, 2), model=trainer.embedding_model(), rounds=2)

    @parameterized.parameters("gpipe", "1f1b")
    def test_stages(self, schedule):
        how = Pipeline(2, 2, schedule, balance="params")
        self._check((8, 4, 2, 2), pipeline=how)

    def test_xla(self):
        self._check((4, 2, 2), xla_compile=True)

    def test_synchronized_batch_norm(self):
        model, whole = trainer.normed_model(), {"batch_norm": "sync"}
        self._check(model=model, reference=whole, **whole)

    def test_batch_norm_synchronized_over_stages(self):
        def conv(x, nn):
            return nn.batch_norm(nn.conv(x, 4, 3, use_bias=False))

        def logits(x, nn):
            return nn.dense(nn.flatten(x), nn.num_classes)

        model, whole = trainer.model_of(conv, logits), {"batch_norm": "sync"}
        how = Pipeline(2, 2, "gpipe", balance="params")
        self._check((4, 2, 2), model, whole, pipeline=how, **whole)

    def test_one_at_a_time(self):
        self._check(at_a_time=1)

    @parameterized.parameters((Shards(2),), (Shards(1, 2),))
    def test_shards(self, shards):
        data = {"source": embedding_models.tokens()}
        self._check((6, 2), embedding_models.untied(), data, shards=shards, **data)

    def test_a_scaled_loss(self):
        scaled = {"loss_scaling": LossScaling(initial=1024.0, grow_every=2)}
        self._check(reference=scaled, **scaled)

    def test_steps_inside_the_graph(self):
        training = trainer.Trainer(towers=4, tower_batch_sizes=_SIZES)
        training.add_loop().start().run([], 4, steps_per_loop=4)
        trainer.assert_same_bits(_trained(_SIZES), training.values())

    def test_class_weights(self):
        weights = {"class_weight": (1.0, 0.0, 2.0, 3.0, 1.0)}
        self._check(reference=weights, **weights)

    def test_states(self):
        model, data = stateful_models.two(), {"source": stateful_models.source()}
        self._check((6, 2), model, reference=data, **data)

    def test_the_last_step_of_a_limit(self):
        limit = {"limit": 3 * _TOTAL + 8}
        self._check(reference=limit, **limit)


class OtherMeansTest(tf.test.TestCase):
    def test_independent_towers_have_the_mean_of_their_own_batches(self):
        alone = _trained((6,), steps=1)
        first = _trained((6, 2), steps=1, variable_update="independent")
        for name, value in alone.items():
            if value.dtype.kind == "f":
                self.assertAllClose(first[name], value, rtol=1e-5, atol=1e-7)

    def test_averages_of_batch_norm_follow_the_mean_over_examples(self):
        model = trainer.normed_model()
        joined = _trained((_TOTAL,), model, steps=1)
        values = _trained(_SIZES, model, steps=1)
        (name,) = (name for name in joined if name.endswith("moving_mean"))
        self.assertAllClose(values[name], joined[name], rtol=1e-5, atol=1e-7)


class ResumeTest(tf.test.TestCase):
    def test_with_other_sizes_and_numbers_of_towers(self):
        directory = self.create_tempdir().full_path
        whole = _trained((_TOTAL,), steps=6)
        for step, sizes in ((2, _SIZES), (4, (5, 7)), (6, (4, 4, 4))):
            towers = trainer.Trainer(towers=len(sizes), tower_batch_sizes=sizes)
            values = towers.start(directory).steps(step)
            towers.save(directory)
        self.assertLess(trainer.difference(whole, values), 1e-5)


class OptionsTest(tf.test.TestCase):
    def test_the_largest_is_the_batch_size(self):
        options = graph.Options(
            batch_size=1, tower_batch_sizes=(2, 5), accumulate_steps=3
        )
        self.assertEqual((options.batch_size, options.tower_batch), (5, 15))
        self.assertEqual(options.tower_batches(2), (6, 15))

    def test_equal_sizes_are_those_of_batch_size(self):
        options = graph.Options(batch_size=1, tower_batch_sizes=(4, 4))
        self.assertEqual(options, graph.Options(batch_size=4))

    def test_one_for_each_tower(self):
        with self.assertRaisesRegex(ValueError, "has 2 sizes, and there are 3 towers"):
            trainer.Trainer(towers=3, tower_batch_sizes=(4, 2))

    def test_none_is_empty(self):
        with self.assertRaisesRegex(ValueError, "tower_batch_sizes .* at least 1"):
            graph.Options(batch_size=1, tower_batch_sizes=(4, 0))

    def test_micro_batches_divide_each(self):
        with self.assertRaisesRegex(ValueError, "a tower's batch of 3"):
            trainer.Trainer(
                towers=2,
                tower_batch_sizes=(4, 3),
                pipeline=Pipeline(2, 2, balance="params"),
            )
