"""The mean of dense, sparse and missing gradients, on the devices asked for."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import graph_test_case
from towers.gradients import mean


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
            [[mean_made]] = mean.of_towers(shares, [[ps]], hosts=hosts, dtype=dtype)
            self.assertEqual((mean_made.device, mean_made.dtype), (ps, tf.float32))
            self.assertEqual(
                graph_test_case.crossing(graph), {"ps/0": 2 * num_bytes * 60}
            )
            # From a tower to its host it is the 16 bits of its compute.
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
            means = mean.of_towers(shares, [[root]] * 2, hosts=hosts)
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
            mean.of_towers(shares, [[ps], [ps]], hosts=hosts)
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
            [[mean_made]] = mean.of_towers(shares, [["/device:CPU:0"]], dtype=dtype)
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
            means = mean.of_towers(shares, [[device] for device in wanted])
            self.assertEqual([copies[0].device for copies in means], wanted)
            np.testing.assert_array_equal(
                graph_test_case.run_on_cpus(means[1][0]), [2, 2, 2]
            )

    def test_sparse_rows_stay_sparse_and_each_stands_once(self):
        with tf.Graph().as_default():
            shares = [
                [tf.IndexedSlices(tf.ones([2, 3]) * k, [0, k], [4, 3])] for k in (1, 2)
            ]
            [copies] = mean.of_towers(shares, [["/device:CPU:0", "/device:CPU:1"]])
            self.assertLen(copies, 2)
            values, indices = graph_test_case.run_on_cpus(
                (copies[1].values, copies[1].indices)
            )
        np.testing.assert_array_equal(indices, [0, 1, 2])
        np.testing.assert_array_equal(values[:, 0], [3, 1, 2])

    def test_none_in_all_towers_stays_none(self):
        self.assertEqual(mean.of_towers([[None], [None]], [["d"]]), [[None]])

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
                mean.of_towers(shares, [["/device:CPU:0"]] * 3, names=["a", "b", "c"])
        self.assertEqual(
            str(caught.exception),
            "the towers' gradients differ in kind: 'a' has a dense gradient in tower 0 "
            "and a missing one in tower 1, 3; 'c' has a missing gradient in tower 0 "
            "and a sparse one in tower 1, 3; all towers must compute the same",
        )
