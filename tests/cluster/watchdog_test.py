"""A session with a watchdog: it ends calls that hang because a task is silent."""

import threading

import tensorflow as tf

from towers.cluster import watchdog

v1 = tf.compat.v1


class WatchedSessionTest(tf.test.TestCase):
    def _session(self, graph, silent=lambda lasted: [], stall_secs=0.2, lost=list):
        session = watchdog.WatchedSession(
            "", graph, v1.ConfigProto(), stall_secs=stall_secs, silent=silent, lost=lost
        )
        self.addCleanup(session.leave)
        return session

    def test_runs_and_raises_as_a_session_does(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [])
            double, wrong = 2 * x, tf.debugging.Assert(x > 0, ["below"])
        session = self._session(graph)
        self.assertEqual(session.run(double, {x: 3.0}), 6.0)
        self.assertEqual(session.make_callable(double, [x])(4.0), 8.0)
        metadata = v1.RunMetadata()
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        session.run(double, {x: 1.0}, options=options, run_metadata=metadata)
        self.assertNotEmpty(metadata.step_stats.dev_stats)
        with self.assertRaisesRegex(tf.errors.InvalidArgumentError, "below"):
            session.run(wrong, {x: -1.0})

    def test_several_threads_call_at_the_same_time(self):
        with tf.Graph().as_default() as graph:
            mail = tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]])
            put, get = mail.enqueue(5), mail.dequeue()
        session = self._session(graph)
        results = []
        waiting = threading.Thread(target=lambda: results.append(session.run(get)))
        waiting.start()
        session.run(put)
        waiting.join(60)
        self.assertEqual(results, [5])

    def test_a_saver_takes_it(self):
        with tf.Graph().as_default() as graph:
            v1.get_variable("v", [], use_resource=True)
            start, saver = v1.global_variables_initializer(), v1.train.Saver()
        session = self._session(graph)
        session.run(start)
        with graph.as_default():
            path = saver.save(session, self.create_tempdir().full_path + "/v")
        self.assertTrue(path)

    def test_a_slow_call_is_waited_for_and_a_hung_one_is_not(self):
        with tf.Graph().as_default() as graph:
            mail = tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]])
            put, get, size = mail.enqueue(5), mail.dequeue(), mail.size()
        asked = []

        def silent(lasted):
            asked.append(lasted)
            if len(asked) < 3:
                return []
            return ["worker 1: frozen", "ps 0: gone"]

        session = self._session(graph, silent)
        session.run(put)
        self.assertEqual(session.run(get), 5)
        self.assertEmpty(asked)
        with self.assertRaisesRegex(
            watchdog.StallError, "^worker 1: frozen; ps 0: gone$"
        ):
            session.run(get)
        self.assertLen(asked, 3)
        for lasted, least in zip(asked, (0.2, 0.4, 0.6)):
            self.assertBetween(lasted, least, least + 10)
        v1.Session(graph=graph).run(size)  # another session is not affected

    def test_who_is_gone_ends_a_call_at_once_and_lets_none_begin(self):
        with tf.Graph().as_default() as graph:
            get, constant = tf.queue.FIFOQueue(1, [tf.int32]).dequeue(), tf.constant(1)
        gone = []
        session = self._session(graph, stall_secs=600, lost=lambda: gone)
        self.assertEqual(session.run(constant), 1)
        threading.Timer(0.5, lambda: gone.append("worker 1: gone")).start()
        with self.assertRaisesRegex(watchdog.StallError, "^worker 1: gone$"):
            session.run(get)
        with self.assertRaisesRegex(watchdog.StallError, "^worker 1: gone$"):
            session.run(constant)
