"""The schedule repeats; what two runs differ in is found; a record is gone on with.

Kills themselves are tested in `survival_test`.
"""

import os
import types

import tensorflow as tf
from absl.testing import absltest

from benchmarks import chaos

v1 = tf.compat.v1


class ChaosTest(absltest.TestCase):
    def test_a_schedule_is_a_function_of_its_seed(self):
        jobs = chaos.WAYS["in_graph"].jobs
        kills = chaos.schedule(3, 40, 2.0, jobs)
        self.assertEqual(kills, chaos.schedule(3, 40, 2.0, jobs))
        self.assertNotEqual(kills, chaos.schedule(4, 40, 2.0, jobs))
        self.assertLen({kill.task for kill in kills}, 5)  # each task is killed
        self.assertBetween(max(kill.after for kill in kills), 1.0, 2.0)
        self.assertBetween(sum(kill.hasty for kill in kills), 4, 20)
        self.assertFalse(kills[0].hasty)  # no kill precedes the first

    def test_of_clients_with_graphs_of_their_own_worker_0_leads(self):
        way = chaos.WAYS["between_graph"]
        killed = {kill.task for kill in chaos.schedule(3, 40, 2.0, way.jobs)}
        self.assertIn(("worker", 0), killed)
        self.assertEqual(way.leader, ("worker", 0))
        self.assertEqual(killed, {("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)})

    def test_a_recovery_is_split_by_the_lines_that_tell_of_it(self):
        told = [
            (9.0, "70 images/sec"),
            (10.2, "Lost worker 1 at ..."),
            (10.3, "worker 1 was killed by SIGKILL; it is started again"),
            (12.0, "Initializing graph"),
            (12.1, "Lost worker 1 at ..."),
            (13.0, "Initializing graph"),
            (14.5, "80 images/sec"),
        ]
        times, lines = zip(*told)
        program = types.SimpleNamespace(times=times, lines=lines)
        kill = chaos.Kill(("worker", 1), 1.0)
        for leads, what, noticed in ((False, "worker", 0.2), (True, "who leads", 0.3)):
            recovery = chaos.recovery(program, kill, 10.0, leads=leads)
            self.assertEqual((recovery.what, recovery.whole), (what, 4.5))
            for seconds, part in zip(recovery.parts, (noticed, 3.0 - noticed, 1.5)):
                self.assertAlmostEqual(seconds, part)
        hasty = chaos.Kill(("worker", 1), 1.0, hasty=True)
        # a hasty kill comes while tasks still meet
        for kill_seen, begun in ((hasty, 10.0), (kill, 12.5)):
            recovery = chaos.recovery(program, kill_seen, begun, leads=False)
            self.assertEqual(recovery, ("while it recovers", 14.5 - begun, None))

    def _saved(self, **values: float) -> str:
        folder = self.create_tempdir().full_path
        with tf.Graph().as_default() as graph, v1.Session() as session:
            for name, value in values.items():
                v1.get_variable(name, initializer=value, use_resource=True)
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver()
            saver.save(session, os.path.join(folder, "model.ckpt"), global_step=5)
            del graph
        return chaos.saved(folder)

    def test_finds_what_was_lost(self):
        first = self._saved(a=1.0, b=2.0)
        self.assertEmpty(chaos.lost(first, self._saved(a=1.0, b=2.0)))
        self.assertEqual(chaos.lost(first, self._saved(a=1.0, b=2.0 + 1e-6)), ["b"])
        self.assertEqual(chaos.lost(first, self._saved(a=1.0)), ["b"])

    def test_a_record_is_gone_on_with(self):
        path = os.path.join(self.create_tempdir(), "chaos.json")
        record = chaos.Record(path, {"kills": 2})
        self.assertEqual((record.wanted, record.seeds), ({}, []))
        record.wanted = {"a": "digest"}
        recoveries = [
            chaos.Recovery("ps", 3.0, (0.3, 1.9, 0.8)),
            chaos.Recovery("ps", 1.0, (0.2, 0.5, 0.3)),
            chaos.Recovery("while it recovers", 2.0, None),
        ]
        record.seeds = [
            {"seed": 0, "kills": 2, "lost": [], "recoveries": recoveries[:1]},
            {"seed": 1, "kills": 2, "lost": ["a"], "recoveries": recoveries[1:]},
        ]
        record.save()
        again = chaos.Record(path, {"kills": 2})
        self.assertEqual(again.wanted, record.wanted)
        self.assertEqual(again.total(), record.total())
        self.assertEqual(
            again.total()[0],
            "4 kills in 2 runs, 2.00 [1.00, 3.00] s from a kill to the next step "
            "(median, least, most), lost: a",
        )
        with self.assertRaisesRegex(ValueError, "is of other settings"):
            chaos.Record(path, {"kills": 3})
