"""The schedule repeats; what two runs differ in is found; a record is gone on with.

Kills themselves are tested in `survival_test`.
"""

import os

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
        self.assertLen({kill.task for kill in kills}, 5)  # every task
        self.assertBetween(max(kill.after for kill in kills), 1.0, 2.0)
        self.assertBetween(sum(kill.hasty for kill in kills), 4, 20)
        self.assertFalse(kills[0].hasty)  # there is no kill before

    def test_of_clients_with_graphs_of_their_own_worker_0_leads(self):
        way = chaos.WAYS["between_graph"]
        killed = {kill.task for kill in chaos.schedule(3, 40, 2.0, way.jobs)}
        self.assertIn(("worker", 0), killed)
        self.assertEqual(way.followers, [("worker", 1)])
        self.assertEqual(killed, {("ps", 0), ("ps", 1), ("worker", 0), ("worker", 1)})

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
        one = self._saved(a=1.0, b=2.0)
        self.assertEmpty(chaos.lost(one, self._saved(a=1.0, b=2.0)))
        self.assertEqual(chaos.lost(one, self._saved(a=1.0, b=2.0 + 1e-6)), ["b"])
        self.assertEqual(chaos.lost(one, self._saved(a=1.0)), ["b"])

    def test_a_record_is_gone_on_with(self):
        path = os.path.join(self.create_tempdir(), "chaos.json")
        record = chaos.Record(path, {"kills": 2})
        self.assertEqual((record.wanted, record.seeds), ({}, []))
        record.wanted = {"a": "digest"}
        record.seeds = [
            {"seed": 0, "kills": 2, "seconds": [3.0], "lost": []},
            {"seed": 1, "kills": 2, "seconds": [1.0, 2.0], "lost": ["a"]},
        ]
        record.save()
        again = chaos.Record(path, {"kills": 2})
        self.assertEqual((again.wanted, again.seeds), (record.wanted, record.seeds))
        self.assertEqual(
            again.total(),
            "4 kills in 2 runs, 2.00 [1.00, 3.00] s from a kill to the next step "
            "(median, least, most), lost: a",
        )
        with self.assertRaisesRegex(ValueError, "is of other settings"):
            chaos.Record(path, {"kills": 3})


if __name__ == "__main__":
    absltest.main()
