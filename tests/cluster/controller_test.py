"""What the controller does when tasks are late, wrong, lost or silent.

The tasks are made up here; real ones are killed in `survival_test`.
"""

import contextlib
import dataclasses
import threading
import time
import types
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import fake_tasks
from towers.cluster import controller, messages, ports, watchdog
from towers.errors.interrupts import Interrupted
from towers.layout import cluster_spec

v1 = tf.compat.v1

_SPEC = fake_tasks.SPEC


class ControllerTest(parameterized.TestCase):
    def _patch(self, where, name, value):
        patch = mock.patch.object(where, name, value)
        patch.start()
        self.addCleanup(patch.stop)

    def setUp(self):
        super().setUp()
        self.tasks = fake_tasks.around_a_controller(self)
        self.lines = []
        self.stop = types.SimpleNamespace(received=None, insisted=False)
        self.sessions = self._controller(_SPEC)

    def _controller(self, spec, stall_secs=0.3):
        return controller.Controller(
            spec,
            v1.ConfigProto(),
            needs=("cpu", 2),
            stall_secs=stall_secs,
            wait_secs=0.5,
            console=self.lines.append,
        )

    def keep(self, *outcomes, resumes=True):
        """Attempts with these outcomes, in order; errors are raised."""
        coming = iter(outcomes)

        def attempt():
            outcome = next(coming)
            outcome = outcome() if callable(outcome) else outcome
            if isinstance(outcome, BaseException):
                raise outcome
            return outcome

        return self.sessions.keep(attempt, self.stop, resumes=resumes)

    def lose(self, index, error):
        """Worker `index` is started anew, and a call fails."""

        def outcome():
            self.tasks.lives[cluster_spec.Task("worker", index)] += "+"
            return error

        return outcome

    def test_an_attempt_that_succeeds(self):
        self.assertEqual(self.keep(0), 0)
        self.assertEqual(self.lines, ["open ports"])

    @parameterized.parameters(
        tf.errors.UnavailableError,
        tf.errors.AbortedError,
        tf.errors.InternalError,
        tf.errors.FailedPreconditionError,
    )
    def test_a_lost_task_begins_another_attempt(self, kind):
        lost = self.lose(1, kind(None, None, "Socket closed"))
        self.assertEqual(self.keep(lost, lost, lost, lost, 0), 0)
        self.assertLen(self.lines, 5)
        self.assertEqual(
            self.lines[-1],
            "Lost worker 1 at w1:1: it was started anew. Going on from the last "
            "checkpoint, or from the start if there is none yet.",
        )

    def test_a_task_that_dropped_out_was_not_started_anew(self):
        def outcome():
            self.tasks.silent = {_SPEC.servers[0]: "nothing answers there"}
            self.tasks.breaks[cluster_spec.Task("worker", 1)] = 1
            threading.Timer(0.1, self.tasks.silent.clear).start()
            return tf.errors.UnavailableError(None, None, "Socket closed")

        self.assertEqual(self.keep(outcome, 0), 0)
        self.assertEqual(
            self.lines[1],
            "Lost ps 0 at p:1: nothing answers there; worker 1 at w1:1: it dropped "
            "out (reset). Going on from the last checkpoint, or from the start if "
            "there is none yet.",
        )

    def test_a_loss_behind_another_error(self):
        error = RuntimeError("the checkpoint could not be written")
        error.__cause__ = tf.errors.UnavailableError(None, None, "Socket closed")
        self.assertEqual(self.keep(self.lose(0, error), 0), 0)

    def test_a_stalled_task_is_named(self):
        self.assertEqual(
            self.keep(watchdog.StallError("ps 0 at p:1: frozen"), 130), 130
        )
        self.assertStartsWith(self.lines[-1], "Lost ps 0 at p:1: frozen.")

    def test_without_checkpoints_a_loss_is_the_end(self):
        lost = self.lose(0, tf.errors.UnavailableError(None, None, ""))
        with self.assertRaisesRegex(messages.ClusterError, "worker 0 .*--train_dir"):
            self.keep(lost, 0, resumes=False)

    def test_other_errors_are_raised(self):
        for error in (
            ValueError("of the model"),
            tf.errors.InvalidArgumentError(None, None, "of the model"),
        ):
            with self.assertRaises(type(error)):
                self.keep(error, 0)

    def test_a_broken_connection_is_mended_some_times(self):
        error = tf.errors.UnavailableError(None, None, "reset")
        self.assertEqual(self.keep(error, error, error, 0), 0)
        self.assertIn("a connection (reset)", self.lines[-1])
        time.sleep(0.5)  # --wait_secs
        with self.assertRaises(tf.errors.UnavailableError):
            self.keep(error, 0)

    def test_a_broken_connection_is_mended_for_as_long_as_is_waited_for_a_task(self):
        """Then one more failure ends the run."""
        self._patch(controller, "_PAUSE_SECONDS", 0.1)
        error = tf.errors.UnavailableError(None, None, "reset")
        with self.assertRaises(tf.errors.UnavailableError):
            self.keep(*[error] * 20, 0)
        self.assertBetween(len(self.lines), 5, 12)

    def test_broken_connections_are_counted_in_a_row(self):
        self.sessions = self._controller(_SPEC, stall_secs=0.01)

        def late():
            time.sleep(0.02)
            return tf.errors.UnavailableError(None, None, "reset")

        self.assertEqual(self.keep(*[late] * 5, 0), 0)

    def test_tasks_that_never_come_are_named(self):
        self.tasks.silent = {_SPEC.servers[2]: "nothing answers there"}
        with self.assertRaisesRegex(
            messages.ClusterError,
            "--wait_secs.*worker 1 at w1:1: nothing answers there",
        ):
            self.keep(0)
        self.assertIn(
            "Waiting for worker 1 at w1:1: nothing answers there.", self.lines
        )
        # frozen tasks are asked as briefly
        self.assertLessEqual(max(self.tasks.looked), 0.5)
        self.tasks.looked.clear()
        self.sessions.dismiss(1)
        self.assertEqual(sorted(self.tasks.looked), [0.5, 20.0, 20.0])

    def test_a_signal_ends_the_waiting(self):
        self.tasks.silent = {_SPEC.servers[0]: "nothing answers there"}
        self.stop.received = 15
        with self.assertRaisesRegex(Interrupted, "SIGTERM") as caught:
            self.keep(0)
        self.assertEqual(caught.exception.unsaved, "")

    @parameterized.parameters(True, False)
    def test_a_loss_after_a_signal_ends_the_run_and_says_that_nothing_is_saved(
        self, resumes
    ):
        lost = self.lose(1, tf.errors.UnavailableError(None, None, "Socket closed"))

        def stopped():
            self.stop.received = 15
            return lost()

        with self.assertRaises(Interrupted) as caught:
            self.keep(stopped, 0, resumes=resumes)
        self.assertEqual(caught.exception.status, 143)
        said = "lost worker 1 at w1:1: it was started anew"
        self.assertEqual(caught.exception.unsaved, said)

    def test_a_second_signal_ends_a_call_that_hangs(self):
        with tf.Graph().as_default() as graph:
            get = tf.queue.FIFOQueue(1, [tf.int32]).dequeue()

        def attempt():
            threading.Timer(0.1, setattr, (self.stop, "received", 15)).start()
            threading.Timer(1.0, setattr, (self.stop, "insisted", True)).start()
            with self.sessions.open(graph, v1.ConfigProto()) as session:
                session.run(get)

        with self.assertRaises(Interrupted) as caught:
            self.sessions.keep(attempt, self.stop, resumes=False)
        said = "a second signal ended the step"
        self.assertEqual(
            (caught.exception.status, caught.exception.unsaved), (143, said)
        )
        self.assertRegex(
            self.lines[-1],
            r"^No step for \d+ s, though every task answers; a second signal ends the "
            r"run without saving\.$",
        )

    def test_a_wrong_task_ends_the_run(self):
        self.tasks.devices = {"CPU": 1, "GPU": 4}
        with self.assertRaisesRegex(messages.ClusterError, "w0:1 has 1 CPU devices"):
            self.keep(0)

    def test_tells_all_tasks_to_leave(self):
        names = [str(task) for task in _SPEC.servers]
        self.sessions.dismiss(0)
        self.assertCountEqual(self.tasks.dismissed, [(name, 0) for name in names])
        self.tasks.dismissed.clear()
        with self.assertRaises(KeyError), self.sessions:
            raise KeyError
        self.assertCountEqual(self.tasks.dismissed, [(name, 1) for name in names])

    def test_tasks_of_another_controller_are_left_alone(self):
        hosts = _SPEC.as_dict()
        for known, told in (
            (hosts | {"chief": ["d:1"]}, []),
            ({"worker": ["d:1", "w1:1"]}, []),  # there worker 0 is the chief
            (hosts | {"ps": ["q:1"]}, list(map(str, _SPEC.servers))),
        ):
            self.tasks.hello["cluster"] = known
            self.tasks.dismissed.clear()
            self.sessions.dismiss(0)  # the task was not asked before
            self.assertCountEqual(self.tasks.dismissed, [(name, 0) for name in told])
            self.tasks.dismissed.clear()
            self.sessions = self._controller(_SPEC)
            with self.assertRaises(messages.ClusterError), self.sessions:
                self.keep(0)
            self.assertCountEqual(self.tasks.dismissed, [(name, 1) for name in told])
            self.sessions = self._controller(_SPEC)

    def test_opens_a_watched_session(self):
        self.tasks.silent = {_SPEC.servers[0]: "frozen"}
        with tf.Graph().as_default() as graph:
            get = tf.queue.FIFOQueue(1, [tf.int32]).dequeue()
        with self.assertRaisesRegex(watchdog.StallError, "^ps 0 at p:1: frozen$"):
            with self.sessions.open(graph, v1.ConfigProto()) as session:
                session.run(get)
        self.assertEqual(self.lines[-1], "No step for 0 s: ps 0 at p:1: frozen.")

    @parameterized.parameters((60, 55, 5), (8, 4, 4), (2, 1, 1))
    def test_frozen_tasks_are_asked_so_early_that_they_are_named_in_time(
        self, stall_secs, patience, answer
    ):
        self.sessions = self._controller(_SPEC, stall_secs=stall_secs)
        with mock.patch.object(controller, "WatchedSession") as watched:
            with self.sessions.open(tf.Graph(), v1.ConfigProto()):
                pass
        self.assertEqual(watched.call_args.kwargs["stall_secs"], patience)
        watched.call_args.kwargs["silent"](float(patience))
        self.assertEqual(self.tasks.looked, [answer] * 3)
        self.assertEqual(
            self.lines[-1], f"No step for {patience} s, though every task answers."
        )

    @parameterized.parameters((False, []), (True, ["ps 0 at p:1: frozen"]))
    def test_who_is_named_early_is_given_up_only_if_it_stays_silent(
        self, stays, silent
    ):
        frozen = {_SPEC.servers[0]: "frozen"}

        def hear(line):
            self.lines.append(line)
            self.tasks.silent = frozen if stays else {}

        sessions = controller.Controller(
            _SPEC,
            v1.ConfigProto(),
            needs=("cpu", 2),
            stall_secs=2,
            wait_secs=0.5,
            console=hear,
        )
        with mock.patch.object(controller, "WatchedSession") as watched:
            with sessions.open(tf.Graph(), v1.ConfigProto()):
                pass
        self.tasks.silent = frozen
        self.assertEqual(watched.call_args.kwargs["silent"](1.0), silent)
        self.assertEqual(self.lines[-1], "No step for 1 s: ps 0 at p:1: frozen.")
        self.assertEqual(self.tasks.looked, [1.0] * 3 + [5.0] * 3)

    def test_a_session_that_lost_a_task_is_not_waited_for(self):
        """Closing it would wait for the task."""
        with tf.Graph().as_default() as graph:
            tf.no_op()
        for error, seconds in (
            (tf.errors.UnavailableError(None, None, "Socket closed"), 0.5),
            (
                watchdog.StallError("frozen"),
                watchdog.LEAVE_SECONDS,
            ),  # a call of the session has not returned
        ):
            with mock.patch.object(watchdog.WatchedSession, "leave") as leave:
                with self.assertRaises(type(error)):
                    with self.sessions.open(graph, v1.ConfigProto()):
                        raise error
            leave.assert_called_once_with(seconds)

    def test_says_so_when_a_call_takes_long_and_everybody_answers(self):
        with tf.Graph().as_default() as graph:
            mail = tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]])
            put, get = mail.enqueue(5), mail.dequeue()
        with self.sessions.open(graph, v1.ConfigProto()) as session:
            late = threading.Timer(0.8, session.run, [put])
            late.start()
            self.assertEqual(session.run(get), 5)
            late.join()
        said = r"^No step for [01] s, though every task answers\.$"
        self.assertRegex(self.lines[-1], said)

    @parameterized.parameters(
        ("left", True, True, 3),  # dismissed by a chief that this one replaces
        ("lost", True, True, 3),
        ("there", True, True, 0),
        ("left", True, False, 0),
        ("left", False, True, 0),
    )
    def test_a_chief_begins_again_where_a_message_was_swallowed(
        self, worker, between, resumes, anew
    ):
        spec = _SPEC
        if between:
            spec = cluster_spec.from_hosts(
                "worker", 0, ps=["p:1"], workers=["a:1", "b:1"], controller=None
            )
            spec = dataclasses.replace(spec, between=True)
            tasks = cluster_spec.Task("worker", 1), cluster_spec.Task("ps", 0)
            self.tasks.lives = dict.fromkeys(tasks, "1")
            self.tasks.hello["cluster"] = spec.as_dict()
        self.sessions = self._controller(spec, stall_secs=10)
        if worker == "left":
            self.tasks.breaks[cluster_spec.Task("worker", 1)] = 1
        outcomes = [self.lose(1, tf.errors.AbortedError(None, None, "?"))]
        outcomes = outcomes if worker == "lost" else []
        waited = []

        def attempt():
            if outcomes:
                raise outcomes.pop()()
            for lasted in (19.0, 39.0, 79.0, 159.0):
                if silent := self.sessions._silent(lasted):
                    waited.append(lasted)
                    raise watchdog.StallError("; ".join(silent))
            return 0

        self._patch(controller, "ANSWER_SECONDS", 0.0)
        self.assertEqual(self.sessions.keep(attempt, self.stop, resumes=resumes), 0)
        self.assertEqual(waited, [39.0, 79.0, 159.0][:anew])
        lost = [line for line in self.lines if line.startswith("Lost a message, perh")]
        self.assertLen(lost, anew)

    @parameterized.parameters(True, False)
    def test_a_follower_waits_for_its_chief_in_one_call(self, silent):
        """If it dropped out, the chief, which may have begun again, would lose it."""
        spec = cluster_spec.from_hosts(
            "worker", 1, ps=["p:1"], workers=["a:1", "b:1"], controller=None
        )
        spec = dataclasses.replace(spec, between=True)
        chief, ps = cluster_spec.Task("worker", 0), cluster_spec.Task("ps", 0)
        self.tasks.lives = {chief: "1", ps: "1"}
        self.tasks.hello["cluster"] = spec.as_dict()
        self.sessions = self._controller(spec)
        with tf.Graph().as_default() as graph:
            mail = tf.queue.FIFOQueue(1, [tf.int32], shapes=[[]])
            put, get = mail.enqueue(5), mail.dequeue()

        def lose(task):
            self.tasks.lives[task] += "+"
            self.tasks.silent = {task: "frozen"} if silent else {}

        def attempt():
            with self.sessions.open(graph, v1.ConfigProto()) as session:
                lose(chief)
                late = threading.Timer(0.8, session.run, [put])
                late.start()
                self.assertEqual(session.run(get), 5)
                late.join()
                lose(ps)
                raise AssertionError(f"it got {session.run(get)}")

        with self.assertRaisesRegex(messages.ClusterError, "^lost ps 0 at p:1: "):
            self.keep(attempt, resumes=False)
        said = "frozen" if silent else "it was started anew"
        self.assertIn(f"No step for 0 s: worker 0 at a:1: {said}.", self.lines)

    @parameterized.parameters((True, 30.0), (False, 0.1))
    def test_a_client_that_is_lost_is_noticed_though_no_call_reaches_it(
        self, breaks, beat
    ):
        """By its connection, or since its life is another one."""
        held, ended = [], threading.Event()
        self._patch(controller, "_BEAT_SECONDS", beat)

        def lines(addresses):
            held.append(addresses)
            return contextlib.nullcontext(types.SimpleNamespace(broken=ended.is_set))

        self._patch(ports, "Lifelines", lines)
        spec = dataclasses.replace(_SPEC, between=True)
        self.sessions = self._controller(spec, stall_secs=600)
        with tf.Graph().as_default() as graph:
            get = tf.queue.FIFOQueue(1, [tf.int32]).dequeue()

        def end():
            self.tasks.lives[cluster_spec.Task("worker", 1)] += "+"
            if breaks:
                ended.set()

        def attempt():
            if len(held) > 1:
                return 5
            threading.Timer(0.5, end).start()
            with self.sessions.open(graph, v1.ConfigProto()) as session:
                return session.run(get)

        self.assertEqual(self.sessions.keep(attempt, self.stop, resumes=True), 5)
        self.assertEqual(held, [["w0:1", "w1:1"]] * 2)
        self.assertStartsWith(self.lines[-1], "Lost worker 1 at w1:1: it was started")
