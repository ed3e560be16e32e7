"""A pipelined tower is the tower of the whole model on the whole batch."""

import functools
import itertools
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.compute import copy_tower, flops, tower
from towers.layout import schedule
from towers.layout.stages import RECOMPUTE, Pipeline
from towers.pipelines import pipeline

v1 = tf.compat.v1

_DEVICES = [f"/device:CPU:{i}" for i in range(4)]
_BATCH = 8


def _conv(x, nn):
    return nn.conv(x, 4, 3, activation=tf.nn.relu)


def _normal(x, nn):
    return nn.batch_norm(x)


def _hidden(x, nn):
    return nn.dropout(nn.dense(nn.flatten(x), 16, activation=tf.nn.tanh), 0.5)


def _logits(x, nn):
    return nn.dense(x, nn.num_classes)


def _tied(name, shape, nn):
    """A variable that two blocks share: its name has no block in it."""
    scope = v1.VariableScope(
        reuse=v1.AUTO_REUSE, custom_getter=v1.get_variable_scope().custom_getter
    )
    with v1.variable_scope(scope, auxiliary_name_scope=False):
        return v1.get_variable(name, shape, nn.dtype)


def _embed(x, nn):
    """Gathers rows, so that the gradient is sparse."""
    which = tf.cast(tf.abs(x[:, :, 0, 0]) * 4, tf.int32) % 10
    return tf.gather(_tied("table", [10, 6], nn), which)


def _mix(x, nn):
    with v1.variable_scope("mix"):
        return tf.tanh(nn.dense(nn.flatten(x), 6)), x


def _unembed(xs, nn):
    return (
        xs[0] @ tf.transpose(_tied("table", [10, 6], nn))
        + tf.reduce_sum(xs[1], 1)[:, :1]
    )


_DENSE = (("conv", _conv), ("hidden", _hidden), ("more", _hidden), ("logits", _logits))
_NORMAL = (("conv", _conv), ("normal", _normal), ("hidden", _hidden), _DENSE[-1])
_TIED = (("embed", _embed), ("mix", _mix), ("unembed", _unembed))
_SPARSE = (("embed", _embed), ("hidden", _hidden), ("logits", _logits))


class _Store:
    """Variables in the graph that was current when this was made."""

    def __init__(self):
        self._graph = v1.get_default_graph()
        self.variables, self.stages = {}, {}

    def create(self, name, shape, initializer, *, trainable, stage=0):
        del initializer
        if name not in self.variables:
            seed = len(self.variables)
            low = -0.5 if trainable else 0.1
            start = v1.random_uniform_initializer(low, 0.5, seed=seed)
            with self._graph.as_default(), tf.device(_DEVICES[stage]):
                self.variables[name] = v1.get_variable(
                    name, shape, initializer=start, trainable=trainable
                )
            self.stages[name] = stage


def _inputs(seen):
    """A batch of which the first examples count."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(_BATCH, 4, 4, 2)).astype("f4")
    with tf.device(_DEVICES[0]):
        return {
            "features": tf.constant(features),
            "labels": tf.constant(rng.integers(0, 3, _BATCH), tf.int32),
            "weights": tf.constant((np.arange(_BATCH) < seen).astype("f4")),
            "total_weight": tf.constant(float(seen)),
            "first": tf.constant(40, tf.int64),
        }


def _config():
    config = v1.ConfigProto(allow_soft_placement=False, device_count={"CPU": 4})
    config.graph_options.rewrite_options.disable_meta_optimizer = True
    return config


class _Run:
    """One tower of a model, run once."""

    def __init__(
        self, blocks, how=None, *, seen=_BATCH, training=True, dtype=tf.float32
    ):
        model = trainer.model_of(*blocks, name="test", shape=(4, 4, 2), num_classes=3)
        task = tower.TowerSpec(
            model=model, num_classes=3, training=training, dtype=dtype, pipeline=how
        )
        specs = tf.TensorSpec([_BATCH, 4, 4, 2]), tf.TensorSpec([_BATCH], tf.int32)
        with tf.Graph().as_default() as self.graph:
            store, inputs = _Store(), _inputs(seen)
            devices = _DEVICES[: how.stages if how else 1]
            trace, stamp = (
                (pipeline.trace, pipeline.copy_pipelines)
                if how
                else (tower.trace, copy_tower.copy_tower)
            )
            self.template = trace(task, *specs, create=store.create)
            self.stages = store.stages
            reads = {
                name: tf.cast(v.read_value(), self.template.reads.get(name, v.dtype))
                for name, v in store.variables.items()
            }
            site = tower.Site("tower_0", devices, inputs, reads, self.template)
            [self.tower] = stamp([site])
            gradients = [
                None if g is None else tf.convert_to_tensor(g)
                for g in self.tower.gradients
            ]
            fetched = [
                self.tower.loss,
                self.tower.metrics,
                self.tower.statistics,
                [g for g in gradients if g is not None],
            ]
            with v1.Session(config=_config()) as session:
                session.run(v1.global_variables_initializer())
                self.values = session.run(fetched)
                self.variables = session.run(store.variables)


# The whole tower, which several cuts are compared with, runs once.
_whole = functools.cache(_Run)


class EqualTest(tf.test.TestCase, parameterized.TestCase):
    def assert_equal(self, first, second):
        self.assertEqual(first.template.trainable, second.template.trainable)
        self.assertEqual(first.template.reads, second.template.reads)
        self.assertEqual(first.template.parameters, second.template.parameters)
        tf.nest.map_structure(self._close, first.values, second.values)

    def _close(self, first, second, bound=1e-5):
        arrays.assert_alike(first, second)
        scale = np.max(np.abs(first)) or 1.0
        self.assertLess(np.max(np.abs(first - second)) / scale, bound)

    @parameterized.product(
        how=(("gpipe", 2, 1), ("1f1b", 3, 1), ("interleaved", 2, 2)),
        micro_batches=(1, 4),
        recompute=tuple(name for name in RECOMPUTE if name != "auto"),
    )
    def test_every_schedule_and_recomputation(self, how, micro_batches, recompute):
        name, stages, chunks = how
        cut = {2: (2, 4), 3: (1, 2, 4), 4: (1, 2, 3, 4)}[stages * chunks]
        cut_run = _Run(
            _DENSE, Pipeline(stages, micro_batches, name, chunks, cut, recompute)
        )
        self.assert_equal(_whole(_DENSE), cut_run)
        self.assertEqual(cut_run.stages["logits/dense/kernel"], (len(cut) - 1) % stages)

    def test_schedules_are_all_tested(self):
        self.assertEqual(list(schedule.SCHEDULES), ["gpipe", "1f1b", "interleaved"])

    @parameterized.parameters("none", "stage", "block")
    def test_batch_norm_of_one_micro_batch(self, recompute):
        cut_run = _Run(_NORMAL, Pipeline(2, 1, "1f1b", 1, (2, 4), recompute))
        self.assertLen(cut_run.values[2], 2)
        self.assert_equal(_whole(_NORMAL), cut_run)

    def test_statistics_are_the_mean_over_the_micro_batches(self):
        cut_run = _Run(_NORMAL, Pipeline(2, 4, "gpipe", 1, (2, 4)))
        _, _, (mean, variance), _ = cut_run.values
        _, _, (whole_mean, whole_variance), _ = _whole(_NORMAL).values
        arrays.assert_close(mean, whole_mean, rtol=1e-5)
        # The mean of the micro-batches' variances is not the variance of the batch.
        arrays.assert_apart(variance, whole_variance, rtol=1e-3)

    def test_each_micro_batch_normalises_by_itself(self):
        """Against NumPy: the outputs, and the rule of which statistics are saved."""

        def normal(x, nn):
            return nn.batch_norm(x)

        def mean(x, nn):
            return tf.reduce_mean(x**3, [1, 2])  # [batch, 2]: two of three logits

        def logits(x, nn):
            return tf.concat([x, tf.zeros_like(x[:, :1])], 1)

        blocks = (("normal", normal), ("mean", mean), ("logits", logits))
        for micro_batches in (1, 4):
            cut_run = _Run(blocks, Pipeline(2, micro_batches, cut=(2, 3)))
            rng = np.random.default_rng(0)
            x = rng.normal(size=(_BATCH, 4, 4, 2)).astype("f4").astype("f8")
            labels = rng.integers(0, 3, _BATCH)
            pieces = np.split(x, micro_batches)
            means = [piece.mean((0, 1, 2)) for piece in pieces]
            flat = [piece.reshape(-1, 2) for piece in pieces]
            y = [
                (piece - rows.mean(0)) / np.sqrt(rows.var(0) + 1e-5)
                for piece, rows in zip(pieces, flat)
            ]
            gamma, beta = (
                cut_run.variables[f"normal/batch_norm/{name}"]
                for name in ("gamma", "beta")
            )
            y = (np.concatenate(y) * gamma + beta) ** 3
            z = np.concatenate([y.mean((1, 2)), np.zeros([_BATCH, 1])], 1)
            chosen = z[np.arange(_BATCH), labels]
            loss = np.mean(np.log(np.exp(z).sum(1)) - chosen)
            self.assertAllClose(cut_run.values[0], loss, rtol=1e-5)
            saved = [np.mean(means, 0), np.mean([r.var(0, ddof=1) for r in flat], 0)]
            self.assertAllClose(cut_run.values[2], saved, rtol=1e-4, atol=1e-6)

    @parameterized.product(micro_batches=(1, 2), cut=((1, 3), (2, 3)))
    def test_tied_blocks_on_different_stages(self, micro_batches, cut):
        cut_run = _Run(_TIED, Pipeline(2, micro_batches, "1f1b", 1, cut))
        self.assert_equal(_whole(_TIED), cut_run)
        self.assertIsInstance(cut_run.tower.gradients[0], tf.Tensor)
        self.assertEqual(cut_run.stages["table"], 0)

    @parameterized.parameters((1, tf.bfloat16), (2, tf.float32))
    def test_tied_blocks_in_16_bits_add_up_micro_batches_in_32(self, count, dtype):
        cut_run = _Run(_TIED, Pipeline(2, count, "1f1b", 1, (1, 3)), dtype=tf.bfloat16)
        self.assertEqual(cut_run.tower.gradients[0].dtype, dtype)
        [first, second] = (
            np.float32(run.values[3][0])
            for run in (_whole(_TIED, dtype=tf.bfloat16), cut_run)
        )
        self._close(first, second, bound=0.03)

    @parameterized.parameters("none", "block")
    def test_tied_blocks_on_one_stage(self, recompute):
        cut_run = _Run(_TIED, Pipeline(1, 2, "1f1b", 1, (3,), recompute))
        self.assert_equal(_whole(_TIED), cut_run)

    @parameterized.parameters(1, 4)
    def test_sparse_gradients_stay_sparse(self, micro_batches):
        cut_run = _Run(_SPARSE, Pipeline(2, micro_batches, "1f1b", 1, (1, 3)))
        self.assert_equal(_whole(_SPARSE), cut_run)
        self.assertIsInstance(cut_run.tower.gradients[0], tf.IndexedSlices)
        self.assertEqual(cut_run.tower.gradients[0].values.device[-5:], "CPU:0")

    @parameterized.parameters(1, 4)
    def test_evaluation(self, micro_batches):
        cut_run = _Run(
            _NORMAL, Pipeline(2, micro_batches, "1f1b", 1, (2, 4)), training=False
        )
        whole = _whole(_NORMAL, training=False)
        self.assertEqual(cut_run.tower.gradients, [])
        self.assert_equal(whole, cut_run)

    def test_an_unused_variable_has_no_gradient(self):
        def unused(x, nn):
            nn.variable("unused", [2])
            return x

        blocks = (("unused", unused), *_DENSE)
        cut_run = _Run(blocks, Pipeline(2, 2, "1f1b", 1, (1, 5)))
        self.assertIsNone(cut_run.tower.gradients[0])
        self.assertIsNotNone(cut_run.tower.gradients[1])


class GraphTest(tf.test.TestCase, parameterized.TestCase):
    def _calls(self, run):
        return [op for op in run.graph.get_operations() if op.type.endswith("Call")]

    def test_a_pass_is_one_call_after_the_one_before_it_on_its_stage(self):
        how = Pipeline(2, 4, "1f1b", 1, (2, 4))
        calls = self._calls(_Run(_DENSE, how))
        self.assertLen(calls, 2 * 2 * 4)
        for stage, passes in enumerate(how.order()):
            stage_calls = [op for op in calls if op.device == _DEVICES[stage]]
            self.assertLen(stage_calls, len(passes))
            for op, pass_ in zip(stage_calls, passes):
                way = "backward" if pass_.backward else "forward"
                self.assertIn(f"micro_batch_{pass_.micro_batch}/{way}", op.name)
            for before, op in itertools.pairwise(stage_calls):
                # TensorFlow drops a control input that a data input implies.
                inputs = [tensor.op for tensor in op.inputs]
                self.assertIn(before, [*op.control_inputs, *inputs])

    def test_the_graph_does_not_grow_with_the_model(self):
        small = _Run(_DENSE, Pipeline(2, 4, "1f1b", 1, (2, 4)))
        large = _Run(
            (*_DENSE[:2], *((f"more{k}", _hidden) for k in range(6)), _DENSE[-1]),
            Pipeline(2, 4, "1f1b", 1, (2, 9)),
        )
        self.assertEqual(len(self._calls(small)), len(self._calls(large)))

    def test_stages_that_would_wait_for_ever_are_found_before_a_session_runs(self):
        def backward_first(stages, micro_batches, chunks=1):
            order = schedule.gpipe(stages, micro_batches, chunks)
            return [passes[::-1] for passes in order]

        planted = {"stuck": schedule.PipelineSchedule(backward_first)}
        with (
            mock.patch.dict(schedule.SCHEDULES, planted),
            mock.patch.object(v1, "Session") as session,
            self.assertRaisesRegex(
                schedule.ScheduleError,
                "^schedule stuck: stages wait for each other: stage 0 stands at",
            ),
        ):
            _Run(_DENSE, Pipeline(2, 2, "stuck", 1, (2, 4)))
        session.assert_not_called()

    def test_no_operation_is_without_a_device(self):
        run = _Run(_NORMAL, Pipeline(2, 2, "1f1b", 1, (2, 4)))
        for op in run.graph.get_operations():
            if op.name.startswith("tower_0/"):
                self.assertTrue(op.device, op.name)

    def test_work_is_that_of_the_whole_tower(self):
        whole = flops.of_graph(_whole(_DENSE).graph, "tower_0/")
        self.assertGreater(whole, 0)
        for recompute in RECOMPUTE:
            cut_run = _Run(_DENSE, Pipeline(2, 4, "1f1b", 1, (2, 4), recompute))
            self.assertEqual(cut_run.template.flops, whole)
