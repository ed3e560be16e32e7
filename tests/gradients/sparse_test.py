"""Sparse gradients: every row once, and training as one tower trains."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import arrays, trainer
from towers.gradients import sparse
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import OPTIMIZERS, Update

v1 = tf.compat.v1
_WORDS, _LENGTH = 40, 6


def _bag_of_words() -> Model:
    """Each pixel is a word; the sum of their embeddings is classified."""

    def embed(x, nn):
        words = tf.reshape(x, [x.shape[0], _LENGTH])
        # The pixels are scaled to [-1, 1]; words are whole numbers again.
        words = tf.cast(tf.round((words + 1.0) * (_WORDS - 1) / 2), tf.int32)
        table = v1.get_variable("table", [_WORDS, 4])
        unused = v1.get_variable("unused", [2])
        del unused
        return tf.reduce_sum(tf.gather(table, words), 1)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    return trainer.model_of(
        embed, logits, name="bag_of_words", shape=(_LENGTH, 1, 1), num_classes=3
    )


def _trained(towers: int, update: Update, steps: int = 5, rounds: int = 1, **options):
    training = trainer.Trainer(
        _bag_of_words(),
        trainer.random_source(shape=(_LENGTH, 1, 1), num_classes=3),
        towers=towers,
        batch_size=24 // towers // rounds,
        accumulate_steps=rounds,
        update=update,
        **options,
    ).start()
    return training, training.steps(steps)


def _slices(indices, values, shape):
    return tf.IndexedSlices(tf.constant(values), tf.constant(indices), shape)


class MeanTest(parameterized.TestCase):
    @parameterized.product(
        num_towers=(1, 2, 5),
        num_hosts=(1, 2),
        kinds=(
            (tf.float32, None),
            (tf.bfloat16, None),
            (tf.float32, tf.bfloat16),
            (tf.float32, tf.float16),
        ),
    )
    def test_equal_rows_are_added_once(self, num_towers, num_hosts, kinds):
        computed, dtype = kinds
        index_type = {1: "i4", 2: "i8"}[num_hosts]
        rng = np.random.default_rng(num_towers)
        indices = [rng.integers(0, 7, 4 + k).astype(index_type) for k in range(5)]
        # Small integers: no sum of them is rounded, in any of the dtypes.
        values = [rng.integers(-9, 9, (4 + k, 3)).astype("f4") for k in range(5)]
        dense = np.zeros((9, 3))
        for i, v in list(zip(indices, values))[:num_towers]:
            np.add.at(dense, i, v)
        hosts = [f"/device:CPU:{k % num_hosts}" for k in range(num_towers)]
        with tf.Graph().as_default():
            shares = [
                _slices(i, v.astype(computed.as_numpy_dtype), (9, 3))
                for i, v in zip(indices, values)
            ]
            mean = sparse.mean(
                shares[:num_towers], "/device:CPU:0", hosts=hosts, dtype=dtype
            )
            self.assertEqual(mean.values.dtype, tf.float32)
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
                rows, places, shape = session.run(
                    (mean.values, mean.indices, mean.dense_shape)
                )
        used = np.unique(np.concatenate(indices[:num_towers]))
        np.testing.assert_array_equal(places, used)
        np.testing.assert_array_equal(rows, dense[used])
        np.testing.assert_array_equal(shape, [9, 3])

    def test_16_bits_travel_and_each_host_sends_once(self):
        with tf.Graph().as_default() as graph:
            shares = []
            for k in range(4):
                with tf.device(f"/device:CPU:{k}"):
                    shares.append(_slices([0], np.ones((1, 3), "f4"), (9, 3)))
            hosts = [f"/device:CPU:{2 * (k // 2)}" for k in range(4)]
            sparse.mean(shares, "/device:CPU:7", hosts=hosts, dtype=tf.bfloat16)
            arriving = [
                tensor
                for op in graph.get_operations()
                for tensor in op.inputs
                if op.device == "/device:CPU:7" and tensor.device != op.device
            ]
        rows = [tensor for tensor in arriving if tensor.dtype.is_floating]
        self.assertEqual([t.dtype for t in rows], [tf.bfloat16] * 2)
        self.assertEqual({t.device for t in rows}, {"/device:CPU:0", "/device:CPU:2"})

    @parameterized.product(num_workers=(1, 2), num_towers=(1, 3), dtype=(None, "half"))
    def test_a_worker_sends_each_row_once(self, num_workers, num_towers, dtype):
        """To a ps task: the towers' rows are added on their worker first."""
        ps, rng = "/job:ps/task:0/device:CPU:0", np.random.default_rng(0)
        counts, shares, hosts = [], [], []
        with tf.Graph().as_default() as graph:
            for task in range(num_workers):
                used = rng.integers(0, 5, (num_towers, 20))
                counts.append(len(np.unique(used)))
                for k, indices in enumerate(used):
                    hosts.append(f"/job:worker/task:{task}/device:CPU:0")
                    with tf.device(f"/job:worker/task:{task}/device:GPU:{k}"):
                        # Neither dtype rounds sums of these.
                        values = rng.integers(-9, 9, (20, 3)).astype("f4")
                        shares.append(_slices(indices, values, (9, 3)))
            dtype = dtype and tf.as_dtype(dtype)
            mean = sparse.mean(shares, ps, hosts=hosts, dtype=dtype)
            whole = sparse.mean(shares, ps)
            sent = {
                tensor.name: tensor.device
                for op in _made_for(mean)
                for tensor in op.inputs
                if op.device == ps != tensor.device and tensor.shape.rank == 2
            }
        self.assertCountEqual(sent.values(), set(hosts))
        for part in (mean.values, mean.indices, mean.dense_shape):
            self.assertEqual(part.device, ps)
        rows, result, wanted = _run_here(graph, [list(sent), mean, whole])
        self.assertEqual(sorted(map(len, rows)), sorted(counts))
        if dtype is not None:
            self.assertEqual({row.dtype for row in rows}, {np.dtype("f2")})
        for value, right in zip(result, wanted):
            np.testing.assert_array_equal(value, right)


def _made_for(slices: tf.IndexedSlices) -> list[tf.Operation]:
    """All operations that they need."""
    known, waiting = {}, [slices.values.op, slices.indices.op]
    while waiting:
        op = waiting.pop()
        if op.name not in known:
            known[op.name] = op
            waiting += [tensor.op for tensor in op.inputs]
    return list(known.values())


def _run_here(graph: tf.Graph, fetches):
    """The values of tensors of a graph for a cluster, on this machine's CPU."""
    nodes = graph.as_graph_def()
    for node in nodes.node:
        node.device = ""
    with tf.Graph().as_default() as local, v1.Session() as session:
        tf.import_graph_def(nodes, name="")

        def here(tensor):
            return local.get_tensor_by_name(getattr(tensor, "name", tensor))

        return session.run(
            [
                [here(part) for part in (fetch.values, fetch.indices)]
                if isinstance(fetch, tf.IndexedSlices)
                else [here(name) for name in fetch]
                for fetch in fetches
            ]
        )


class DensifyTest(tf.test.TestCase):
    def test_rows_become_a_dense_gradient_and_the_rest_stays(self):
        with tf.Graph().as_default(), tf.device("/device:CPU:0"):
            plain = tf.ones([2])
            rows = _slices([1, 1, 0], np.ones((3, 2), "f4"), (3, 2))
            first, none, dense = sparse.densify([plain, None, rows])
            self.assertIs(first, plain)
            self.assertIsNone(none)
            self.assertEqual(dense.device, "/device:CPU:0")
            with v1.Session() as session:
                actual = session.run(dense)
        np.testing.assert_array_equal(actual, [[1, 1], [2, 2], [0, 0]])

    def test_many_rows_of_16_bits_all_count(self):
        with tf.Graph().as_default(), v1.Session() as session:
            ones = tf.ones([1000, 1], tf.bfloat16)
            rows = tf.IndexedSlices(ones, tf.zeros([1000], tf.int32), [2, 1])
            [dense] = sparse.densify([rows])
            self.assertEqual(dense.dtype, tf.bfloat16)
            actual = session.run(tf.cast(dense, tf.float32))
        np.testing.assert_array_equal(actual, [[1000], [0]])


class TrainTest(parameterized.TestCase):
    @parameterized.parameters(*OPTIMIZERS)
    def test_towers_equal_one_tower(self, optimizer):
        update = Update(optimizer, Piecewise((0.05,)))
        _, one_tower = _trained(1, update)
        for mode in ("parameter_server", "replicated"):
            training, four = _trained(4, update, variable_update=mode)
            gradient = training.train.towers[0].gradients[0]
            self.assertIsInstance(gradient, tf.IndexedSlices)
            self.assertLess(trainer.difference(one_tower, four), 1e-5)
            for name, copies in training.session.run(
                training.train.mode.replicas
            ).items():
                first, *others = copies
                for other in others:
                    arrays.assert_same_bits(first, other, name)

    @parameterized.parameters(
        dict(all_reduce_spec="rechd", gradient_repacking=2),
        dict(all_reduce_spec="xring", agg_small_grads_max_bytes=4096),
    )
    def test_dense_ones_of_several_rounds_are_packed(self, **how):
        update = Update("sgd", Piecewise((0.5,)))
        _, one_tower = _trained(1, update)
        _, four = _trained(
            4,
            update,
            variable_update="replicated",
            exchange=dict(sparse_to_dense_grads=True, **how),
            rounds=3,
        )
        self.assertLess(trainer.difference(one_tower, four), 1e-5)

    def test_asking_for_dense_ones_of_a_dense_model_is_an_error(self):
        with self.assertRaisesRegex(ValueError, "^sparse_to_dense_grads: no "):
            trainer.Trainer(exchange=dict(sparse_to_dense_grads=True))

    @parameterized.parameters(
        dict(clip_value=0.02), dict(clip_norm=0.05), dict(weight_decay=0.1)
    )
    def test_clipping_and_weight_decay_are_those_of_the_dense_gradient(self, **what):
        """Repeated rows count once; decay moves rows that no example looked up too."""
        update = Update("sgd", Piecewise((0.5,)), **what)
        _, sparse_one = _trained(1, update)
        _, sparse_four = _trained(4, update, variable_update="replicated")
        _, dense = _trained(4, update, exchange=dict(sparse_to_dense_grads=True))
        self.assertLess(trainer.difference(sparse_one, sparse_four), 1e-5)
        self.assertLess(trainer.difference(sparse_one, dense), 1e-5)
        plain = dataclasses.replace(
            update, clip_value=None, clip_norm=None, weight_decay=0
        )
        _, other = _trained(1, plain)
        self.assertGreater(trainer.difference(other, dense), 1e-3)
