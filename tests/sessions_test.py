"""Sessions of this process alone."""

import types

import tensorflow as tf

from towers import sessions

v1 = tf.compat.v1


class LocalTest(tf.test.TestCase):
    def test_opens_a_session_and_closes_it(self):
        with tf.Graph().as_default() as graph:
            one = tf.constant(1)
        config = v1.ConfigProto(device_count={"CPU": 3})
        with sessions.Local().open(graph, config) as session:
            self.assertEqual(session.run(one), 1)
            self.assertLen(session.list_devices(), 3)
        with self.assertRaisesRegex(RuntimeError, "closed"):
            session.run(one)

    def test_makes_an_attempt_once(self):
        stop = types.SimpleNamespace(received=None)
        keep = sessions.Local().keep
        self.assertEqual(keep(lambda: 7, stop, resumes=True), 7)
        with self.assertRaises(ZeroDivisionError):
            keep(lambda: 1 // 0, stop, resumes=True)


if __name__ == "__main__":
    tf.test.main()
