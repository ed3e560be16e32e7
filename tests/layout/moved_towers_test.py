"""Towers of workers that are not there, on those that are."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from towers.layout import cluster_spec, moved_towers, placement
from towers.layout.cluster_spec import Task

_HOSTS = ["w0:1", "w1:1", "w2:1", "w3:1"]


def _where(kind: str, num_gpus: int, **sizes) -> placement.Placement:
    spec = cluster_spec.from_hosts(
        "chief", 0, ps=["p:1"], workers=_HOSTS, controller="c:1"
    )
    return placement.on_cluster(spec, num_gpus, kind=kind, **sizes)


def _workers(*indices: int) -> list[Task]:
    return [Task("worker", index) for index in indices]


def _names(*parts: str) -> tuple[str, ...]:
    """`0/CPU:1` of worker 0 in full."""
    words = (part.split("/") for part in parts)
    return tuple(f"/job:worker/task:{task}/device:{name}" for task, name in words)


class OnMembersTest(parameterized.TestCase):
    @parameterized.parameters(
        ((0, 1, 2, 3), ("0/CPU:0", "1/CPU:0", "2/CPU:0", "3/CPU:0")),
        ((0, 1, 2), ("0/CPU:0", "1/CPU:0", "2/CPU:0", "0/CPU:1")),
        ((1, 3), ("1/CPU:1", "1/CPU:0", "3/CPU:1", "3/CPU:0")),
        ((2,), ("2/CPU:1", "2/CPU:2", "2/CPU:0", "2/CPU:3")),
        ((0, 2, 3, 7), ("0/CPU:0", "7/CPU:0", "2/CPU:0", "3/CPU:0")),
        ((0, 7, 8), ("0/CPU:0", "7/CPU:0", "8/CPU:0", "0/CPU:1")),
    )
    def test_one_tower_of_each_worker(self, members, towers):
        where = moved_towers.on_members(_where("cpu", 1), _workers(*members))
        self.assertEqual(where.towers, _names(*towers))
        self.assertEqual(where.hosts, where.towers)

    def test_the_towers_of_a_worker_have_a_host_of_their_own(self):
        where = moved_towers.on_members(_where("cpu", 2), _workers(0, 1, 2))
        self.assertEqual(where.towers[6:], _names("0/CPU:2", "0/CPU:3"))
        self.assertEqual(where.hosts[6:], _names("0/CPU:2", "0/CPU:2"))
        where = moved_towers.on_members(_where("gpu", 2), _workers(0, 1, 2))
        self.assertEqual(where.towers[6:], _names("0/GPU:0", "0/GPU:1"))
        self.assertEqual(where.hosts[6:], _names("0/CPU:1", "0/CPU:1"))

    def test_stages_move_with_their_tower(self):
        where = moved_towers.on_members(
            _where("cpu", 2, num_stages=2), _workers(0, 1, 2)
        )
        self.assertEqual(where.stages[3], _names("0/CPU:2", "0/CPU:3"))

    def test_servers_have_the_devices(self):
        for given, wanted in ((None, 16), (2, 32)):
            config = tf.compat.v1.ConfigProto()
            if given:
                config.device_count["CPU"] = given
            moved_towers.make_room(config)
            self.assertEqual(config.device_count["CPU"], wanted)

    def test_what_does_not_fit(self):
        where = _where("cpu", 1)
        self.assertIsNone(moved_towers.on_members(where, _workers(*range(5))))
        with mock.patch.object(moved_towers, "SHARES", 3):
            self.assertIsNone(moved_towers.on_members(where, _workers(2)))
            self.assertIsNotNone(moved_towers.on_members(where, _workers(2, 3)))
