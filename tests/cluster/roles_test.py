"""Tests of cluster.roles: what each role makes of the command line of all tasks."""

import dataclasses

from absl.testing import absltest, parameterized

from flags import config, parse
from towers.cluster import roles

_CHOICES = {"model": ["lenet", "mlp"]}


def _read(*flags: str) -> config.Config:
    return parse.parse(["train", *flags], _CHOICES)


class EvaluatorTest(parameterized.TestCase):
    def test_evaluates_from_time_to_time(self):
        for flags, seconds in ([], 5), (["--eval", "--eval_interval_secs=60"], 60):
            evaluation = roles.for_evaluator(_read("--train_dir=x", *flags)).evaluation
            self.assertEqual(
                (evaluation.eval, evaluation.eval_interval_secs), (True, seconds)
            )

    def test_its_devices_are_its_own(self):
        spread = ["--partition_bytes=1000", "--variable_placement=round_robin"]
        ring = ["--variable_update=replicated", "--all_reduce_spec=xring"]
        for flags, kept in ((spread, []), (ring, ring[:1])):
            read = _read("--model=mlp", *flags)
            settings = roles.for_evaluator(read)
            self.assertNotEqual(read.variables, settings.variables)
            self.assertEqual(settings.variables, _read(*kept).variables)
            self.assertEqual(settings.model, read.model)

    @parameterized.parameters((2, 2), (4, 2), (1, 1))
    def test_stages_stay_where_there_are_devices_for_them(self, num_gpus, stages):
        read = _read(f"--num_gpus={num_gpus}", f"--num_stages={stages}")
        self.assertEqual(roles.for_evaluator(read).stages, read.stages)

    def test_without_devices_for_the_stages_only_shards_stay(self):
        read = _read("--num_gpus=1")
        cut = dataclasses.replace(read.stages, num_stages=2, shard_classifier=2)
        stages = roles.for_evaluator(dataclasses.replace(read, stages=cut)).stages
        self.assertEqual(stages, dataclasses.replace(read.stages, shard_classifier=2))


class FollowerTest(absltest.TestCase):
    def test_neither_keeps_nor_evaluates(self):
        typed = ["--train_dir=x", "--save_model_steps=5", "--eval_at_end"]
        read = _read("--model=mlp", "--num_batches=7", "--check_flags", *typed)
        settings = roles.for_follower(read)
        self.assertEqual(
            settings, _read("--model=mlp", "--num_batches=7", "--check_flags")
        )


class AgreedTest(absltest.TestCase):
    def test_what_shapes_the_graph_and_nothing_else(self):
        shared = ["--model=mlp", "--batch_size=8", "--num_gpus=2", "--recompute=block"]
        shared += ["--check_mean=True", "--replication=between_graph"]
        shared += ["--backup_workers=1", "--dropped_examples=replay"]
        typed = ["--train_dir=x", "--data_dir=y", "--num_intra_threads=1"]
        typed += ["--replay_membership=x", "--stall_secs=9"]
        typed += ["--pipeline_report=z", "--device=cpu"]
        self.assertEqual(sorted(roles.agreed(_read(*shared, *typed))), sorted(shared))
