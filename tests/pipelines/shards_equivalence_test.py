"""N towers of K shards take the steps of one whole tower."""

import dataclasses
import functools
import tempfile

import tensorflow as tf
from absl.testing import parameterized

from models.model import softmax_cross_entropy, top_k_accuracy
from tests import arrays, embedding_models, trainer
from towers.compute.tower import TowerSpec
from towers.evaluation import eval_graph
from towers.layout.graph_names import checkpoint_name
from towers.layout.shards import Shards
from towers.layout.stages import Pipeline
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Hyperparameters, Update
from towers.variable_update.modes import VARIABLE_UPDATES

BOUND = 1e-5
GLOBAL_BATCH = 16
STEPS = 10
_UPDATE = Update(
    "momentum",
    Piecewise((0.05,), (), warmup_epochs=2.0),
    weight_decay=1e-2,
    decayed=lambda name: name.endswith(("/kernel", "tokens")),
)


def _classifier(towers=1, shards=None, *, classes=7, **options):
    """Two dense layers, the last of which may be spread."""
    return trainer.Trainer(
        trainer.dense_model(),
        trainer.random_source(num_classes=classes),
        towers=towers,
        shards=shards,
        **{"update": _UPDATE, "batch_size": GLOBAL_BATCH // towers, **options},
    )


@functools.cache
def _whole(steps=6, **options):
    """What one tower that is not spread comes to; many tests are held to it."""
    return _classifier(**options).start().steps(steps)


def _with(optimizer, **changes):
    """Options with another optimizer, which one whole tower has too."""
    return dict(update=dataclasses.replace(_UPDATE, optimizer=optimizer, **changes))


_EPSILON = dict(settings=Hyperparameters(adam_epsilon=1e-6))
_REPLICATED = dict(variable_update="replicated")
_MODES = ({}, _REPLICATED)
_TWO_STAGES = dict(pipeline=Pipeline(2, 2))
_BOTH_WAYS = (Shards(1, 2), Shards(2, 1), Shards(2, 2))


class ClassifierTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, 2, dict(classes=8)),
        *((1, 3), (2, 2), (2, 3), (4, 2), (1, 7)),
        (2, 2, {}, _REPLICATED),
        (2, 2, {}, dict(_REPLICATED, exchange=dict(all_reduce_spec="xring"))),
        (2, 2, {}, dict(_REPLICATED, exchange=dict(gradient_repacking=2))),
        (2, 2, {}, dict(variable_update="distributed_replicated")),
        # a single tower need not wait
        (1, 2, {}, dict(variable_update="asynchronous")),
        (2, 2, _with("adam", ema_decay=0.9, **_EPSILON)),
        (2, 2, _with("adamw", clip_norm=0.1, **_EPSILON)),
        *((2, 2, _with(name), mode) for name in ("lars", "lamb") for mode in _MODES),
        # Rounds and stages.
        (1, 2, {}, dict(batch_size=4, accumulate_steps=4)),
        (2, 3, {}, dict(batch_size=4, accumulate_steps=2)),
        (2, 2, {}, dict(_REPLICATED, batch_size=4, accumulate_steps=2)),
        (1, 2, {}, _TWO_STAGES),
        (1, 3, {}, dict(pipeline=Pipeline(1, 4))),
        (2, 2, {}, dict(_REPLICATED, pipeline=Pipeline(2, 2, "gpipe", cut=(1, 2)))),
        (2, 2, {}, dict(pipeline=Pipeline(2, 4, recompute="block"))),
        (1, 2, {}, dict(pipeline=Pipeline(1, 1, recompute="block"))),
    )
    def test_equals_the_whole(self, towers, shards, both=None, spread=None):
        """`both` are options of the whole tower, too."""
        both = both or {}
        training = _classifier(towers, Shards(shards), **both, **(spread or {}))
        values = training.start().steps(STEPS)
        self.assertLess(trainer.difference(_whole(STEPS, **both), values), BOUND)

    @parameterized.product(
        mode=sorted(n for n, m in VARIABLE_UPDATES.items() if m.joined and not m.exact),
        cut=(None, Pipeline(2, 2)),
    )
    def test_late_modes_are_as_late(self, mode, cut):
        late = dict(variable_update=mode)
        whole = _whole(**late)
        values = _classifier(2, Shards(2), pipeline=cut, **late).start().steps(6)
        self.assertLess(trainer.difference(whole, values), BOUND)
        exact = _whole()
        name = "logits/dense/kernel"
        arrays.assert_apart(whole[name], exact[name], rtol=1e-3)

    @parameterized.parameters(
        dict(towers=2),
        dict(pipeline=Pipeline(2, 4, cut=(1, 2))),
        dict(towers=2, pipeline=Pipeline(1, 2, cut=(2,), recompute="block")),
    )
    def test_logits_beside_other_outputs(self, towers=1, **options):
        def hidden(x, nn):
            x = nn.dense(nn.flatten(x), 16, activation=tf.nn.tanh)
            return x, tf.reduce_sum(x * x, 1)

        def logits(x, nn):
            y = nn.dense(x[0], nn.num_classes)
            return {"y": y, "aux": x[1] + tf.reduce_sum(tf.nn.softmax(y) ** 2, 1)}

        def loss(outputs, labels):
            return softmax_cross_entropy(outputs["y"], labels) + 0.1 * outputs["aux"]

        model = trainer.model_of(
            hidden,
            logits,
            loss=loss,
            metrics=lambda outputs, labels: top_k_accuracy(outputs["y"], labels),
        )

        def train(towers=1, **how):
            size = GLOBAL_BATCH // towers
            source = trainer.random_source()
            training = trainer.Trainer(
                model, source, towers=towers, batch_size=size, **how
            )
            return training.start().steps(4)

        actual = train(towers, shards=Shards(2), **options)
        self.assertLess(trainer.difference(train(), actual), BOUND)

    def test_towers_that_exchange_nothing(self):
        actual = _classifier(2, Shards(2), variable_update="independent").start()
        alone = _classifier(2, variable_update="independent").start()
        self.assertLess(trainer.difference(alone.steps(6), actual.steps(6)), BOUND)

    def test_a_short_last_batch(self):
        first = _classifier(limit=37).start().to_the_end()
        values = _classifier(2, Shards(2), limit=37).start().to_the_end()
        self.assertLess(trainer.difference(first, values), BOUND)

    def test_16_bits(self):
        whole = _whole(dtype=tf.bfloat16)
        values = _classifier(1, Shards(2), dtype=tf.bfloat16).start().steps(6)
        self.assertLess(trainer.difference(whole, values), 1e-2)

    def test_each_part_and_its_work_lie_on_its_device(self):
        training = _classifier(1, Shards(2))
        devices = {
            checkpoint_name(v): v.device
            for v in training.train.graph.get_collection("variables")
        }
        for k in range(2):
            for name in ("kernel", "bias", "kernel/part_{}/Momentum"):
                name = name if "part" in name else name + "/part_{}"
                where = devices["logits/dense/" + name.format(k)]
                self.assertEqual(where, f"/device:CPU:{k}")
        large = {}  # sizes of tensors with a number for each class of a device
        for op in training.train.graph.get_operations():
            if op.name.startswith("tower_0/") and op.device:
                for tensor in op.outputs:
                    if tensor.shape.rank == 2 and tensor.shape[-1] in (3, 4, 7):
                        large.setdefault(tensor.shape[-1], set()).add(op.device)
        self.assertEqual(large, {4: {"/device:CPU:0"}, 3: {"/device:CPU:1"}})

    @parameterized.parameters("parameter_server", "staged", "distributed_replicated")
    def test_a_run_goes_on_with_any_number_of_shards(self, mode):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        begin = 0
        for end, towers, shards in ((2, 2, None), (3, 1, 2), (5, 2, 3), (6, 1, None)):
            training = _classifier(
                towers, shards and Shards(shards), variable_update=mode
            ).start(directory)
            self.assertEqual(training.session.run(training.train.global_step), begin)
            begin, values = end, training.steps(end)
            training.save(directory)
        self.assertLess(trainer.difference(_whole(variable_update=mode), values), BOUND)

    def test_accuracies_of_evaluation_are_those_of_the_whole(self):
        accuracies = []
        for shards in (None, Shards(3)):
            training = _classifier(1, shards)
            source = trainer.random_source(num_classes=7)
            with training.train.graph.as_default():
                attached = eval_graph.attach(
                    TowerSpec(trainer.dense_model(), 7, training=False, shards=shards),
                    source,
                    placement=training.placement,
                    mode=eval_graph.AveragedVariables(training.train.mode, {}),
                    batch_size=16,
                )
            training.start().steps(5)
            accuracies.append(eval_graph.run(attached, training.session, 5).means)
        self.assertEqual(
            accuracies[0]["top_1_accuracy"], accuracies[1]["top_1_accuracy"]
        )
        self.assertEqual(
            accuracies[0]["top_5_accuracy"], accuracies[1]["top_5_accuracy"]
        )
        self.assertNear(accuracies[0]["loss"], accuracies[1]["loss"], 1e-5)


def _tokens(model, towers=1, shards=None, **options):
    return trainer.Trainer(
        model,
        embedding_models.tokens(),
        towers=towers,
        shards=shards,
        **{"update": _UPDATE, "batch_size": GLOBAL_BATCH // towers, **options},
    )


@functools.cache
def _whole_tokens(model, steps=6, **options):
    """As `_whole`."""
    return _tokens(model(), **options).start().steps(steps)


# (what is spread, towers, options of the whole tower, too, others); tied weights are
# both rows and classes.
_TIED = (
    *((Shards(1, 2), 1), (Shards(3, 1), 1), (Shards(2, 2), 2)),
    (Shards(2, 2), 1, {}, dict(batch_size=8, accumulate_steps=2)),
    *((shards, 2, {}, _TWO_STAGES) for shards in _BOTH_WAYS),
    (Shards(2, 2), 2, {}, dict(pipeline=Pipeline(1, 2))),
    (Shards(1, 2), 2, _with("lamb")),
    (Shards(1, 2), 2, dict(variable_update="staged")),
)
_UNTIED = (
    *((Shards(2, 2), 1), (Shards(1, 2), 2), (Shards(3, 1), 2)),
    (Shards(1, 2), 2, {}, dict(batch_size=4, accumulate_steps=2)),
    (Shards(2, 2), 2, {}, dict(xla_compile=True)),
    (Shards(1, 2), 2, _with("lars")),
    (Shards(1, 2), 2, dict(variable_update="distributed_replicated")),
    (Shards(1, 2), 2, dict(variable_update="relaxed")),
)


class EmbeddingsTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        *((embedding_models.untied, *how) for how in (*_TIED, *_UNTIED)),
        *((embedding_models.tied, *how) for how in _TIED),
    )
    def test_equals_the_whole(self, model, shards, towers, both=None, spread=None):
        both, spread = both or {}, spread or {}
        whole = _whole_tokens(model, STEPS, **both)
        training = _tokens(model(), towers, shards, **both, **spread)
        values = training.start().steps(STEPS)
        self.assertLess(trainer.difference(whole, values), BOUND)

    @parameterized.parameters("sgd", "adam")
    def test_sparse_gradients_go_to_the_device_that_has_the_rows(self, optimizer):
        update = Update(optimizer, Piecewise((0.05,)))
        whole = _whole_tokens(embedding_models.untied, STEPS, update=update)
        training = _tokens(embedding_models.untied(), 2, Shards(1, 3), update=update)
        sparse = [
            g for g in training.train.towers[0].gradients if hasattr(g, "indices")
        ]
        self.assertLen(sparse, 3)
        gathers = [
            op.device
            for op in training.train.graph.get_operations()
            if op.type == "GatherV2"
            and op.inputs[0].op.name.startswith("variables/read/")
        ]
        variables = training.train.mode.variables
        self.assertCountEqual(
            gathers,
            2 * [variables[f"embedding/tokens/part_{k}"].device for k in range(3)],
        )
        self.assertLess(trainer.difference(whole, training.start().steps(STEPS)), BOUND)
