"""Tracing: a copied tower computes what the model's Python code computes."""

import numpy as np
import tensorflow as tf

from tests import arrays, trainer
from towers.compute import copy_tower, nodes, tower
from towers.data import synthetic
from towers.data.source import Request

v1 = tf.compat.v1


def _model(*blocks):
    return trainer.model_of(*blocks, name="test", shape=(4, 4, 2), num_classes=3)


def _conv(x, nn):
    x = nn.conv(x, 4, 3, activation=tf.nn.relu)
    return nn.batch_norm(x)


def _head(x, nn):
    return nn.dense(nn.dropout(nn.flatten(x), 0.5), nn.num_classes)


class _Store:
    """Variables in the graph that was current when this was made."""

    def __init__(self):
        self.graph = v1.get_default_graph()
        self.variables = {}

    def create(self, name, shape, initializer, *, trainable):
        with self.graph.as_default():
            if initializer is None:
                initializer = v1.glorot_uniform_initializer(seed=1)
            self.variables[name] = v1.get_variable(
                name, shape, initializer=initializer, trainable=trainable
            )


def _trace(model, create, batch=4, **options):
    return tower.trace(
        tower.TowerSpec(model=model, num_classes=3, **options),
        tf.TensorSpec([batch, 4, 4, 2]),
        tf.TensorSpec([batch], tf.int32),
        create=create,
    )


def _inputs(batch=4, first=0, seed=0, total=4.0):
    rng = np.random.default_rng(seed)
    return {
        "features": tf.constant(rng.normal(size=(batch, 4, 4, 2)), tf.float32),
        "labels": tf.constant(rng.integers(0, 3, batch), tf.int32),
        "weights": tf.ones([batch]),
        "total_weight": tf.constant(total),
        "first": tf.constant(first, tf.int64),
    }


def _stamp(template, store, index, **inputs):
    site = tower.Site(
        scope=f"tower_{index}",
        devices=["/device:CPU:0"],
        inputs=_inputs(**inputs),
        reads={k: v.read_value() for k, v in store.variables.items()},
        template=template,
    )
    return copy_tower.copy_tower([site])[0]


class TowerTest(tf.test.TestCase):
    def test_a_loss_that_is_collected_and_not_read_is_refused(self):
        def penalised(x, nn):
            v1.losses.add_loss(tf.reduce_mean(x))
            return _head(x, nn)

        with tf.Graph().as_default(), self.assertRaisesRegex(ValueError, "'losses'"):
            _trace(_model(("penalised", penalised)), _Store().create)

    def test_what_an_operation_waits_for_is_kept(self):
        def checked(x, nn):
            fine = tf.raw_ops.Assert(condition=tf.reduce_all(x < 1e9), data=[x])
            with tf.control_dependencies([fine]):
                return _head(tf.identity(x), nn)

        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("checked", checked)), store.create)
            loss = _stamp(template, store, 0).loss
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                session.run(loss)
            ran = nodes.ancestors([loss.op])
        self.assertIn("Assert", {node.op for node in template.graph_def.node})
        self.assertTrue(any(name.endswith("/Assert") for name in ran))

    def test_equal_batches_give_equal_towers_under_their_own_names(self):
        with tf.Graph().as_default() as graph:
            store = _Store()
            template = _trace(_model(("conv", _conv), ("head", _head)), store.create)
            towers = [_stamp(template, store, k) for k in range(3)]
            self.assertEqual(
                template.trainable,
                (
                    "conv/conv/kernel",
                    "conv/conv/bias",
                    "conv/batch_norm/beta",
                    "conv/batch_norm/gamma",
                    "head/dense/kernel",
                    "head/dense/bias",
                ),
            )
            names = [op.name for op in graph.get_operations()]
            count = [sum(n.startswith(f"tower_{k}/") for n in names) for k in range(3)]
            self.assertEqual(count[0], count[1])
            self.assertEqual(count[0], count[2])
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                actual = session.run([(t.loss, t.gradients) for t in towers])
        for other in actual[1:]:
            arrays.assert_same_bits(actual[0][0], other[0])
            arrays.assert_all_same_bits(actual[0][1], other[1])

    def test_gradients_equal_those_of_the_same_model_without_a_template(self):
        def dense(x, nn):
            return nn.dense(nn.flatten(x), nn.num_classes)

        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("head", dense)), store.create)
            stamped = _stamp(template, store, 0)
            inputs = _inputs()
            kernel, bias = store.variables.values()
            logits = tf.reshape(inputs["features"], [4, 32]) @ kernel + bias
            loss = tf.reduce_mean(
                tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels=inputs["labels"], logits=logits
                )
            )
            plain = tf.gradients(loss, [kernel, bias])
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                actual, wanted = session.run(
                    [[stamped.loss, *stamped.gradients], [loss, *plain]]
                )
        for first, second in zip(actual, wanted):
            arrays.assert_close(first, second, rtol=1e-6)

    def test_dropout_follows_the_example_not_the_tower(self):
        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("head", _head)), store.create, batch=4)
            same = [_stamp(template, store, k, first=8) for k in range(2)]
            other = _stamp(template, store, 2, first=12)
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                losses = session.run([t.loss for t in [*same, other]])
        self.assertEqual(losses[0], losses[1])
        self.assertNotEqual(losses[0], losses[2])

    def test_batch_statistics_come_with_the_variables_that_follow_them(self):
        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("conv", _conv), ("head", _head)), store.create)
            stamped = _stamp(template, store, 0)
        self.assertEqual(
            [rule.variable for rule, _ in template.statistics],
            ["conv/batch_norm/moving_mean", "conv/batch_norm/moving_variance"],
        )
        self.assertLen(stamped.statistics, 2)
        self.assertFalse(store.variables["conv/batch_norm/moving_mean"].trainable)

    def test_evaluation_reads_the_moving_averages_and_has_no_gradients(self):
        with tf.Graph().as_default():
            store = _Store()
            model = _model(("conv", _conv), ("head", _head))
            template = _trace(model, store.create, training=False)
            self.assertEqual(_stamp(template, store, 0).gradients, [])
        self.assertIn("conv/batch_norm/moving_mean", template.reads)
        self.assertEqual(template.statistics, ())

    def test_a_tied_variable_is_made_once_and_gets_the_sum_of_its_uses(self):
        def first(x, nn):
            with v1.variable_scope("shared", reuse=v1.AUTO_REUSE):
                return nn.flatten(x) @ nn.variable("w", [32, 32])

        def second(x, nn):
            with v1.variable_scope(v1.get_variable_scope(), reuse=v1.AUTO_REUSE):
                return x[:, :3] * nn.variable("scale", [])

        with tf.Graph().as_default():
            store = _Store()
            model = _model(("a", first), ("b", second))
            template = _trace(model, store.create)
        self.assertEqual(template.trainable, ("a/shared/w", "b/scale"))

    def test_parameters_are_elements(self):
        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("conv", _conv), ("head", _head)), store.create)
            trained = [v for v in store.variables.values() if v.trainable]
        sizes = [v.shape.num_elements() for v in trained]
        self.assertEqual(template.parameters, sum(sizes))
        self.assertGreater(template.parameters, len(sizes))

    def test_an_unused_variable_has_no_gradient(self):
        def head(x, nn):
            nn.variable("unused", [2])
            return nn.dense(nn.flatten(x), 3)

        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("head", head)), store.create)
            gradients = _stamp(template, store, 0).gradients
        self.assertIsNone(gradients[0])
        self.assertIsNotNone(gradients[1])

    def test_a_gather_gives_a_sparse_gradient(self):
        def head(x, nn):
            table = nn.variable("table", [10, 3])
            return tf.gather(table, tf.cast(x[:, 0, 0, 0], tf.int32))

        with tf.Graph().as_default():
            store = _Store()
            template = _trace(_model(("head", head)), store.create)
            [gradient] = _stamp(template, store, 0).gradients
        self.assertIsInstance(gradient, tf.IndexedSlices)

    def test_stateful_draws_are_refused(self):
        def noisy(x, nn):
            return nn.dense(nn.flatten(x + tf.random.normal(x.shape)), 3)

        with tf.Graph().as_default():
            create = _Store().create
            with self.assertRaisesRegex(ValueError, "noisy.*stateful.*nn.dropout"):
                _trace(_model(("noisy", noisy)), create)

    def test_regularizers_are_refused(self):
        def head(x, nn):
            w = v1.get_variable("w", [32, 3], regularizer=tf.nn.l2_loss)
            return nn.flatten(x) @ w

        with tf.Graph().as_default():
            create = _Store().create
            with self.assertRaisesRegex(ValueError, "regularizer"):
                _trace(_model(("head", head)), create)

    def test_nothing_to_take_statistics_of(self):
        source = synthetic.SyntheticSource(Request(shape=(4, 4, 2), num_classes=3))
        normed = _model(("conv", _conv), ("head", _head))
        for batch_norm in ("micro_batch", "tower", "sync"):
            tower.check_batch_norm(batch_norm, normed, source)
        plain = _model(("head", _head))
        tower.check_batch_norm("micro_batch", plain, source)
        for batch_norm in ("tower", "sync_micro_batch", "sync"):
            sentence = f"^batch_norm={batch_norm}: test has no batch norm; leave it"
            with self.assertRaisesRegex(ValueError, sentence):
                tower.check_batch_norm(batch_norm, plain, source)

    def test_nchw_and_nhwc_are_the_same_function(self):
        losses = []
        for data_format in ("NHWC", "NCHW"):
            with tf.Graph().as_default():
                store = _Store()
                model = _model(("conv", _conv), ("head", _head))
                template = _trace(
                    model, store.create, training=False, data_format=data_format
                )
                stamped = _stamp(template, store, 0)
                with v1.Session() as session:
                    v1.set_random_seed(0)
                    values = np.random.default_rng(7)
                    session.run(v1.global_variables_initializer())
                    for variable in store.variables.values():
                        value = np.abs(values.normal(size=variable.shape))
                        variable.load(value.astype("f4"), session)
                    losses.append(session.run(stamped.loss))
        arrays.assert_close(losses[0], losses[1], rtol=1e-5)
