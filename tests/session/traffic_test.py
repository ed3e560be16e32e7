"""What crosses between devices, beside what a session sends and what must be sent."""

import re
from collections import defaultdict

import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers import graph
from towers.gradients.exchange import GradientExchange
from towers.layout import cluster_spec, placement
from towers.optimizers import optimizer
from towers.optimizers.learning_rate import Piecewise
from towers.session import loop, traffic
from towers.variable_update.modes import VARIABLE_UPDATES

v1 = tf.compat.v1

_SIZE = 4 * (16 * 16 + 16 + 16 * 5 + 5)  # bytes of the dense model's parameters
_LITTLE = 300  # bytes for examples, counters and losses


def _build(where, model=None, update=trainer.MOMENTUM, **options):
    source = trainer.random_source()
    options = graph.Options(batch_size=2, **options)
    model_built = model or trainer.dense_model()
    return graph.build(model_built, source, update, placement=where, options=options)


def _ring(towers: int):
    exchange = GradientExchange(all_reduce_spec="xring")
    where = placement.local(towers, kind="cpu")
    return _build(where, variable_update="replicated", exchange=exchange)


class TrafficTest(parameterized.TestCase):
    def test_parameter_server_sends_each_tower_all_and_gets_as_much(self):
        flows = traffic.of(_build(placement.local(3, kind="cpu")))
        devices = [f"/device:CPU:{k}" for k in range(3)]
        self.assertEqual(flows.devices, devices)
        first, *others = devices
        pairs = [(first, d) for d in others] + [(d, first) for d in others]
        self.assertCountEqual(flows.sent, pairs)
        for sent in flows.sent.values():
            self.assertBetween(sent.bytes, _SIZE, _SIZE + _LITTLE)
            self.assertEqual(sent.unknown, 0)
        self.assertEqual(flows.bytes, sum(sent.bytes for sent in flows.sent.values()))
        # The variables, a slot of each, two int64 counters, and the seconds waited.
        held = f"variables {(2 * _SIZE + 24) / 1e3:.3g} kB"
        self.assertEqual(flows.holds[first][0], held)
        self.assertStartsWith(flows.holds[devices[1]][0], "operations of tower_1 ")

    def test_a_ring_sends_to_the_next(self):
        flows, n = traffic.of(_ring(4)), 4
        large = {
            pair: sent.bytes for pair, sent in flows.sent.items() if sent.bytes > _SIZE
        }
        devices = flows.devices
        self.assertCountEqual(large, zip(devices, devices[1:] + devices[:1]))
        for size in large.values():
            # In each of two rounds, each device sends all but one of the n parts.
            wanted = 2 * _SIZE * (n - 1) / n
            self.assertBetween(size, wanted - _LITTLE, wanted + _LITTLE)

    def test_what_the_graph_does_not_know_is_said(self):
        embedding = traffic.of(
            _build(placement.local(2, kind="cpu"), trainer.embedding_model())
        )
        self.assertEqual({s.unknown for s in embedding.sent.values()}, {0})
        with tf.Graph().as_default():
            unknown = v1.placeholder(tf.float32, [None])
            sent = traffic._sent([unknown, tf.zeros([2, 3])], traffic.Transfer(5, 7, 9))
        self.assertEqual(sent, traffic.Transfer(tensors=7, bytes=31, unknown=10))

    def test_scopes(self):
        train = _build(placement.local(2, kind="cpu"))
        scopes = traffic.of_scopes(train)
        names = ["input", "variables", "tower_0", "tower_1", "reduction", "update"]
        self.assertContainsSubset(names, scopes.by_name)
        self.assertEqual(scopes.by_name["variables"].variable_bytes, 2 * _SIZE + 16)
        tower = scopes.by_name["tower_1"]
        self.assertEqual(tower.devices, ["/device:CPU:1"])
        self.assertContainsSubset(["logits", "gradients"], tower.parts)
        self.assertEqual({*tower.parts.values()}, {"/device:CPU:1"})
        for pair in ("variables", "tower_1"), ("reduction", "update"):
            self.assertEqual(scopes.sent[pair].bytes, _SIZE)
        self.assertNotIn(("tower_0", "tower_1"), scopes.sent)

    @parameterized.parameters(
        "parameter_server", "replicated", "distributed_replicated", "staged", "relaxed"
    )
    def test_is_what_a_session_sends(self, mode):
        where = placement.local(3, kind="cpu")
        train = _build(where, variable_update=mode)
        config = placement.session_config(where)
        with v1.Session(graph=train.graph, config=config) as session:
            loop.start(train, session, lambda session: None)
            metadata = v1.RunMetadata()
            options = v1.RunOptions(output_partition_graphs=True)
            session.run(train.train_op, options=options, run_metadata=metadata)
        sent = defaultdict(set)
        for node in (n for part in metadata.partition_graphs for n in part.node):
            if node.op == "_Recv":
                ends = (node.attr[end].s.decode() for end in _ENDS)
                name = re.sub(r"^edge_\d+_", "", node.attr["tensor_name"].s.decode())
                sent[tuple(end.split("task:0")[1] for end in ends)].add(name)
        # Control signals are sent, too; of equal constants TensorFlow keeps one.
        operations = train.graph.get_operations()
        signals = {before.name for op in operations for before in op.control_inputs}
        constants = {op.name for op in operations if op.type == "Const"}

        def device(op: tf.Operation) -> str:
            return traffic.device_of(op, where.master)

        crossing = traffic.crossing(train.train_op, device)
        for pair, tensors in crossing.items():
            names = {tensor.op.name for tensor in tensors}
            self.assertContainsSubset(sent[pair] - names, signals, pair)
            self.assertContainsSubset(names - sent[pair], constants, pair)
        for pair in sent.keys() - crossing.keys():
            self.assertContainsSubset(sent[pair], signals, pair)


_ENDS = ("send_device", "recv_device")


def _job(device: str) -> str:
    """`ps` of `/job:ps/task:0/device:CPU:0`."""
    return device.split(":")[1].split("/")[0]


class SizesTest(parameterized.TestCase):
    @parameterized.parameters(
        (0, "0 B"),
        (999, "999 B"),
        (1234, "1.23 kB"),
        (4e7, "40 MB"),
        (5e12, "5e+03 GB"),
    )
    def test_sizes(self, count, wanted):
        self.assertEqual(traffic.in_bytes(count), wanted)


class UpdateTest(parameterized.TestCase):
    """On a cluster the controller gets, and gives, numbers alone."""

    def _placement(self, towers: int) -> placement.Placement:
        """Of so many on each of two workers."""
        spec = cluster_spec.from_hosts(
            "chief", 0, ps=["a:1", "a:2"], workers=["b:1", "b:2"], controller="c:1"
        )
        return placement.on_cluster(spec, towers, kind="cpu")

    def _check(self, **options):
        train = _build(self._placement(1), **options)
        flows = traffic.of(train)
        master = train.placement.master
        for pair, sent in flows.sent.items():
            if master in pair:
                self.assertLess(sent.bytes, 100, pair)
            self.assertLess(sent.bytes, _SIZE * 2, pair)
        for op in traffic.reached(train.train_op):
            if not op.device and op.type not in ("NoOp", "VarHandleOp"):
                self.assertEqual(op.inputs[0].dtype, tf.resource, op.name)

    @parameterized.parameters(
        ("parameter_server", 1, 1), ("staged", 1, 1), ("asynchronous", 2, 2)
    )
    def test_of_two_towers_on_a_worker(self, mode, reads, writes):
        """Variables go there once, unless each tower takes steps of its own."""
        flows = traffic.of(_build(self._placement(2), variable_update=mode))
        crossed = defaultdict(int)
        for pair, sent in flows.sent.items():
            crossed[tuple(map(_job, pair))] += sent.bytes
        for pair, times in (("ps", "worker"), reads), (("worker", "ps"), writes):
            wanted = 2 * times * _SIZE
            self.assertBetween(crossed[pair], wanted, wanted + 2 * _LITTLE)

    @parameterized.parameters(sorted(optimizer.OPTIMIZERS))
    def test_of_every_optimizer(self, name):
        rate = Piecewise((0.1,))
        limits = dict(clip_value=1.0, clip_norm=1.0, ema_decay=0.9, weight_decay=1e-3)
        self._check(update=optimizer.Update(name, rate, **limits))

    @parameterized.parameters(
        sorted(set(VARIABLE_UPDATES) - {"auto", "distributed_replicated"})
    )
    def test_of_every_mode(self, mode):
        self._check(variable_update=mode)
