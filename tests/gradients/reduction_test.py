"""Every reduction gives the sum of the towers' shares, on every device."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graph_test_case
from towers.gradients import reduction
from towers.gradients.transfer import Wire, towers_by_host


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
            means = reduction.mean_of_towers(
                shares,
                [devices, devices],
                reduce_all=reduction.in_float32(reduction.each(reduce)),
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
            # elements are sent to the upper half, and back
            between = {True: 0, False: 0}
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
        self.assertEqual(towers_by_host(["b", "a", "b"]), [[0, 2], [1]])


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


class MeanTest(parameterized.TestCase):
    @parameterized.parameters((None, 4), (tf.bfloat16, 2))
    def test_a_servers_gradient_is_added_on_each_host_first(self, dtype, num_bytes):
        ps = "/job:ps/task:0/device:CPU:0"
        towers = [f"/job:worker/task:{k // 3}/device:GPU:{k % 3}" for k in range(6)]
        hosts = [f"/job:worker/task:{k // 3}/device:CPU:0" for k in range(6)]
        with tf.Graph().as_default() as graph:
            shares = []
            for tower in towers:
                with tf.device(tower):
                    shares.append([tf.cast(tf.ones([60]), tf.bfloat16)])
            [[mean_made]] = reduction.mean_of_towers(
                shares, [[ps]], hosts=hosts, dtype=dtype
            )
            self.assertEqual((mean_made.device, mean_made.dtype), (ps, tf.float32))
            self.assertEqual(
                graph_test_case.crossing(graph), {"ps/0": 2 * num_bytes * 60}
            )
            # A tower sends its host the 16 bits that it computed.
            to_hosts = {
                tensor.dtype
                for op in graph.get_operations()
                for tensor in op.inputs
                if op.device in hosts and tensor.device in towers
            }
            self.assertEqual(to_hosts, {tf.bfloat16})

    @parameterized.parameters((6,), (1, 5), (3, 3), (2, 1, 4))
    def test_every_tower_of_a_host_counts_once(self, *towers_of):
        """Tower k has the gradient 2^k, so that the sum tells who is in it."""
        hosts = [f"/device:CPU:{k}" for k, n in enumerate(towers_of) for _ in range(n)]
        with tf.Graph().as_default():
            shares = []
            for k, host in enumerate(hosts):
                with tf.device(host):
                    shares.append([tf.fill([3], 2.0**k), tf.fill([700], 2.0**k)])
            root = "/device:CPU:7"
            means = reduction.mean_of_towers(shares, [[root]] * 2, hosts=hosts)
            means_read = graph_test_case.run_on_cpus([copy for [copy] in means])
        for value in means_read:
            np.testing.assert_array_equal(value, 2.0 ** len(hosts) - 1)

    @parameterized.parameters(1, 2)
    def test_each_worker_adds_up_before_it_sends(self, num_workers):
        """Also a single one, if the variable lies elsewhere; dense ones and rows."""
        ps = "/job:ps/task:0/device:CPU:0"
        hosts = [f"/job:worker/task:{k // 2}/device:CPU:0" for k in range(4)]
        hosts = hosts[: 2 * num_workers]
        with tf.Graph().as_default() as graph:
            shares = []
            for k, host in enumerate(hosts):
                with tf.device(f"{host[:-5]}GPU:{k % 2}"):
                    rows = tf.IndexedSlices(tf.ones([2, 3]), [0, 1], [4, 3])
                    shares.append([tf.ones([60]), rows])
            reduction.mean_of_towers(shares, [[ps], [ps]], hosts=hosts)
            added = {"AddN": set(), "SegmentSum": set()}
            for op in graph.get_operations():
                if op.type in added:
                    added[op.type].add(op.device)
        for kind, devices in added.items():
            self.assertContainsSubset(hosts, devices, kind)

    @parameterized.parameters(
        (None, tf.bfloat16, tf.bfloat16),
        (None, tf.float32, tf.float32),
        (tf.float32, tf.bfloat16, tf.float32),
        (tf.float16, tf.float32, tf.float16),
    )
    def test_gradients_travel_in_the_dtype_asked_for(self, dtype, computed, travels):
        values = np.random.default_rng(0).normal(size=(2, 30)).astype("f4")
        values = values.astype(computed.as_numpy_dtype)
        with tf.Graph().as_default() as graph:
            shares = []
            for k in (1, 2):
                with tf.device(f"/device:CPU:{k}"):
                    shares.append([tf.constant(values[k - 1])])
            [[mean_made]] = reduction.mean_of_towers(
                shares, [["/device:CPU:0"]], dtype=dtype
            )
            arriving = {
                tensor.dtype
                for op in graph.get_operations()
                for tensor in op.inputs
                if op.device == "/device:CPU:0" and tensor.device != op.device
            }
            self.assertEqual(arriving, {travels})
            mean_made = graph_test_case.run_on_cpus(mean_made)
        wanted = values.astype(travels.as_numpy_dtype).astype("f4").sum(0)
        np.testing.assert_array_equal(mean_made, wanted)

    def test_by_default_each_mean_is_formed_where_its_variable_lies(self):
        with tf.Graph().as_default():
            shares = [[tf.ones([2]), tf.ones([3])]] * 2
            wanted = ["/device:CPU:1", "/device:CPU:0"]
            means = reduction.mean_of_towers(shares, [[device] for device in wanted])
            self.assertEqual([copies[0].device for copies in means], wanted)
            np.testing.assert_array_equal(
                graph_test_case.run_on_cpus(means[1][0]), [2, 2, 2]
            )

    def test_sparse_rows_stay_sparse_and_each_stands_once(self):
        with tf.Graph().as_default():
            shares = [
                [tf.IndexedSlices(tf.ones([2, 3]) * k, [0, k], [4, 3])] for k in (1, 2)
            ]
            [copies] = reduction.mean_of_towers(
                shares, [["/device:CPU:0", "/device:CPU:1"]]
            )
            self.assertLen(copies, 2)
            values, indices = graph_test_case.run_on_cpus(
                (copies[1].values, copies[1].indices)
            )
        np.testing.assert_array_equal(indices, [0, 1, 2])
        np.testing.assert_array_equal(values[:, 0], [3, 1, 2])

    def test_none_in_all_towers_stays_none(self):
        self.assertEqual(reduction.mean_of_towers([[None], [None]], [["d"]]), [[None]])

    def test_gradients_that_differ_in_kind_are_an_error_that_names_the_variables(self):
        with tf.Graph().as_default():
            dense, rows = tf.ones([2]), tf.IndexedSlices(tf.ones([1]), [0], [2])
            shares = [
                [dense, dense, None],
                [None, dense, rows],
                [dense, dense, None],
                [None, dense, dense],
            ]
            with self.assertRaises(ValueError) as caught:
                reduction.mean_of_towers(
                    shares, [["/device:CPU:0"]] * 3, names=["a", "b", "c"]
                )
        self.assertEqual(
            str(caught.exception),
            "the towers' gradients differ in kind: 'a' has a dense gradient in tower 0 "
            "and a missing one in tower 1, 3; 'c' has a missing gradient in tower 0 "
            "and a sparse one in tower 1, 3; all towers must compute the same",
        )
