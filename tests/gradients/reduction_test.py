"""Every reduction gives the sum of the towers' shares, on every device."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graph_test_case
from towers.gradients import mean, reduction
from towers.gradients.transfer import Wire


class ReductionTest(parameterized.TestCase):
    @parameterized.product(
        text=(
            *reduction.usable("cpu"),
            "xring#2",
            "hierarchical#3",
            "collective#2",
            "pscpu#2",
            "pscpu/pscpu",
            "pscpu#2/pscpu#2",
            "tree/xring",
            "collective/rechd",
            "collective/hierarchical",
            "pscpu:24:rechd#2",
            "pscpu:8:tree:64:xring",
        ),
        num_towers=(1, 2, 3, 8),
        wire=(tf.float32, tf.bfloat16),
    )
    def test_every_spec_gives_the_mean_on_every_device(self, text, num_towers, wire):
        rng = np.random.default_rng(num_towers)
        values = rng.integers(-8, 8, (num_towers, 5, 3)).astype(np.float32)
        devices = [f"/device:CPU:{i}" for i in range(num_towers)]
        hosts = [
            devices[num_towers // 2 * (k >= num_towers // 2)] for k in range(num_towers)
        ]
        with tf.Graph().as_default():
            shares = []
            for device, value in zip(devices, values):
                with tf.device(device):
                    shares.append([tf.constant(value), tf.constant(value[0])])
            reduce = reduction.from_spec(text, hosts, Wire(wire))
            means = mean.of_towers(
                shares,
                [devices, devices],
                reduce_all=mean.in_float32(mean.each(reduce)),
            )
            self.assertLen(means[1], num_towers)
            actual = graph_test_case.run_on_cpus(means)
        for copies, wanted in zip(actual, (values.sum(0), values[:, 0].sum(0))):
            for copy in copies:
                np.testing.assert_array_equal(copy, wanted)

    @parameterized.parameters(*reduction.usable("cpu"), "tree/xring")
    def test_copies_are_bit_equal_and_repeat(self, text):
        rng = np.random.default_rng(5)
        values = rng.normal(size=(4, 1001)).astype("f4")
        devices = [f"/device:CPU:{i}" for i in range(4)]
        for wire, ulp in ((tf.float32, 2.0**-24), (tf.float16, 2.0**-11)):
            with tf.Graph().as_default():
                shares = []
                for device, value in zip(devices, values):
                    with tf.device(device):
                        shares.append(tf.constant(value))
                hosts = [devices[0]] * 2 + [devices[2]] * 2
                reduce = reduction.from_spec(text, hosts, Wire(wire))
                sums = reduce(shares, devices)
                copies = np.concatenate(
                    [graph_test_case.run_on_cpus(sums) for _ in range(5)]
                )
            self.assertLen(np.unique(copies, axis=0), 1)
            bound = 5 * ulp * np.abs(values).sum(0)
            self.assertTrue(np.all(np.abs(copies[0] - values.sum(0)) <= bound))

    @parameterized.parameters(
        ("pscpu/pscpu", 1),
        ("hierarchical", 1),
        ("tree/xring#2", 1),
        ("nccl/rechd", 1),
        ("collective/psgpu", 1),
    )
    def test_a_tensor_crosses_the_network_once_each_way(self, text, times):
        """Two hosts of three towers: what comes to a host is one tensor's bytes."""
        size = 60
        towers = [f"/job:worker/task:{k // 3}/device:GPU:{k % 3}" for k in range(6)]
        hosts = [f"/job:worker/task:{k // 3}/device:CPU:0" for k in range(6)]
        with tf.Graph().as_default() as graph:
            shares = []
            for tower in towers:
                with tf.device(tower):
                    shares.append(tf.ones([size]))
            reduction.from_spec(text, hosts)(shares, towers)
            received = graph_test_case.crossing(graph)
        self.assertEqual(received, dict.fromkeys(received, times * 4 * size))
        self.assertNotEmpty(received)

    @parameterized.parameters((2, 0), (3, 0), (4, 2), (5, 2), (8, 4))
    def test_hierarchical_on_one_host_makes_two_groups_of_its_halves(self, count, half):
        """One tensor goes each way between them; with fewer than four, one group."""
        size = 60
        towers = [f"/device:CPU:{k}" for k in range(count)]
        with tf.Graph().as_default() as graph:
            shares = []
            for tower in towers:
                with tf.device(tower):
                    shares.append(tf.ones([size]))
            reduce = reduction.from_spec("hierarchical", ["/device:CPU:0"] * count)
            sums = reduce(shares, towers)
            between = {True: 0, False: 0}  # elements to the upper half, and back
            sent = set()
            for op in graph.get_operations():
                for tensor in op.inputs:
                    sides = [towers.index(x.device) >= half for x in (op, tensor)]
                    crosses = half and sides[0] != sides[1]
                    if crosses and (tensor.name, op.device) not in sent:
                        sent.add((tensor.name, op.device))
                        between[sides[0]] += tensor.shape.num_elements()
            for copy in graph_test_case.run_on_cpus(sums):
                np.testing.assert_array_equal(copy, np.full([size], count))
        each_way = size if half else 0
        self.assertEqual(between, {True: each_way, False: each_way})

    def test_shards_are_added_on_the_hosts_in_turn(self):
        hosts = [f"/job:worker/task:{k}/device:CPU:0" for k in range(2)]
        with tf.Graph().as_default() as graph:
            shares = []
            for host in hosts:
                with tf.device(host):
                    shares.append(tf.ones([60]))
            reduction.from_spec("pscpu#2", hosts)(shares, hosts)
            added = [op.device for op in graph.get_operations() if op.type == "AddN"]
        self.assertEqual(added, hosts)

    def test_a_size_is_the_largest_of_its_range(self):
        devices = [f"/device:CPU:{k}" for k in range(2)]
        reduce = reduction.from_spec("pscpu:8:xring", devices)
        for elements, kinds in ((2, {"AddN"}), (3, {"AddV2"})):
            with tf.Graph().as_default() as graph:
                reduce([tf.ones([elements])] * 2, devices)
                types = {op.type for op in graph.get_operations()}
            self.assertEqual(types & {"AddN", "AddV2"}, kinds)

    def test_towers_of_a_host_stay_in_order(self):
        self.assertEqual(reduction.towers_by_host(["b", "a", "b"]), [[0, 2], [1]])


class CheckTest(parameterized.TestCase):
    @parameterized.parameters(
        "nccl", "nccl/xring", "nccl/rechd", "nccl/pscpu", "pscpu/pscpu", "psgpu#4"
    )
    def test_names_of_tf_cnn_benchmarks_are_legal_on_gpus(self, text):
        reduction.check(text, kind="gpu", hosts=["h"] * 4)

    @parameterized.parameters(
        ("nccl", "cpu", 1, "at character 1, nccl runs on GPU devices only, and the t"),
        ("pscpu:1k:nccl#2", "cpu", 1, "at character 10, nccl runs on GPU devices only"),
        ("nccl", "logical gpu", 1, "runs on GPU devices only.* on logical GPU devices"),
        ("nccl/pscpu", "cpu", 2, "at character 1, nccl runs on GPU devices only"),
        ("nccl", "gpu", 2, "at character 1, nccl works inside a host, .* write nccl/x"),
        ("nccl/xring:1k:nccl#2", "gpu", 2, "at character 15, nccl .* are on 2; write"),
        ("pscpu/nccl", "gpu", 2, "at character 7, nccl works inside a host only"),
        ("none", "gpu", 1, "at character 1, 'none' is no algorithm; there are pscpu,"),
        ("tree:1k:xrung", "gpu", 1, "at character 9, .* did you mean xring"),
    )
    def test_what_devices_cannot_do_is_refused(self, text, kind, num_hosts, reason):
        with self.assertRaisesRegex(
            ValueError, f"^all_reduce_spec=(?:{text}|'{text}'): .*{reason}"
        ):
            reduction.check(text, kind=kind, hosts=["a", "b"][:num_hosts] * 2)

    @parameterized.parameters("gpu", "logical gpu")
    def test_what_collectives_cannot_add_on_gpus(self, kind):
        text, hosts = "pscpu:1k:collective", ["h"] * 2
        reason = (
            "character 10, collective cannot add bfloat16.*transfer=float16, or.*ree"
        )
        with self.assertRaisesRegex(ValueError, reason):
            reduction.check(text, kind=kind, hosts=hosts, wire=tf.bfloat16)
        for dtype in (tf.float32, tf.float16):
            reduction.check(text, kind=kind, hosts=hosts, wire=dtype)
        reduction.check(text, kind="cpu", hosts=hosts, wire=tf.bfloat16)
        left = set(reduction.usable(kind)) - set(reduction.usable(kind, tf.bfloat16))
        self.assertContainsSubset({"collective"}, left)
        self.assertContainsSubset(left, {"collective", "nccl"})

    def test_what_any_device_has(self):
        for kind in ("cpu", "logical gpu"):
            self.assertNotIn("nccl", reduction.usable(kind))
        self.assertEqual(reduction.usable("gpu"), list(reduction.REDUCTIONS))
