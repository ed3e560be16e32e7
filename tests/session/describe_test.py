"""The header says which mean a step takes, in every mode."""

import dataclasses
import json
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

import models
from flags import config
from towers import graph, planning
from towers.layout import cluster_spec, processor
from towers.layout.stages import Pipeline
from towers.session import describe

_ELASTIC = {
    "keep_towers": "the towers of lost workers move to others",
    "keep_batch": "the batch of a step is divided among the workers",
    "scale_lr": "the batch of a tower stays; the learning rate is that of 2 workers",
}


def _described(spec=None, **flags):
    settings = config.make(device="cpu", data_name="synthetic", batch_size=2, **flags)
    plan = planning.make(settings, models.get, spec)
    built = graph.build(**plan.parts)
    return dict(describe.header(plan, built)), describe.facts(plan, built)


class DescribeTest(parameterized.TestCase):
    @parameterized.parameters(
        ("parameter_server", "mean over the examples of 3 towers", None),
        ("replicated", "mean over the examples of 3 towers", "pscpu"),
        ("independent", "none", None),
    )
    def test_modes(self, mode, reduction, spec):
        rows, _ = _described(model="mlp", num_gpus=3, variable_update=mode)
        self.assertEqual(rows["Variables"], mode)
        self.assertEqual(rows["Reduction"], reduction)
        self.assertEqual(rows.get("AllReduce"), spec)
        self.assertEqual(rows["Batch size"], "6 global\n2 per device")
        self.assertIn("/device:CPU:0", rows["Parameters"])
        self.assertEqual(rows["Mode"], "training")

    def test_what_differs_from_the_mean(self):
        flags = dict(gradient_factor=2.0, batch_norm_averages="first_tower")
        rows, _ = _described(model="resnet20", num_gpus=2, **flags)
        self.assertEqual(
            rows["Reduction"], "mean over the examples of 2 towers, times 2"
        )
        self.assertEqual(
            rows["Batch norm"], "statistics per tower; saved: the first tower's"
        )

    @parameterized.parameters(
        ("keep_towers", "micro_batch", "per tower; saved: the mean over the towers$"),
        (
            "keep_batch",
            "micro_batch",
            "over the towers; a tower's batch changes with t",
        ),
        ("keep_batch", "sync", "all towers' batches as one; these are saved$"),
        ("scale_lr", "micro_batch", "per tower; saved: the mean over the towers$"),
        ("scale_lr", "sync", "these are saved; their number changes with the workers"),
    )
    def test_what_batch_norm_averages_over_when_workers_come_and_go(
        self, elastic, batch_norm, words
    ):
        spec = cluster_spec.from_hosts(
            "chief", 0, ps=["p:1"], workers=["w0:1", "w1:1"], controller="c:1"
        )
        flags = dict(model="resnet20", elastic=elastic, batch_norm=batch_norm)
        rows, _ = _described(dataclasses.replace(spec, elastic=True), **flags)
        self.assertRegex(rows["Batch norm"], words)
        self.assertStartsWith(rows["Elastic"], _ELASTIC[elastic])

    @parameterized.parameters(
        ({}, "2 gradients as 0.0413 instead of 8.47 MB per tower"),
        ({"sufficient_factors": False}, None),
        ({"variable_update": "replicated"}, None),
    )
    def test_what_goes_as_factors(self, flags, words):
        rows, _ = _described(model="lenet", num_gpus=3, **flags)
        self.assertEqual(rows.get("Factors"), words)

    @parameterized.parameters(
        ({}, "float32, products TensorFloat-32"),
        ({"tensor_float_32": False}, "float32, products float32"),
        ({"compute_dtype": "bfloat16"}, "bfloat16, variables float32"),
    )
    def test_products_on_gpus(self, flags, said):
        settings = config.make(
            device="gpu", model="mlp", data_name="synthetic", batch_size=2, **flags
        )
        gpu = tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")
        with mock.patch.object(tf.config, "list_physical_devices", return_value=[gpu]):
            plan = planning.make(settings, models.get)
            rows = dict(describe.header(plan, graph.build(**plan.parts)))
        self.assertEqual(rows["Compute dtype"], said)

    @parameterized.parameters(("float32", False), ("bfloat16", True))
    def test_a_dtype_that_is_slow_on_this_cpu(self, dtype, slow):
        facts = self.create_tempfile(content="flags : fpu avx2\n\n").full_path
        with mock.patch.object(processor, "_FACTS", facts):
            rows, _ = _described(model="mlp", compute_dtype=dtype)
        first, *others = rows["Compute dtype"].split("\n")
        self.assertEqual(first, f"{dtype}, variables float32")
        self.assertLen(others, int(slow))

    @parameterized.parameters(
        ({}, "", "no bound"),
        (dict(max_staleness=1), "", "at most 1 update"),
        (
            dict(max_staleness=0, staleness_lr=True),
            ", divided by its staleness where that is above 1",
            "at most 0 updates",
        ),
    )
    def test_towers_that_do_not_wait(self, flags, divided, bound):
        rows, _ = _described(model="mlp", num_gpus=3, cross_replica_sync=False, **flags)
        rule = f"for an update by 2 examples{divided}; 3 updates take the place of one"
        self.assertEqual(rows["Learning rate"], f"{rule} synchronous step")
        self.assertEqual(rows["Staleness"], bound)

    def test_batch_norm_says_which_statistics_are_saved(self):
        rows, _ = _described(model="resnet20")
        self.assertIn("mean over the towers", rows["Batch norm"])
        self.assertIn("0.0001", rows["Weight decay"])

    @parameterized.parameters(
        ("tower", {}, "statistics per tower; saved: the mean over the towers"),
        (
            "tower",
            dict(pipeline=Pipeline(1, 2, "gpipe")),
            "statistics per tower, of all its micro-batches as one; saved: the mean "
            "over the towers",
        ),
        (
            "sync",
            dict(pipeline=Pipeline(1, 2, "gpipe")),
            "statistics of all towers' batches as one; these are saved",
        ),
        (
            "sync_micro_batch",
            dict(accumulate_steps=2),
            "statistics per round, of all towers as one; saved: the mean over the "
            "rounds",
        ),
        (
            "micro_batch",
            dict(accumulate_steps=2),
            "statistics per round; saved: the mean over the rounds and towers",
        ),
    )
    def test_batch_norm_says_how_far_it_reaches(self, batch_norm, settings, words):
        options = graph.Options(batch_size=2, batch_norm=batch_norm, **settings)
        self.assertEqual(describe._batch_norm(options), words)

    def test_independent_towers_save_what_the_first_has_seen(self):
        options = graph.Options(batch_size=2)
        self.assertEqual(
            describe._batch_norm(options, joined=False),
            "statistics per tower; saved: the first tower's",
        )

    def test_stages_say_their_blocks_and_their_order(self):
        rows, facts = _described(
            model="resnet20",
            num_gpus=4,
            num_stages=2,
            num_micro_batches=2,
            schedule="interleaved",
            partition="stem,stage1_unit3,stage2_unit3",
            recompute="block",
        )
        self.assertEqual(
            rows["Stages"],
            "0: stem, stage2_unit1 to stage2_unit3\n"
            "1: stage1_unit1 to stage1_unit3, stage3_unit1 to logits",
        )
        self.assertIn("2 per tower, interleaved: one forward", rows["Micro-batches"])
        self.assertIn("each block", rows["Recompute"])
        self.assertIn("per micro-batch", rows["Batch norm"])
        self.assertIn("mean over the micro-batches and towers", rows["Batch norm"])
        self.assertIn("'/device:CPU:1'], ['/device:CPU:2'", rows["Devices"])
        self.assertEqual(rows["Reduction"], "mean over the examples of 2 towers")
        self.assertLen(facts["devices"], 4)

    def test_shards_say_what_lies_where(self):
        rows, _ = _described(
            model="transformer_lm", num_gpus=2, shard_classifier=2, shard_embeddings=2
        )
        self.assertEqual(
            rows["Shards"],
            "embedding/tokens: 128, 128 rows on /device:CPU:0, /device:CPU:1",
        )
        rows, _ = _described(model="mlp", num_gpus=2, shard_classifier=2)
        self.assertEqual(
            rows["Shards"],
            "logits/dense/kernel: 5, 5 columns on /device:CPU:0, /device:CPU:1\n"
            "logits/dense/bias: 5, 5 columns on /device:CPU:0, /device:CPU:1",
        )
        self.assertEqual(rows["Devices"], "[['/device:CPU:0', '/device:CPU:1']]")

    def test_what_is_trained_and_at_which_rate(self):
        flags = dict(trainable="conv", learning_rate_factors="bias=2,conv1=0.5")
        rows, _ = _described(model="lenet", num_gpus=2, **flags)
        self.assertEqual(
            rows["Trainable"],
            "4 variables, 53696 parameters; frozen: 4 variables, 2119657 parameters",
        )
        self.assertEqual(
            rows["Rate factors"],
            "2 for bias: 2 variables, 96 parameters\n"
            "0.5 for conv1: 1 variable, 2400 parameters",
        )
        rows, _ = _described(model="lenet")
        self.assertNoCommonElements(["Trainable", "Rate factors"], rows)

    def test_epochs_are_those_asked_for(self):
        rows, _ = _described(model="mlp", num_epochs=2.5, num_gpus=2)
        self.assertEqual(rows["Num epochs"], "2.50")

    def test_facts_are_json(self):
        _, facts = _described(model="mlp")
        self.assertEqual(json.loads(json.dumps(facts))["model_name"], "mlp")
        self.assertEqual(facts["run_parameters"]["batch_size"], 2)
