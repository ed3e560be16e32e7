"""The plan for other workers, and which state a run goes on from."""

import dataclasses
import types

from absl.testing import absltest

from flags import config
from tests import digit_runs, trainer
from towers import membership, planning, run_state
from towers.layout import cluster_spec

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


def _membership(elastic="keep_towers", **changes):
    settings = config.make(
        device="cpu",
        num_gpus=1,
        batch_size=8,
        num_batches=3,
        data_name="synthetic",
        elastic=elastic,
    )
    plan = planning.make(settings, lambda _: digit_runs.small_model(), _SPEC)
    members = dataclasses.replace(_SPEC, **changes)
    sessions = types.SimpleNamespace(members=members)
    return plan, membership.Membership(plan, sessions, print)


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
