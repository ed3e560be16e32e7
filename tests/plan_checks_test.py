"""Tests of towers.plan_checks, by the plans that it refuses."""

import dataclasses
from unittest import mock

import numpy as np
from absl.testing import parameterized

from flags import config
from models.inputs import Images, Tokens
from tests import digit_runs
from towers import planning
from towers.data import from_arrays
from towers.errors import memory_limits
from towers.errors.collected import PlanError
from towers.layout import cluster_spec


def _dense():
    """A model without batch norm."""
    blocks = (("logits", lambda x, nn: nn.dense(nn.flatten(x), nn.num_classes)),)
    return dataclasses.replace(digit_runs.small_model(), name="dense", blocks=blocks)


def zeros(split):
    """Data of one's own."""
    del split
    return from_arrays(np.zeros([4, 8, 8, 1], np.float32), np.zeros(4, np.int32))


class PlanChecksTest(parameterized.TestCase):
    def _errors(self, model=None, spec=None, **settings):
        settings = {"data_name": "synthetic", "device": "cpu", **settings}
        with self.assertRaises(PlanError) as caught:
            planning.make(config.make(**settings), lambda name: model or _dense(), spec)
        return caught.exception.errors

    @parameterized.parameters(
        ({"ps": 2}, {"variable_update": "replicated"}, "=parameter_server$"),
        ({"ps": 2}, {"shard_embeddings": 3}, "has 2 ps tasks; write 2 or fewer$"),
        (
            {"ps": 2},
            {"num_stages": 2, "num_gpus": 2},
            "; leave out --shard_embeddings$",
        ),
        ({}, {}, "has 0 ps tasks; give it as many$"),
    )
    def test_rows_on_a_cluster_need_ps_tasks(self, tasks, settings, error):
        spec = cluster_spec.local({**tasks, "worker": 1})
        problems = self._errors(spec=spec, **{"shard_embeddings": 2, **settings})
        self.assertRegex(problems[0], error)

    def test_variables_of_a_cluster_are_not_on_gpus(self):
        spec = cluster_spec.local({"worker": 1})
        [error] = self._errors(spec=spec, local_parameter_device="gpu")
        self.assertRegex(error, "^--local_parameter_device=gpu.*on a cluster")

    def test_data_that_python_reads_is_read_where_the_graph_is_built(self):
        spec = cluster_spec.local({"worker": 1})
        (error,) = self._errors(spec=spec, data_name="tests.plan_checks_test:zeros")
        self.assertRegex(error, "_test:zeros: Python reads it")
        self.assertIn("--replication=between_graph", error)

    def test_batches_that_no_memory_holds(self):
        [error] = self._errors(accumulate_steps=2**31 - 1)
        self.assertRegex(error, "^--accumulate_steps=2147483647: a step would have")
        limit = memory_limits.Limit("this machine", 16 * 10**9, 0)
        with mock.patch.object(memory_limits, "of_process", return_value=[limit]):
            [error] = self._errors(
                data_dir=digit_runs.data_dir(),
                data_name="digits",
                eval_at_end=True,
                eval_batch_size=2**31 - 1,
            )
        self.assertRegex(error, "^--eval_batch_size=2147483647: .* leaves 16.0 GB")
        # 1000 crops of 144 bytes, and as many that are prefetched.
        limit = memory_limits.Limit("a cgroup", 200_000, 0)
        with mock.patch.object(memory_limits, "of_process", return_value=[limit]):
            digits = {"data_dir": digit_runs.data_dir(), "data_name": "digits"}
            [error] = self._errors(batch_size=1000, **digits)
        self.assertRegex(error, "^--batch_size=1000: the batches would take")

    @parameterized.parameters({"data_format": "NCHW"}, {"distortions": False})
    def test_flags_that_only_images_give_a_meaning(self, **flags):
        model = dataclasses.replace(_dense(), inputs=Tokens(length=4))
        [error] = self._errors(model, **flags)
        [name] = flags
        self.assertRegex(error, f"{name}.*: dense reads tokens, not images")

    def test_distortions_of_a_preprocessing_without(self):
        plain = dataclasses.replace(_dense(), inputs=Images((8, 8, 1), 10))
        [error] = self._errors(plain, distortions=True)
        self.assertEqual(
            error,
            "--distortions: dense's preprocessing, scale, has no distortions; "
            "leave it out",
        )
        for model, distortions in ((plain, False), (_dense(), True)):
            settings = config.make(
                data_name="synthetic", device="cpu", distortions=distortions
            )
            planning.make(settings, lambda name, model=model: model)

    def test_batch_norm_of_a_model_without(self):
        [error] = self._errors(batch_norm="sync", num_gpus=2)
        self.assertStartsWith(error, "--batch_norm=sync: dense has no batch norm")
