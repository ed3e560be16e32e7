"""The schedule repeats; what two runs differ in is found.

Kills themselves are tested in `survival_test`.
"""

import os

import tensorflow as tf
from absl.testing import absltest

from benchmarks import chaos

v1 = tf.compat.v1


class ChaosTest(absltest.TestCase):
    def test_a_schedule_is_a_function_of_its_seed(self):
        kills = chaos.schedule(3, 40, pause=2.0)
        self.assertEqual(kills, chaos.schedule(3, 40, pause=2.0))
        self.assertNotEqual(kills, chaos.schedule(4, 40, pause=2.0))
        self.assertLen({kill.task for kill in kills}, 5)  # every task
        self.assertBetween(max(kill.after for kill in kills), 1.0, 2.0)

    def _saved(self, **values: float) -> str:
        folder = self.create_tempdir().full_path
        with tf.Graph().as_default() as graph, v1.Session() as session:
            for name, value in values.items():
                v1.get_variable(name, initializer=value, use_resource=True)
            session.run(v1.global_variables_initializer())
            saver = v1.train.Saver()
            saver.save(session, os.path.join(folder, "model.ckpt"), global_step=5)
            del graph
        return folder

    def test_finds_what_was_lost(self):
        one = self._saved(a=1.0, b=2.0)
        self.assertEmpty(chaos.lost(one, self._saved(a=1.0, b=2.0)))
        self.assertEqual(chaos.lost(one, self._saved(a=1.0, b=2.0 + 1e-6)), ["b"])
        self.assertEqual(chaos.lost(one, self._saved(a=1.0)), ["b"])


if __name__ == "__main__":
    absltest.main()
