"""Tests of towers.cluster.health_check, with simulated tasks."""

import dataclasses
import threading
from unittest import mock

from absl.testing import absltest, parameterized

from tests import fake_tasks
from towers.cluster import health_check, messages
from towers.layout import cluster_spec

_SPEC = fake_tasks.SPEC
_WORKER = cluster_spec.Task("worker", 1)


class HealthCheckTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.tasks = fake_tasks.Tasks()
        patch = mock.patch.object(messages, "fetch_info", self.tasks.ask)
        patch.start()
        self.addCleanup(patch.stop)
        self.roll_call = health_check.HealthCheck(_SPEC, ("cpu", 2))

    def test_who_answers_and_who_does_not(self):
        self.tasks.silent = {_WORKER: "nothing answers there"}
        hellos, silent = self.roll_call.ask(seconds=1.5)
        self.assertEqual(sorted(hellos), sorted(_SPEC.servers[:2]))
        self.assertEqual(silent, {_WORKER: "worker 1 at w1:1: nothing answers there"})
        self.assertEqual(self.tasks.looked, [1.5] * 3)
        hellos, silent = self.roll_call.ask(_SPEC.servers[:1], seconds=60)
        self.assertEqual((list(hellos), silent), (_SPEC.servers[:1], {}))
        self.assertEqual(self.tasks.looked[3:], [health_check.ANSWER_SECONDS])

    def test_who_follows_asks_the_controller_and_the_ps(self):
        spec = cluster_spec.from_hosts(
            "worker", 1, ps=["p:1"], workers=["a:1", "b:1", "c:1"], controller=None
        )
        spec = dataclasses.replace(spec, between=True)
        self.tasks.lives = dict.fromkeys([*spec.servers, spec.controller], "1")
        hellos, _ = health_check.HealthCheck(spec, ("cpu", 2)).ask()
        self.assertEqual(sorted(map(str, hellos)), ["ps 0", "worker 0"])

    def test_what_fails_is_no_answer(self):
        with mock.patch.object(
            messages, "fetch_info", side_effect=RuntimeError("no thread")
        ):
            with self.assertRaisesRegex(RuntimeError, "no thread"):
                self.roll_call.ask()

    def test_processes_are_told_from_those_that_trained(self):
        self.roll_call.remember(self.roll_call.ask()[0])
        self.assertEqual(self.roll_call.absent(), {})
        self.tasks.lives[_WORKER] += "+"
        self.tasks.breaks[_SPEC.servers[0]] = 1
        self.tasks.silent = {_SPEC.servers[1]: "frozen"}
        self.assertEqual(
            list(self.roll_call.absent().values()),
            [
                "worker 0 at w0:1: frozen",
                "ps 0 at p:1: it dropped out (reset)",
                "worker 1 at w1:1: it was started anew",
            ],
        )
        self.tasks.silent = {}
        self.roll_call.remember(self.roll_call.ask()[0])
        self.assertEqual(self.roll_call.absent(), {})

    @parameterized.parameters(
        ({"tensorflow": "1.15.5"}, "w1:1 runs TensorFlow 1.15.5 and chief 0 runs"),
        (
            {"cluster": {"worker": ["x:1"]}},
            r'w1:1 was started with .*"x:1".*same hosts',
        ),
        (
            {"cluster": {**_SPEC.as_dict(), "worker": ["w0:1", "x:1"]}},
            r'w1:1 was started with .*"x:1".*same hosts',
        ),
    )
    def test_a_wrong_task_is_named(self, wrong, words):
        self.tasks.hello |= wrong
        with self.assertRaisesRegex(messages.ClusterError, words):
            self.roll_call.check(self.roll_call.ask()[0])

    def test_a_worker_without_the_devices_is_named(self):
        self.tasks.devices = {"CPU": 1, "GPU": 4}
        with self.assertRaisesRegex(
            messages.ClusterError, "^worker 0 at w0:1 has 1 CPU devices, and needs 2"
        ):
            self.roll_call.check(self.roll_call.ask()[0])

    def test_whose_a_task_is(self):
        self.assertTrue(self.roll_call.is_ours(_WORKER))
        self.tasks.hello["cluster"] = {"worker": ["d:1", "w1:1"]}
        # the answer of before holds until it is asked again
        self.assertTrue(self.roll_call.is_ours(_WORKER))
        self.roll_call.ask([_WORKER])
        self.assertFalse(self.roll_call.is_ours(_WORKER))
        self.tasks.silent = {_SPEC.servers[0]: "frozen"}
        # a silent task counts as ours
        self.assertTrue(self.roll_call.is_ours(_SPEC.servers[0]))


class InParallelTest(absltest.TestCase):
    def test_all_at_a_time(self):
        meeting = threading.Barrier(3)
        health_check.in_parallel(lambda task: meeting.wait(30), _SPEC.servers)
