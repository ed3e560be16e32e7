"""The plan for other workers, and which state a run goes on from."""

import dataclasses
import io
import json
import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from flags import config
from models.recipe import Schedule
from tests import digit_runs, stateful_models, trainer
from towers import membership, planning, run, run_state
from towers.checkpoints import checkpoint, constants
from towers.cluster import sessions
from towers.data import row_order
from towers.layout import cluster_spec
from towers.session import loop, progress

v1 = tf.compat.v1

_SPEC = dataclasses.replace(
    cluster_spec.from_hosts(
        "chief",
        0,
        ps=["p:1"],
        workers=[f"w{k}:1" for k in range(4)],
        controller="c:1",
    ),
    elastic=True,
)


def _membership(
    elastic="keep_towers", spec=_SPEC, model=None, *, settings=None, **changes
):
    flags = dict(device="cpu", num_gpus=1, batch_size=8, num_batches=3)
    flags |= dict(data_name="synthetic", elastic=elastic)
    whole = config.make(**(flags | (settings or {})))
    model = model or digit_runs.small_model()
    plan = planning.make(whole, lambda _: model, spec)
    members = dataclasses.replace(spec, **changes)
    sessions = types.SimpleNamespace(members=members)
    return plan, membership.Membership(plan, sessions, print)


def _rate(plan):
    """The learning rate at the start."""
    with tf.Graph().as_default(), v1.Session() as session:
        return float(session.run(plan.update.learning_rate(tf.constant(0.0))))


class MembershipTest(absltest.TestCase):
    def test_the_batch_of_a_step_is_divided_anew(self):
        plan, members = _membership("keep_batch", absent=frozenset({1}))
        fewer = members.plan(plan)
        self.assertEqual(fewer.options.tower_batches(3), (11, 11, 10))
        self.assertEqual(fewer.examples_per_step, plan.examples_per_step)
        devices = [f"/job:worker/task:{k}/device:CPU:0" for k in (0, 2, 3)]
        self.assertEqual(list(fewer.placement.towers), devices)
        self.assertIsNone(members.plan(fewer))
        _, everyone = _membership("keep_batch")
        self.assertIsNone(everyone.plan(plan))
        self.assertEqual(everyone.plan(fewer).options.tower_batches(4), (8,) * 4)

    def test_the_learning_rate_follows_the_workers(self):
        plan, members = _membership("scale_lr", absent=frozenset({1}))
        self.assertEqual(plan.options.nominal_workers, 4)
        fewer = members.plan(plan)
        self.assertEqual(fewer.options, plan.options)
        self.assertEqual(fewer.options.tower_batches(3), (8,) * 3)
        self.assertAlmostEqual(_rate(fewer), 0.75 * _rate(plan))
        self.assertIsNone(members.plan(fewer))
        _, everyone = _membership("scale_lr")
        self.assertIsNone(everyone.plan(plan))
        self.assertEqual(_rate(everyone.plan(fewer)), _rate(plan))
        workers = (*_SPEC.jobs["worker"], "w4:1")
        _, more = _membership("scale_lr", jobs={**_SPEC.jobs, "worker": workers})
        self.assertAlmostEqual(_rate(more.plan(plan)), 1.25 * _rate(plan))

    def test_a_checkpoint_has_the_workers_for_which_the_rate_is_given(self):
        """Also where a recipe's rate is proportional to the batch."""
        folder = {"train_dir": self.create_tempdir().full_path}
        for per_examples, rate in ((0, 0.05), (64, 0.025)):
            recipe = dataclasses.replace(
                digit_runs.small_model().recipe,
                schedule=Schedule((0.05,), per_examples=per_examples),
            )
            model = dataclasses.replace(digit_runs.small_model(), recipe=recipe)
            saved = mock.patch.object(constants, "nominal_workers", lambda path: 4)
            latest = mock.patch.object(checkpoint, "latest", lambda directory: "path")
            spec = dataclasses.replace(
                _SPEC, jobs={**_SPEC.jobs, "worker": ("w0:1", "w1:1")}
            )
            with saved, latest:
                plan, members = _membership("scale_lr", spec, model, settings=folder)
            self.assertEqual(plan.options.nominal_workers, 4)
            self.assertAlmostEqual(_rate(plan), rate)
            fewer = members.plan(plan)  # the command names these
            self.assertAlmostEqual(_rate(fewer), rate / 2)

    def test_a_stateful_model_keeps_its_rows(self):
        with self.assertRaisesRegex(ValueError, "summed reads the data in as many par"):
            row_order.check_elastic(stateful_models.one(), "scale_lr")
        row_order.check_elastic(stateful_models.one(), "keep_batch")
        row_order.check_elastic(digit_runs.small_model(), "scale_lr")

    def test_every_worker_has_an_example_of_a_step(self):
        limits = {"keep_batch": 32, "keep_towers": 32, "scale_lr": None}
        for elastic, most in limits.items():
            plan, _ = _membership(elastic)
            self.assertEqual(membership.most_workers(plan), most)
        two_towers_each, _ = _membership("keep_batch", settings={"num_gpus": 2})
        self.assertEqual(membership.most_workers(two_towers_each), 32)
        apart = {"variable_update": "asynchronous"}
        plan, _ = _membership(settings=apart)
        self.assertEqual(membership.most_workers(plan), 4)

    def test_towers_stay_on_other_devices(self):
        plan, members = _membership(absent=frozenset({1}))
        fewer = members.plan(plan)
        self.assertEqual(fewer.options, plan.options)
        self.assertEqual(fewer.placement.num_towers, 4)
        self.assertEqual(
            fewer.placement.towers[:2],
            ("/job:worker/task:0/device:CPU:0", "/job:worker/task:0/device:CPU:1"),
        )
        self.assertIsNone(members.plan(fewer))
        _, everyone = _membership()
        self.assertIsNone(everyone.plan(plan))
        self.assertEqual(everyone.plan(fewer).placement, plan.placement)

    def test_more_workers_than_at_the_start_divide_the_batch(self):
        workers = (*_SPEC.jobs["worker"], "w4:1")
        plan, members = _membership(jobs={**_SPEC.jobs, "worker": workers})
        self.assertEqual(members.plan(plan).options.tower_batches(5), (7, 7, 6, 6, 6))

    def _log(self, *changes):
        """The settings that replay a log with these workers."""
        path = f"{self.create_tempdir().full_path}/log"
        lines = [json.dumps({"step": s, "workers": list(w)}) for s, w in changes]
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines))
        return {"replay_membership": path}

    def test_a_log_is_replayed_on_the_workers_that_are_there(self):
        """Its four and three workers have towers of their own on two."""
        settings = self._log((0, (0, 1, 2, 3)), (5, (0, 2, 7)))
        there = {"absent": frozenset({1, 2})}
        plan, members = _membership("keep_batch", settings=settings, **there)
        first = members.plan(plan)
        self.assertEqual(first.options.tower_batches(4), (8,) * 4)
        self.assertLen(set(first.placement.hosts), 4)
        tasks = [tf.DeviceSpec.from_string(t).task for t in first.placement.towers]
        self.assertEqual(tasks, [0, 0, 3, 3])
        members.keep(run_state.RunState(5, {}))
        second = members.plan(first)
        self.assertEqual(second.options.tower_batches(3), (11, 11, 10))
        self.assertLen(set(second.placement.hosts), 3)
        self.assertIsNone(members.plan(second))

    def test_more_workers_than_a_log_has_are_not_used(self):
        settings = self._log((0, (0, 1)))
        plan, members = _membership("scale_lr", settings=settings)
        replayed = members.plan(plan)
        self.assertEqual(replayed.options.tower_batches(2), (8, 8))
        self.assertAlmostEqual(_rate(replayed), 0.5 * _rate(plan))
        plan, members = _membership(settings=settings)  # whose towers stay
        self.assertIsNone(members.plan(plan))

    def test_a_log_with_too_many_workers_is_refused(self):
        settings = self._log((0, range(40)))
        there = {"absent": frozenset({1, 2})}
        plan, members = _membership("scale_lr", settings=settings, **there)
        with self.assertRaisesRegex(
            ValueError, "has 40 workers, and there are 2, of w"
        ):
            members.plan(plan)

    def test_a_checkpoint_of_a_later_step_is_preferred(self):
        _, members = _membership()
        training = trainer.Trainer(elastic=True).start()
        self.assertFalse(members.load(training.train, training.session))
        training.steps(1)
        members.keep(run_state.read(training.train, training.session))
        members.keep(None)  # a state that could not be read
        training.steps(2)
        self.assertFalse(members.load(training.train, training.session))
        training.start()
        self.assertTrue(members.load(training.train, training.session))
        self.assertEqual(training.session.run(training.train.global_step), 1)

    def _carried(self, training, members, *, reached):
        """The step of the state after a session is lost, in which steps were taken."""
        members.reached = reached
        with self.assertRaisesRegex(RuntimeError, "lost"):
            with members.carried(training.train, training.session):
                training.steps(2)
                raise RuntimeError("lost")
        training.start()
        members.load(training.train, training.session)
        return int(training.session.run(training.train.global_step))

    def test_a_step_whose_results_are_lost_is_taken_again(self):
        """Otherwise nothing would be logged, saved or evaluated for it."""
        for reached, step in ((2, 2), (1, 0)):
            _, members = _membership()
            training = trainer.Trainer(elastic=True).start()
            members.keep(run_state.read(training.train, training.session))
            self.assertEqual(self._carried(training, members, reached=reached), step)
        _, members = _membership(settings={"memory_copy_steps": 0})
        training = trainer.Trainer(elastic=True).start()
        self.assertEqual(self._carried(training, members, reached=1), 2)

    def test_a_step_is_reached_once_its_results_are_there(self):
        """Otherwise it would be taken again after each loss, without end."""
        plan, members = _membership(settings={"memory_copy_steps": 0})
        members._sessions.change = lambda: ""
        (hook,) = members.hooks(types.SimpleNamespace(plan=plan))
        hook.next_due(4)
        self.assertEqual(members.reached, 4)
        hook.after_run(None, None)
        self.assertEqual(members.reached, 5)

    def test_a_session_that_is_lost_while_values_are_loaded_leaves_no_state(self):
        """It has some of them, and initial values for the others."""
        flags = dict(device="cpu", num_gpus=1, batch_size=8, num_batches=1)
        whole = config.make(data_name="synthetic", **flags)
        plan = planning.make(whole, lambda _: digit_runs.small_model())

        class Sessions(sessions.Local):
            members = types.SimpleNamespace(workers=[cluster_spec.Task("worker", 0)])

        def lost(train, session, restore):
            session.run(train.initializer)
            raise RuntimeError("lost")

        self.enter_context(
            mock.patch.object(membership, "plan_for", lambda plan, _: plan)
        )
        self.enter_context(mock.patch.object(loop, "start", lost))
        read = self.enter_context(mock.patch.object(run_state, "read"))
        with self.assertRaisesRegex(RuntimeError, "lost"):
            run.train(plan, progress.Console(io.StringIO()), Sessions())
        read.assert_not_called()
