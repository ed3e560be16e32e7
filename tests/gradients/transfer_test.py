"""What crosses devices: bytes of real steps, bundles, rounding, packing."""

import collections
import re

import numpy as np
import tensorflow as tf
from absl.testing import absltest, parameterized

import models
from tests import in_process_cluster, trainer
from towers import graph
from towers.gradients import transfer
from towers.gradients.transfer import Wire
from towers.layout import cluster_spec, placement

v1 = tf.compat.v1

_HERE, _THERE = "/device:CPU:0", "/device:CPU:1"

# All tasks in one process, in a private network; traced steps of each model.
_INSIDE = """
import dataclasses
import numpy as np
import tensorflow as tf
import models
from tests import digit_runs, in_process_cluster, trainer
from towers import graph
from towers.data import inputs
from towers.layout import placement
from towers.session import loop
from towers.gradients.exchange import GradientExchange
from towers.data.source import Request
from towers.data.synthetic import SyntheticSource
v1 = tf.compat.v1

spec, target = in_process_cluster.serve(ps=2, devices=2)
where = placement.on_cluster(spec, 2, kind="cpu")
config = placement.session_config(where)
found = {}

def count(name, model, source, update, **options):
    options = graph.Options(batch_size=4, **options)
    train = graph.build(model, source, update, placement=where, options=options)
    v1.Session.reset(target, config=config)  # of other models
    with v1.Session(target, graph=train.graph, config=config) as s:
        loop.start(train, s, lambda session: None)
        s.run(train.train_op)
        crossed = in_process_cluster.crossed(s, train.train_op)
    held = train.mode.variables
    found[name] = {
        "trainable": 4 * train.template.parameters,
        "variables": 4 * sum(v.shape.num_elements() for v in held.values()),
        "dense": 4 * sum(
            v.shape.num_elements() for n, v in held.items() if "embed" not in n),
        "tasks": {
            n: placement.task_of(v.device) for n, v in held.items()},
        "crossed": crossed,
    }

images = trainer.random_source((8, 8, 1), 10, out=(6, 6, 1))
for dtype in (tf.float32, tf.bfloat16):
    count(dtype.name, digit_runs.small_model(), images, trainer.MOMENTUM, dtype=dtype)

users_and_items = (5000, 3000)
pairs = SyntheticSource(Request(
    shape=(2,), num_classes=users_and_items, kind="pairs", num_examples=5000))
plain = dataclasses.replace(trainer.MOMENTUM, weight_decay=0.0)
for name, size in (("tables", 0), ("parts", 500_000)):
    exchange = GradientExchange(partition_bytes=size, sufficient_factors=False)
    count(name, models.get("ncf"), pairs, plain, exchange=exchange)

# Every example is a label of its own; which towers get which, here and in one process.
numbered = inputs.from_arrays(
    np.zeros((60, 4, 4, 1), np.uint8), np.arange(60), num_classes=60)
found["labels"] = []
for place, target in ((where, target), (placement.local(4), "")):
    train = graph.build(
        dataclasses.replace(
            trainer.dense_model(), inputs=models.Images((4, 4, 1), 60)),
        numbered, plain, placement=place, options=graph.Options(batch_size=3))
    config = placement.session_config(place)
    if target:
        v1.Session.reset(target, config=config)
    with v1.Session(target, graph=train.graph, config=config) as s:
        loop.start(train, s, lambda session: None)
        seen = [s.run([batch.labels for batch in train.feed.batches])
                for _ in range(4)]
    found["labels"].append(np.array(seen).tolist())
    if place is where:
        found["input"] = {
            op.name: op.device for op in train.graph.get_operations()
            if "Iterator" in op.type}
in_process_cluster.tell(found)
"""


class TransfersTest(absltest.TestCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.found = in_process_cluster.found_inside(_INSIDE)

    def _crossed(self, name: str, first: str, second: str) -> int:
        return in_process_cluster.between(self.found[name]["crossed"], first, second)

    def test_each_way_the_parameters_once_per_worker(self):
        case = self.found["float32"]
        for first, second, size in (
            ("ps", "worker", case["trainable"]),
            ("worker", "ps", case["variables"]),  # with batch statistics
        ):
            # Two workers, of two towers each; beside the variables a few scalars.
            crossed = self._crossed("float32", first, second)
            self.assertBetween(crossed, 2 * size, 2 * size + 100)
        self.assertEqual(self._crossed("float32", "worker", "worker"), 0)

    def test_what_the_controller_moves_is_small(self):
        for first, second in (("chief", "/"), ("/", "chief")):
            self.assertLess(self._crossed("float32", first, second), 1000)

    def test_of_tables_only_the_touched_rows_cross(self):
        for name in ("tables", "parts"):
            case = self.found[name]
            # 2 workers x 2 towers x 4 examples, of a user and an item of 192 numbers
            # each, and which rows these are.
            rows = 16 * 2 * 4 * (192 + 2 * 2)
            whole = case["trainable"] - case["dense"]
            self.assertGreater(whole, 100 * rows)
            for first, second in (("ps", "worker"), ("worker", "ps")):
                crossed = self._crossed(name, first, second)
                sparse = crossed - 2 * case["dense"]
                self.assertBetween(sparse, 0.2 * rows, 1.1 * rows + 2000)
            self.assertEqual(self._crossed(name, "worker", "worker"), 0)

    def test_the_parts_of_a_table_are_on_several_tasks(self):
        on = self.found["parts"]["tasks"]
        held = {on[f"embeddings/user_dense/part_{k}"] for k in range(2)}
        self.assertEqual(held, {"/job:ps/task:0", "/job:ps/task:1"})
        self.assertIn("embeddings/user_dense", self.found["tables"]["tasks"])

    def test_every_worker_reads_its_own_share_of_the_input(self):
        devices = set(self.found["input"].values())
        self.assertEqual(
            devices, {f"/job:worker/task:{k}/device:CPU:0" for k in range(2)}
        )
        here, alone = self.found["labels"]
        self.assertEqual(here, alone)
        seen = [label for step in here for tower in step for label in tower]
        self.assertLen(set(seen), 4 * 4 * 3)

    def test_weights_travel_in_the_dtype_they_are_read_in(self):
        wide = self._crossed("float32", "ps", "worker")
        self.assertLess(self._crossed("bfloat16", "ps", "worker"), 0.6 * wide)


_PS, _WORKER = "/job:ps/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0"


class BringTest(absltest.TestCase):
    def _bring(self, *sizes: int, device: str = _WORKER) -> tuple[list, list]:
        """Float32 vectors of so many elements on the ps, and what is there of them."""
        with tf.device(_PS):
            sent = [tf.constant(float(size), shape=[size, 1]) for size in sizes]
        return sent, transfer.bring(sent, [device] * len(sent))

    def _senders(self, tensors) -> list[str]:
        """Of each tensor the one on the ps that crosses for it."""
        senders = []
        for tensor in tensors:
            while tensor.device != _PS:
                (tensor,) = [x for x in tensor.op.inputs if x.dtype == tf.float32]
            senders.append(tensor.name)
        return senders

    def test_small_ones_go_together_and_large_ones_alone(self):
        with tf.Graph().as_default():
            sent, there = self._bring(3, 2**17, 5, 2**16)
            self.assertIs(there[1], sent[1])
            self.assertEqual({x.device for x in (there[0], *there[2:])}, {_WORKER})
            self.assertEqual([x.shape for x in there], [x.shape for x in sent])
            first, large, *others = self._senders(there)
            self.assertEqual(others, [first, first])
            self.assertNotEqual(large, first)

    def test_a_bundle_is_no_larger_than_so_much(self):
        with tf.Graph().as_default():
            _, there = self._bring(*[2**15] * 17)  # 8 of them are a megabyte
            senders = self._senders(there)
            counts = [senders.count(x) for x in sorted(set(senders))]
            self.assertCountEqual(counts, [8, 8, 1])

    def test_what_goes_elsewhere_or_nowhere_is_apart(self):
        with tf.Graph().as_default():
            with tf.device(_PS):
                sent = [tf.constant(1.0), tf.constant(2.0), tf.constant(3.0)]
                sent += [tf.constant(4.0, tf.bfloat16), tf.constant(5.0)]
            other = _WORKER.replace("1", "0")
            to = [_WORKER, other, _PS, _WORKER, _WORKER]
            there = transfer.bring(sent, to)
            self.assertIsNot(there[0], sent[0])
            for index in (1, 2, 3):
                self.assertIs(there[index], sent[index])
            self.assertEqual(*self._senders([there[0], there[4]]))

    def test_values_come_through(self):
        values = [np.arange(6.0).reshape(2, 3), np.float64(7.0), np.ones([1, 2])]
        with tf.Graph().as_default() as graph, tf.device(_PS):
            there = transfer.bring([tf.constant(x) for x in values], [_WORKER] * 3)
            nodes = graph.as_graph_def().node
        with tf.Graph().as_default():
            for node in nodes:
                node.device = ""  # this process has no such tasks
            actual = tf.import_graph_def(
                v1.GraphDef(node=nodes), return_elements=[x.name for x in there]
            )
            with v1.Session() as session:
                for value, wanted in zip(session.run(actual), values):
                    np.testing.assert_array_equal(value, wanted)


class StepTest(absltest.TestCase):
    """How many values and signals cross in a step of a model of 100 variables."""

    def _crossing(self, graph: tf.Graph) -> collections.Counter:
        """(job, job) -> so many, each once for a task that gets it."""
        crossing = set()
        for op in graph.get_operations():
            here = placement.task_of(op.device) or "chief"
            for name, device in (
                *((x.name, x.device) for x in op.inputs),
                *((x.name, x.device) for x in op.control_inputs),
            ):
                there = placement.task_of(device) or "chief"
                if there != here:
                    crossing.add((name, there, here))
        return collections.Counter(
            tuple(re.sub(r"/job:|/task:\d+", "", end) for end in ends)
            for _, *ends in crossing
        )

    def test_few_messages_however_many_variables(self):
        spec = cluster_spec.from_hosts(
            "chief", 0, ps=["a:1"], workers=["b:1", "b:2"], controller="c:1"
        )
        where = placement.on_cluster(spec, 2, kind="cpu")
        train = graph.build(
            models.get("resnet20"),
            trainer.random_source((32, 32, 3), 10),
            trainer.MOMENTUM,
            placement=where,
            options=graph.Options(batch_size=2),
        )
        self.assertGreater(len(train.mode.variables), 90)
        steps = tf.Graph()
        with steps.as_default():
            needed = v1.graph_util.extract_sub_graph(
                train.graph.as_graph_def(), [train.train_op.name]
            )
            tf.import_graph_def(needed, name="")
        crossing = self._crossing(steps)
        # 1.1 MB of parameters in bundles of at most 1 MB, to each of two workers; as
        # many back, and the batch statistics of each.
        self.assertEqual(crossing["ps", "worker"], 2 * 2)
        self.assertEqual(crossing["worker", "ps"], 2 * (2 + 1))


class ArrivalsTest(absltest.TestCase):
    def test_all_at_once_is_one_by_one(self):
        arrive = transfer.Arrivals()
        with tf.Graph().as_default():
            with tf.device(_PS):
                x, y, z = tf.constant(1.0), tf.constant(2.0), tf.zeros([2**17])
            there = arrive.all({"x": x, "y": y, "z": z}, _WORKER)
            self.assertEqual(list(there), ["x", "y", "z"])
            for name, sent in (("x", x), ("y", y), ("z", z)):
                self.assertEqual(there[name].device, _WORKER)
                self.assertIs(arrive(sent, _WORKER), there[name])
            again = arrive.all({"y": y, "x": x}, _WORKER)
            self.assertIs(again["x"], there["x"])

    def test_a_value_arrives_once_on_another_task(self):
        arrive = transfer.Arrivals()
        with tf.Graph().as_default():
            with tf.device("/job:ps/task:0/device:CPU:0"):
                x = tf.constant(1.0)
            host = "/job:worker/task:1/device:CPU:0"
            there = arrive(x, host)
            self.assertEqual(there.device, host)
            self.assertIs(arrive(x, host), there)
            self.assertIs(arrive(x, "/job:ps/task:0/device:CPU:1"), x)
            self.assertIs(arrive(there, host), there)

    def test_in_one_process_nothing_is_copied(self):
        with tf.Graph().as_default():
            with tf.device("/device:GPU:1"):
                x = tf.constant(1.0)
            self.assertIs(transfer.Arrivals()(x, "/device:CPU:0"), x)

    def test_small_ones_go_to_a_tower_together(self):
        cpus = [f"/device:CPU:{k}" for k in range(4)]
        arrive = transfer.Arrivals()
        with tf.Graph().as_default() as graph:
            with tf.device(cpus[0]):
                values = {
                    "a": tf.constant([1.0, 2.0]),
                    "b": tf.constant([[3.0], [4.0]]),
                    "large": tf.zeros([2**13]),
                    "narrow": tf.constant(5.0, tf.bfloat16),
                }
            with tf.device(cpus[1]):
                values["here"] = tf.constant(6.0)
            self.assertEqual(arrive.beside(values, cpus[2:]), values)
            first, second = (arrive.beside(values, [cpu]) for cpu in cpus[1:3])
            for name in ("large", "narrow", "here"):
                self.assertIs(first[name], values[name])
            self.assertEqual([first[name].device for name in "ab"], [cpus[1]] * 2)
            self.assertEqual([second[name].device for name in "ab"], [cpus[2]] * 2)
            joined = [op for op in graph.get_operations() if op.type == "ConcatV2"]
            self.assertLen(joined, 1)  # once for both towers
            self.assertEqual(joined[0].device, cpus[0])
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 4})) as session:
                actual = session.run(
                    [(item["a"], item["b"]) for item in (first, second)]
                )
        for a, b in actual:
            np.testing.assert_array_equal(a, [1.0, 2.0])
            np.testing.assert_array_equal(b, [[3.0], [4.0]])


class SummedTest(absltest.TestCase):
    def _add(self, shares, device):
        self.calls.append((device, [share.shape.as_list() for share in shares]))
        with tf.device(device):
            return tf.add_n(shares)

    def test_small_ones_as_one_vector(self):
        self.calls = []
        shapes, cpus = [(2,), (2**13,), (1, 3), ()], ["/device:CPU:0", "/device:CPU:1"]
        with tf.Graph().as_default():
            shares = []
            for number, shape in enumerate(shapes):
                expected = []
                for k, cpu in enumerate(cpus):
                    with tf.device(cpu):
                        expected.append(tf.fill(shape, float(10 * number + k)))
                shares.append(expected)
            sums = transfer.summed(shares, [cpus[0]] * 4, self._add)
            self.assertEqual({item.device for item in sums}, {cpus[0]})
            self.assertEqual(
                self.calls, [(cpus[0], [[6]] * 2), (cpus[0], [[2**13]] * 2)]
            )
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
                actual = session.run(sums)
        for number, (shape, item) in enumerate(zip(shapes, actual)):
            np.testing.assert_array_equal(item, np.full(shape, 20.0 * number + 1))

    def test_what_goes_nowhere_is_summed_alone(self):
        self.calls = []
        with tf.Graph().as_default(), tf.device("/device:CPU:0"):
            first, second = tf.ones([2]), tf.ones([3])
            transfer.summed(
                [[first, first], [second, second]], ["/device:CPU:0"] * 2, self._add
            )
        self.assertLen(self.calls, 2)


class WireTest(parameterized.TestCase):
    @parameterized.parameters(tf.bfloat16, tf.float16)
    def test_numbers_against_numpy(self, dtype):
        values = np.random.default_rng(1).normal(size=99).astype("f4")
        rounded = values.astype(dtype.as_numpy_dtype).astype("f4")
        self.assertFalse(np.array_equal(values, rounded))
        wire = Wire(dtype)
        with tf.Graph().as_default():
            with tf.device(_HERE):
                tensor = tf.constant(values)
            results = {
                "carried": wire.carry(tensor, _HERE, _THERE),
                "copied": wire.copy(tensor, _HERE, _THERE),
                "rounded": wire.rounded(tensor, _HERE),
                "spread": wire.spread(tensor, _HERE, [_HERE, _THERE]),
                # Sending rounded values once more rounds nothing.
                "on": wire.carry(wire.rounded(tensor, _HERE), _HERE, _THERE),
            }
            kept = wire.carry(tensor, _HERE, _HERE), wire.copy(tensor, _HERE, _HERE)
            for tensors in (kept, *results.values()):
                for each in tf.nest.flatten(tensors):
                    self.assertEqual(each.dtype, tf.float32)
            with v1.Session(config=v1.ConfigProto(device_count={"CPU": 2})) as session:
                results, kept = session.run((results, kept))
        for name, value in results.items():
            for copy in value if name == "spread" else [value]:
                np.testing.assert_array_equal(copy, rounded, err_msg=name)
        for value in kept:
            np.testing.assert_array_equal(value, values)

    def test_widen_keeps_float32_as_it_is(self):
        with tf.Graph().as_default():
            shares = [tf.ones([2]), tf.ones([2])]
            self.assertEqual(transfer.widen(shares, ["/device:CPU:0"]), shares)

    def test_float32_costs_nothing(self):
        wire = Wire()
        self.assertFalse(wire.narrow)
        with tf.Graph().as_default() as graph:
            tensor = tf.ones([3])
            before = len(graph.get_operations())
            self.assertIs(wire.carry(tensor, _HERE, _THERE), tensor)
            self.assertIs(wire.rounded(tensor, _HERE), tensor)
            self.assertEqual(wire.spread(tensor, _HERE, "ab"), [tensor, tensor])
            self.assertLen(graph.get_operations(), before)
            self.assertEqual(wire.copy(tensor, _HERE, _THERE).device, _THERE)
