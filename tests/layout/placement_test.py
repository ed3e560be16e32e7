"""Device strings, groups and errors of placements."""

import dataclasses
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from towers.layout import cluster_spec, placement
from towers.layout.gpus import Gpus


class PlacementTest(parameterized.TestCase):
    def test_what_a_session_calls_a_device(self):
        job, there = "/job:worker/task:1", "/job:worker/replica:0/task:1/device:CPU:1"
        full_name = "/job:localhost/replica:0/task:0/device:CPU:1"
        for name in (f"{job}/device:CPU:1", "/device:CPU:1"):
            self.assertTrue(placement.is_called(name, there))
        self.assertTrue(placement.is_called("/device:CPU:1", full_name))
        for name in (f"{job}/device:CPU:0", f"{job}/device:GPU:1", "/device:CPU:11"):
            self.assertFalse(placement.is_called(name, there))
        self.assertFalse(placement.is_called(f"{job}/device:CPU:1", full_name))

    @parameterized.parameters(1, 2, 4, 8)
    def test_logical_cpu_devices_when_no_gpu_is_visible(self, num_towers):
        if tf.config.list_physical_devices("GPU"):
            self.skipTest("this machine has a GPU")
        where = placement.local(num_towers)
        self.assertEqual(where.kind, "cpu")
        self.assertEqual(
            where.towers, tuple(f"/device:CPU:{i}" for i in range(num_towers))
        )
        self.assertEqual(where.parameters, ("/device:CPU:0",))
        self.assertEqual(where.groups, [("/device:CPU:0", list(where.towers))])
        self.assertIn("No GPU is visible", where.notice)
        self.assertEqual(
            placement.session_config(where).device_count["CPU"], num_towers
        )

    def test_asking_for_cpu_needs_no_notice(self):
        self.assertEqual(placement.local(2, kind="cpu").notice, "")

    @parameterized.parameters((0, "cpu"), (-1, "auto"), (2, "tpu"))
    def test_places_that_there_are_not(self, num_towers, kind):
        with self.assertRaisesRegex(
            ValueError, "write 1 or more, and auto, cpu or gpu"
        ):
            placement.local(num_towers, kind=kind)

    def test_logical_gpus(self):
        gpu = tf.config.PhysicalDevice("GPU:0", "GPU")
        with mock.patch.object(tf.config, "list_physical_devices", return_value=[gpu]):
            placed = placement.local(4, gpus=Gpus(split=4), num_stages=2)
        self.assertEqual(placed.devices, tuple(f"/device:GPU:{k}" for k in range(4)))
        self.assertIn("4 logical GPUs", placed.notice)
        self.assertEqual((placed.kind, placed.device_kind), ("gpu", "logical gpu"))
        for where, wanted in ((placed, 4), (placement.local(4, kind="cpu"), 0)):
            options = placement.session_config(where).gpu_options.experimental
            self.assertEqual(options.num_virtual_devices_per_gpu, wanted)

    def test_every_session_takes_the_same_share_of_the_memory(self):
        gpu = tf.config.PhysicalDevice("GPU:0", "GPU")
        gpus = Gpus(memory_fraction=0.25)
        with mock.patch.object(tf.config, "list_physical_devices", return_value=[gpu]):
            placed = placement.local(1, gpus=gpus)
        spec = cluster_spec.local({"worker": 1})
        for where in (placed, placement.on_cluster(spec, 1, kind="gpu", gpus=gpus)):
            options = placement.session_config(where).gpu_options
            self.assertEqual(options.per_process_gpu_memory_fraction, 0.25)

    def test_gpus_behind_logical_ones(self):
        spec = cluster_spec.local({"worker": 2})
        names = [f"/job:worker/task:{t}/device:CPU:0" for t in range(2)]
        for indices, split, wanted in (
            ((0, 1, 2, 3), 1, 4),
            ((0, 1, 2, 3), 4, 1),
            ((3, 4, 9), 4, 3),
        ):
            gpus = Gpus(indices, split)
            where = placement.on_cluster(spec, len(indices), kind="gpu", gpus=gpus)
            for name in names:
                self.assertEqual(placement.gpus_of(name, where), wanted)

    def test_gpu_parameters_for_cpu_towers(self):
        with self.assertRaisesRegex(ValueError, "local_parameter_device=cpu"):
            placement.local(2, kind="cpu", parameters="gpu")

    def test_groups_follow_the_hosts(self):
        placed = placement.Placement(
            kind="cpu", towers=("a", "b", "c"), hosts=("x", "x", "y"), parameters=("x",)
        )
        self.assertEqual(placed.groups, [("x", ["a", "b"]), ("y", ["c"])])

    def test_a_tower_on_every_device_of_every_worker(self):
        spec = cluster_spec.local({"ps": 2, "worker": 2})
        where = placement.on_cluster(spec, 2, kind="cpu")
        self.assertEqual(
            where.groups,
            [
                (
                    f"/job:worker/task:{w}/device:CPU:0",
                    [f"/job:worker/task:{w}/device:CPU:{i}" for i in (0, 1)],
                )
                for w in (0, 1)
            ],
        )
        self.assertEqual(
            where.parameters,
            ("/job:ps/task:0/device:CPU:0", "/job:ps/task:1/device:CPU:0"),
        )
        self.assertEqual(where.master, "/job:chief/task:0/device:CPU:0")
        self.assertEqual(placement.task_of(where.towers[3]), "/job:worker/task:1")
        config = placement.session_config(where)
        for task, number in (("worker", 2), ("ps", 1), ("chief", 1)):
            of = placement.server_config(where, cluster_spec.Task(task, 0), config)
            self.assertEqual(of.device_count["CPU"], number)

    def test_a_core_for_each_tower_where_there_are_enough_towers(self):
        cases = ((1, 1, 0), (1, 2, 0), (2, 2, 1), (3, 2, 1), (4, 16, 0))
        for towers, cores, threads in cases:
            where = placement.local(towers, kind="cpu")
            with mock.patch.object(placement, "cores", return_value=cores):
                config = placement.session_config(where)
                asked = placement.session_config(where, intra_threads=3)
            self.assertEqual(config.intra_op_parallelism_threads, threads)
            self.assertEqual(asked.intra_op_parallelism_threads, 3)

    def test_towers_of_other_processes_do_not_share_a_core(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        where = placement.on_cluster(spec, 1, kind="cpu")
        with mock.patch.object(placement, "cores", return_value=2):
            self.assertEqual(placement.threads_in_operation(where), 0)

    def test_a_client_has_towers_on_its_own_task(self):
        spec = cluster_spec.local({"ps": 2, "worker": 3}, controller=False)
        spec = dataclasses.replace(
            spec, me=cluster_spec.Task("worker", 1), between=True
        )
        where = placement.on_cluster(spec, 2, kind="cpu")
        devices = [f"/job:worker/task:1/device:CPU:{i}" for i in (0, 1)]
        self.assertEqual(where.groups, [(devices[0], devices)])
        self.assertEqual(where.stages, ((devices[0],), (devices[1],)))
        self.assertEqual((where.client, where.clients, where.num_towers), (1, 3, 6))
        self.assertEqual(where.master, devices[0])
        ps = [f"/job:ps/task:{i}/device:CPU:0" for i in (0, 1)]
        self.assertEqual((where.parameters, where.counters), (tuple(ps), ps[0]))
        config = placement.session_config(where)
        self.assertEqual(
            list(config.device_filters),
            ["/job:worker/task:1", "/job:ps/task:0", "/job:ps/task:1"],
        )
        of_server = placement.server_config(where, spec.me, config)
        self.assertEmpty(of_server.device_filters)
        self.assertEqual(of_server.device_count["CPU"], 2)

    def test_a_chief_is_the_first_client(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        spec = dataclasses.replace(
            spec, me=cluster_spec.Task("worker", 1), between=True
        )
        where = placement.on_cluster(spec, 1, kind="cpu")
        self.assertEqual((where.client, where.clients), (2, 3))

    def test_without_ps_the_controller_holds_the_variables(self):
        spec = cluster_spec.from_hosts(
            "worker", 0, ps=[], workers=["a:1", "b:1"], controller=None
        )
        where = placement.on_cluster(spec, 1, kind="gpu", gpus=Gpus((3,)))
        self.assertEqual(where.parameters, ("/job:worker/task:0/device:CPU:0",))
        self.assertEqual(where.master, where.parameters[0])
        self.assertEqual(where.towers[1], "/job:worker/task:1/device:GPU:3")

    def test_neighbours_are_the_stages_of_a_tower(self):
        placed = placement.local(6, kind="cpu", num_stages=3)
        names = [f"/device:CPU:{i}" for i in range(6)]
        self.assertEqual(placed.stages, (tuple(names[:3]), tuple(names[3:])))
        self.assertEqual(placed.towers, (names[0], names[3]))
        self.assertLen(placed.hosts, 2)
        self.assertEqual(placed.devices, tuple(names))
        self.assertEqual(placement.session_config(placed).device_count["CPU"], 6)
        # Variables on the host are there for all stages.
        self.assertEqual(placed.homes, [("/device:CPU:0",)] * 3)

    def test_variables_on_the_stages_that_read_them(self):
        where = placement.Placement("gpu", tuple("abcd"), ("x",) * 4, tuple("abcd"))
        self.assertEqual(where.stages, (("a",), ("b",), ("c",), ("d",)))
        self.assertEqual(where.homes, [tuple("abcd")])
        placed = placement.in_stages(where, 2)
        self.assertEqual(placed.homes, [("a", "c"), ("b", "d")])

    def test_stages_in_the_notice(self):
        if tf.config.list_physical_devices("GPU"):
            self.skipTest("this machine has a GPU")
        where = placement.local(4, num_stages=2)
        self.assertIn("2 towers of 2 stages run on 4 logical", where.notice)

    def test_shards_are_on_the_devices_of_a_tower(self):
        where = placement.local(4, kind="cpu", num_shards=2)
        names = [f"/device:CPU:{i}" for i in range(4)]
        self.assertEqual(
            where.shard_homes, [(names[0], names[2]), (names[1], names[3])]
        )
        self.assertEqual(placement.local(4, kind="cpu").shard_homes, [])

    def test_shards_of_a_cluster_are_on_its_tasks(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        where = placement.on_cluster(spec, 2, kind="cpu", num_shards=2)
        self.assertTrue(where.is_cluster)
        self.assertFalse(placement.local(4, kind="cpu").is_cluster)
        devices = tuple(f"/job:worker/task:1/device:CPU:{k}" for k in range(2))
        self.assertEqual(where.stages[1], devices)
        self.assertEqual(where.shard_homes, [])
        me = cluster_spec.Task("worker", 1)
        spec = cluster_spec.local({"ps": 1, "worker": 2}, controller=False)
        spec = dataclasses.replace(spec, me=me, between=True)
        of_client = placement.on_cluster(spec, 2, kind="cpu", num_shards=2)
        self.assertEqual(of_client.stages, (devices,))

    def test_placement_is_hard(self):
        config = placement.session_config(placement.local(1, kind="cpu"))
        self.assertFalse(config.allow_soft_placement)
        # A map has 0 for what it lacks; TensorFlow then takes all GPUs.
        self.assertEqual(dict(config.device_count), {"CPU": 1, "GPU": 0})

    def test_stages_over_the_workers_of_a_cluster(self):
        spec = cluster_spec.local({"ps": 1, "worker": 2})
        placed = placement.on_cluster(spec, 1, kind="cpu", num_stages=2)
        both = ("/job:worker/task:0/device:CPU:0", "/job:worker/task:1/device:CPU:0")
        self.assertEqual(placed.stages, (both,))
        self.assertEqual((placed.towers, placed.per_task), (both[:1], 1))
        two = placement.on_cluster(spec, 2, kind="cpu", num_stages=2)
        self.assertEqual(
            [{placement.task_of(device) for device in s} for s in two.stages],
            [{"/job:worker/task:0"}, {"/job:worker/task:1"}],
        )
        self.assertEqual(two.per_task, 2)
        self.assertEqual(
            [placement.task_of(host) for host in two.hosts],
            ["/job:worker/task:0", "/job:worker/task:1"],
        )

    def test_xla_compiles_clusters_when_asked(self):
        for asked in (True, False):
            config = placement.session_config(
                placement.local(1, kind="cpu"), auto_jit=asked
            )
            options = config.graph_options.optimizer_options
            self.assertEqual(options.global_jit_level == options.ON_1, asked)
