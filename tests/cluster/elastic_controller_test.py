"""Who may join an elastic run, and when; the tasks and the time are made up.

Real ones are in `elastic_test`.
"""

import dataclasses
import types
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from flags import config
from tests import fake_tasks
from towers.cluster import controller, elastic, messages
from towers.cluster.sessions import MembersChangedError
from towers.layout.cluster_spec import Task

v1 = tf.compat.v1

_SPEC = dataclasses.replace(fake_tasks.SPEC, elastic=True, flags=("--model=mlp",))
_FIT = {"flags": ["--model=mlp"]}


class ElasticControllerTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.tasks = fake_tasks.around_a_controller(self)
        self.tasks.hello |= _FIT
        self.lines, self.notes = [], []
        self.stop = types.SimpleNamespace(received=None, insisted=False)
        self.now = 100.0

        def send(spec, note, *, seconds, to):
            self.notes.append((str(to), note.words))

        def sleep(seconds):
            self.now += seconds

        clock = types.SimpleNamespace(monotonic=lambda: self.now, sleep=sleep)
        for where, name, value in (
            (messages, "send", send),
            (elastic.ElasticController, "_listen", lambda self: None),
            (elastic, "time", clock),
            (controller, "time", clock),
            (elastic, "threading", types.SimpleNamespace(Thread=_AtOnce)),
        ):
            patch = mock.patch.object(where, name, value)
            patch.start()
            self.addCleanup(patch.stop)

    def _begin(self, most=None, **flags):
        """A run on two workers."""
        settings = {"elastic": "keep_batch", "stall_secs": 1, "wait_secs": 1, **flags}
        self.sessions = elastic.ElasticController(
            _SPEC,
            v1.ConfigProto(),
            flags=config.make(**settings).cluster,
            most=most,
            needs=("cpu", 2),
            console=self.lines.append,
        )
        self.go_on()
        self.lines.clear()

    def go_on(self):
        """Another session begins."""
        self.assertEqual(self.sessions.keep(lambda: 0, self.stop, resumes=True), 0)
        return [task.index for task in self.sessions.members.workers]

    def beat(self, index, life="1", leaving="", **differing):
        """A heartbeat of a worker, which says of itself what differs."""
        task = Task("worker", index)
        self.tasks.lives[task] = life
        if differing:
            self.tasks.differing[task] = differing
        address = f"w{index}:1"
        self.sessions._note(messages.Heartbeat("worker", address, life, leaving))

    def lose(self, index):
        """A worker is lost; the others go on."""
        self.tasks.silent = {Task("worker", index): "nothing answers there"}
        return self.go_on()

    def test_a_worker_that_nobody_knew_joins(self):
        self._begin()
        self.assertEqual(self.sessions.change(), "")
        self.beat(2)
        self.assertEqual(self.sessions.change(), "worker 2 at w2:1 joins")
        self.assertEqual(self.go_on(), [0, 1, 2])
        self.assertEqual(self.sessions.change(), "")

    @parameterized.parameters(
        ({"flags": ["--model=lenet"]}, "was started with --model=lenet, and chief 0 w"),
        ({"software": {"towers": "0.0.1"}}, "runs towers 0.0.1 and chief 0 runs "),
        ({"tensorflow": "1.15.5"}, "runs TensorFlow 1.15.5 and chief 0 runs "),
    )
    def test_one_that_does_not_fit_is_ended_and_no_session_ends_for_it(
        self, differing, why
    ):
        self._begin()
        for _ in range(2):
            self.beat(2, **differing)
            self.assertEqual(self.sessions.change(), "")
        self.assertLen(self.lines, 1)
        self.assertStartsWith(self.lines[0], f"Not taken: worker 2 at w2:1 {why}")
        [(task, words)] = self.notes
        self.assertEqual(task, "worker 2")
        self.assertStartsWith(words, f"not taken: worker 2 at w2:1 {why}")
        self.assertEqual(self.tasks.dismissed, [("worker 2", 2)])
        self.assertEqual(self.go_on(), [0, 1])
        # Another process there is asked anew.
        self.beat(2, "2", **_FIT)
        self.assertEqual(self.sessions.change(), "worker 2 at w2:1 joins")

    def test_one_that_does_not_fit_at_the_start_is_named_once(self):
        self.tasks.differing[Task("worker", 1)] = {"flags": ["--model=lenet"]}
        self.tasks.silent = {Task("worker", 0): "frozen"}
        with self.assertRaisesRegex(messages.ClusterError, "gave up"):
            self._begin()  # asks both again and again for a second
        self.assertLen(self.notes, 1)

    def test_one_with_another_token_is_ended(self):
        self._begin()
        self.tasks.strangers.add(Task("worker", 2))
        self.beat(2)
        self.assertEqual(self.sessions.change(), "")
        said = "ot taken: worker 2 at w2:1: it has another cluster token"
        self.assertEqual(self.lines, [f"N{said}."])
        self.assertEqual(self.notes, [("worker 2", f"n{said}")])
        self.assertEqual(self.tasks.dismissed, [("worker 2", 2)])

    def test_one_of_another_run_is_not_ended(self):
        self._begin()
        self.beat(2, cluster={"worker": ["w2:1"], "chief": ["d:1"]})
        self.assertRegex(
            self.lines[0], "^Not taken: .*for the controller at d:1, and n"
        )
        self.assertEqual((self.notes, self.tasks.dismissed), ([], []))

    def test_one_that_does_not_answer_is_asked_at_each_heartbeat(self):
        self._begin()
        self.tasks.silent = {Task("worker", 2): "frozen"}
        for _ in range(2):
            self.beat(2)
            self.assertEqual(self.sessions.change(), "")
        self.assertEqual(self.lines, ["Not taken yet: worker 2 at w2:1: frozen."])
        self.tasks.silent = {}
        self.beat(2)
        self.assertEqual(self.sessions.change(), "worker 2 at w2:1 joins")

    def test_at_the_end_all_are_dismissed(self):
        self._begin()
        self.beat(2)
        self.sessions.dismiss(0)
        every = ["ps 0", "worker 0", "worker 1", "worker 2"]
        self.assertCountEqual(self.tasks.dismissed, [(name, 0) for name in every])

    def test_an_unfit_member_is_left_out(self):
        self.tasks.differing[Task("worker", 1)] = {"software": {"towers": "0.0.1"}}
        self._begin()
        self.assertEqual(self.go_on(), [0])
        self.assertEqual(self.tasks.dismissed, [("worker 1", 2)])

    @parameterized.parameters(({"most": 2}, 2), ({"most": 3, "max_workers": 2}, 2))
    def test_a_surplus_waits(self, limits, most):
        self._begin(**limits)
        self.beat(2)
        for _ in range(2):
            self.assertEqual(self.sessions.change(), "")
        said = f"worker 2 at w2:1 waits, as the run uses {most} workers at most."
        self.assertEqual(self.lines, [said])
        self.assertEqual(self.lose(1), [0, 2])

    def test_who_is_lost_soon_after_it_joined_joins_later(self):
        self._begin()
        pauses, life = [], 1
        self.beat(1)
        for _ in range(9):
            self.assertEqual(self.lose(1), [0])
            self.tasks.silent, life = {}, life + 1
            begun = self.now
            while True:
                self.beat(1, str(life))
                if self.sessions.change():
                    break
                self.now += 5.0
            pauses.append(self.now - begun)
            self.assertEqual(self.go_on(), [0, 1])
            self.now += 59.0
        self.assertEqual(pauses, [0, 5, 10, 20, 40, 80, 160, 300, 300])
        said = "worker 1 at w1:1 was lost 9 times soon after it joined; it may join ag"
        self.assertStartsWith(self.lines[-1], said)
        self.now += 1.0  # a minute has passed
        self.assertEqual(self.lose(1), [0])
        self.tasks.silent = {}
        self.beat(1, "other")
        self.assertEqual(self.sessions.change(), "worker 1 at w1:1 joins")

    def test_one_that_is_lost_all_the_time_waits_unless_there_are_too_few(self):
        self._begin(wait_secs=60)
        for _ in range(2):
            self.beat(0)
            self.beat(1)
            self.assertEqual(self.lose(1), [0])
            self.tasks.silent = {}
            self.beat(1)
            joined = self.go_on()
        self.assertEqual(joined, [0])
        self.assertIn("it may join again after 5 s", self.lines[-1])
        began = self.now
        self.assertEqual(self.lose(0), [1])
        self.assertLess(self.now, began + 1.0)

    def test_a_controller_that_was_cut_off_blames_nobody(self):
        self._begin()
        for _ in range(2):
            self.beat(0)
            self.beat(1)
            self.assertEqual(self.go_on(), [0, 1])
            self.tasks.silent = dict.fromkeys(_SPEC.servers, "gone")
            with self.assertRaisesRegex(messages.ClusterError, "gave up after 1 s"):
                self.go_on()
            self.tasks.silent = {}
        self.beat(0)
        self.beat(1)
        self.assertEqual(self.go_on(), [0, 1])
        self.assertNotIn("was lost", "".join(self.lines))

    def test_a_worker_that_leaves_takes_part_until_it_is_let_go(self):
        self._begin()
        self.beat(1, leaving="SIGTERM")
        self.assertEqual(self.sessions.change(), "")  # perhaps all are stopped
        self.now += 2.0
        news = self.sessions.change()
        self.assertEqual(news, "worker 1 at w1:1 leaves (SIGTERM)")
        outcomes = iter([MembersChangedError(news), 0])

        def attempt():
            outcome = next(outcomes)
            if outcome:
                raise outcome
            return 0

        self.sessions.keep(attempt, self.stop, resumes=True)
        self.assertEqual([str(t) for t in self.sessions.members.workers], ["worker 0"])
        self.assertEqual(self.tasks.dismissed, [("worker 1", 143)])

    def test_below_the_minimum_it_waits_and_names(self):
        self._begin(min_workers=2)
        with self.assertRaisesRegex(
            messages.ClusterError,
            "gave up after 1 s .*: worker 1 at w1:1: nothing answers there "
            r"\(1 of --min_workers=2\)$",
        ):
            self.lose(1)

    def test_a_minimum_above_all_that_ever_came(self):
        with self.assertRaisesRegex(
            messages.ClusterError, r"gave up .*: workers \(2 of --min_workers=3\)$"
        ):
            self._begin(min_workers=3)


class _AtOnce:
    """A thread that runs when it is started."""

    def __init__(self, *, target, args=(), daemon):
        self.start = lambda: target(*args)
