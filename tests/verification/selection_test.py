"""Tests of towers.verification.selection: which cases settings ask for."""

from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from flags import config
from tests import trainer
from towers import graph
from towers.layout.shards import Shards
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.verification import agreement, selection


def _select(optimizer="momentum", num_gpus=0, **flags):
    """The dense model's, a chain of two blocks, on a batch of 8."""
    device = "gpu" if num_gpus else "cpu"
    verify = config.make(config.VerifyConfig, device=device, **flags).verify
    subject = agreement.TrainingSubject(
        model=trainer.dense_model("own"),
        source=trainer.random_source(),
        update=Update(optimizer, Piecewise((0.1,))),
        global_batch=8,
        device=device,
        options=graph.Options(batch_size=2),
    )
    gpus = [mock.Mock()] * num_gpus
    with mock.patch.object(tf.config, "list_physical_devices", return_value=gpus):
        return selection.Selection(verify, subject, ["pscpu", "xring"])


class NumTowersTest(parameterized.TestCase):
    @parameterized.parameters(
        ((), 0, (1, 2, 4)),
        ((), 1, (1,)),
        ((), 3, (1, 2)),
        ((3, 5), 1, (3, 5)),  # placement refuses too many GPUs
    )
    def test_by_default_as_many_as_there_are_gpus(self, asked, num_gpus, wanted):
        split = config.make(config.VerifyConfig, num_towers=asked, logical_gpus=4)
        with mock.patch.object(tf.config, "list_physical_devices") as devices:
            devices.return_value = [mock.Mock()] * bool(num_gpus)
            count = selection.num_towers(split.verify)
            self.assertEqual(count, asked or (1, 2, 4))
        verify = config.make(config.VerifyConfig, num_towers=asked).verify
        gpus = [mock.Mock()] * num_gpus
        with mock.patch.object(tf.config, "list_physical_devices", return_value=gpus):
            self.assertEqual(selection.num_towers(verify), wanted)


class CheckBatchTest(parameterized.TestCase):
    @parameterized.parameters(
        ({"num_towers": (1, 2)}, 4, None),
        (
            {"num_towers": (2, 3)},
            9,
            "=.2, 3.: 2 towers cannot share a batch of 9, 3 times",
        ),
        ({"num_towers": (2,), "accumulate_steps": (1, 4)}, 4, "in 4 rounds; choose"),
        # Batch norm sees the rounds as one batch, so they are not compared.
        (
            {"num_towers": (2,), "accumulate_steps": (1, 4), "batch_norm": "sync"},
            4,
            None,
        ),
    )
    def test_all_share_it(self, flags, batch, error):
        flags = {"device": "cpu", "accumulate_steps": (1,), **flags}
        verify = config.make(config.VerifyConfig, **flags).verify
        if error is None:
            selection.check_batch(verify, batch, 3)
        else:
            with self.assertRaisesRegex(ValueError, error):
                selection.check_batch(verify, batch, 3)


class SelectionTest(parameterized.TestCase):
    def test_by_default_everything_that_fits(self):
        selected = _select()
        self.assertEqual({case.num_towers for case in selected.cases}, {1, 2, 4})
        pipelines = {case.pipeline for case in selected.cases} - {None}
        self.assertEqual({cut.stages for cut in pipelines}, {1, 2})
        self.assertEqual(
            {case.shards for case in selected.cases} - {None}, {Shards(classifier=2)}
        )
        left = "\n".join(selected.left_out)
        self.assertRegex(left, "^--num_stages=.*: more than the model has blocks")
        self.assertIn("--shard_embeddings=2: ", left)
        self.assertLen(selected.cases, len(set(selected.cases)))

    def test_what_is_not_wanted(self):
        selected = _select(
            num_towers=(1, 2),
            variable_update=("replicated",),
            compact_gradient_transfer=("float32",),
            pipelines="none",
            num_shards=(1,),
        )
        self.assertEqual(
            {case.variable_update for case in selected.cases}, {"replicated"}
        )
        for case in selected.cases:
            self.assertIsNone(case.pipeline)
            self.assertIsNone(case.shards)
        self.assertEqual(selected.left_out, [])

    def test_optimizers_whose_steps_may_turn(self):
        [said] = _select("adam", pipelines="none", num_shards=(1,)).left_out
        self.assertRegex(said, "^--compact_gradient_transfer: .* adam by any amount$")
        with self.assertRaisesRegex(ValueError, "'float16',.: .*optimizer=sgd or"):
            _select("adam", compact_gradient_transfer=("float16",))

    def test_stages_have_gpus_of_their_own(self):
        whole = _select(num_gpus=2, num_towers=(1, 2), pipelines="none")
        self.assertEqual(
            {case.num_towers for case in whole.cases if case.devices > 1}, {1}
        )
        selected = _select(num_gpus=2, num_towers=(2,), num_stages=(1,))
        for case in selected.cases:
            if case.pipeline:
                self.assertEqual(case.pipeline.stages, 1)
        with self.assertRaisesRegex(ValueError, "and there are 2 GPUs; write 1 or"):
            _select(num_gpus=2, num_towers=(2,), num_stages=(2,))

    @parameterized.parameters(
        (
            {"num_stages": (2, 3)},
            r"num_stages=\(2, 3\): own is a chain of 2 blocks; write 2",
        ),
        (
            {"num_micro_batches": (3,)},
            "=.3,.: must divide .*, 8 and 4; write some of 1,2,4",
        ),
        (
            {"num_micro_batches": (8,)},
            "=.8,.: must divide every tower's batch, 8 and 4",
        ),
        (
            {"batch_norm": "sync", "variable_update": ("independent",)},
            "towers of independent do not step together",
        ),
    )
    def test_what_is_asked_for_and_cannot_be(self, flags, error):
        with self.assertRaisesRegex(ValueError, error):
            _select(num_towers=(1, 2), **flags)
