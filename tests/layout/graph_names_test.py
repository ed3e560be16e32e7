"""Tests of towers.layout.graph_names: what the graph has at the top level."""

import io
import os
from unittest import mock

from absl.testing import parameterized

import models
from flags import config
from tests import digit_runs
from towers import planning, run
from towers.layout import graph_names
from towers.session.progress import Console
from towers.variable_update.modes import VARIABLE_UPDATES

_TOWERS = [f"tower_{index}" for index in range(4)]
_STEP = {"input", "variables", "reduction", "update", "checkpoint", "global_step"}


def _prepare(**settings) -> run.Prepared:
    config_made = config.make(
        model="lenet", data_name="digits", device="cpu", batch_size=2, **settings
    )
    with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}):
        plan = planning.make(config_made, models.get)
    return run.prepare(plan, Console(io.StringIO()))


def _top_level(prepared: run.Prepared) -> set[str]:
    return {op.name.split("/")[0] for op in prepared.built.graph.get_operations()}


class GraphNamesTest(parameterized.TestCase):
    @parameterized.parameters(
        dict(),
        dict(steps_per_loop=2),
        dict(variable_update="replicated", check_replicas_every=2),
        dict(use_fp16=True, fp16_enable_auto_loss_scale=True),
        dict(accumulate_steps=2),
        dict(gradient_clip_norm=1.0),
    )
    def test_a_step_alone(self, **settings):
        prepared = _prepare(num_gpus=4, num_batches=4, eval_at_end=False, **settings)
        self.assertEqual(_top_level(prepared), {*_STEP, *_TOWERS})

    @parameterized.product(mode=list(VARIABLE_UPDATES), stages=[1, 2])
    def test_with_all_that_stands_beside_the_step(self, mode, stages):
        prepared = _prepare(
            variable_update=mode,
            num_gpus=4 * stages,
            num_stages=stages,
            num_micro_batches=stages,
            eval_at_end=True,
            summary_verbosity=3,
            train_dir=self.create_tempdir().full_path,
            optimizer="adam",
            ema_decay=0.9,
        )
        beside = {"evaluation", "summaries"}
        self.assertEqual(_top_level(prepared), {*_STEP, *_TOWERS, *beside})

    @parameterized.parameters(*VARIABLE_UPDATES)
    def test_names_in_a_checkpoint_have_no_scope(self, mode):
        prepared = _prepare(variable_update=mode, num_gpus=2, optimizer="adam")
        kernel = "logits/dense/kernel"
        wanted = {"global_step", "position", "beta1_power", "beta2_power"}
        wanted |= {kernel, f"{kernel}/Adam", f"{kernel}/Adam_1"}
        self.assertContainsSubset(wanted, prepared.built.saved)
        for name, variable in prepared.built.saved.items():
            scope = "" if name == "global_step" else "variables/"
            self.assertEqual(variable.op.name, scope + name)
            self.assertEqual(graph_names.checkpoint_name(variable), name)
