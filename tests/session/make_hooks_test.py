"""Which flags ask for which hooks, and their order."""

import io
import os
from unittest import mock

from absl.testing import parameterized

import models
from flags import config
from tests import digit_runs
from towers import planning, run
from towers.evaluation import evaluator
from towers.session import make_hooks
from towers.session.progress import Console


def _attempt(begin=0, last_step=100, **flags):
    settings = {"model": "mlp", "data_name": "digits", "batch_size": 2, **flags}
    with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}):
        config_made = config.make(device="cpu", num_gpus=2, **settings)
        plan = planning.make(config_made, models.get)
    prepared = run.prepare(plan, Console(io.StringIO()))
    due = evaluator.steps(plan)
    return make_hooks.Attempt(prepared, begin, last_step, lambda *_: 0.0, due)


def _names(attempt):
    return [type(hook).__name__ for hook in make_hooks.make_hooks(attempt)]


class MakeHooksTest(parameterized.TestCase):
    def test_a_loss_is_looked_at_unless_told_otherwise(self):
        self.assertEqual(_names(_attempt()), ["StopOnNan"])
        self.assertEmpty(_names(_attempt(stop_on_nan=False)))

    @parameterized.parameters(
        (
            "ReportSkips",
            dict(compute_dtype="float16", fp16_enable_auto_loss_scale=True),
        ),
        ("CheckReplicas", dict(variable_update="replicated", check_replicas_every=2)),
        ("TraceStep", dict(trace_file="x")),
        ("ReportPipeline", dict(num_micro_batches=2, pipeline_report="x")),
        ("WriteSummaries", dict(summary_verbosity=1), True),
        ("SaveCheckpoints", dict(save_model_steps=5), True),
        ("SaveCheckpoints", dict(save_model_secs=5), True),
        ("Evaluate", dict(eval_during_training_every_n_steps=5)),
        ("Evaluate", dict(eval_during_training_at_specified_steps=(3, 5))),
    )
    def test_one_flag_one_hook(self, name, flags, on_disk=False):
        if on_disk:
            flags = {**flags, "train_dir": self.create_tempdir().full_path}
        self.assertEqual(_names(_attempt(**flags)), ["StopOnNan", name])

    def test_a_step_is_looked_at_before_it_is_saved_and_saved_before_evaluated(self):
        actual = _names(
            _attempt(
                train_dir=self.create_tempdir().full_path,
                variable_update="replicated",
                eval_during_training_every_n_steps=5,
                save_model_steps=5,
                trace_file="x",
                check_replicas_every=5,
            )
        )
        wanted = "StopOnNan CheckReplicas TraceStep SaveCheckpoints Evaluate"
        self.assertEqual(actual, wanted.split())


class RecordedStepTest(parameterized.TestCase):
    @parameterized.parameters(
        # warm-up, first and last step of the attempt, the step that is recorded
        (10, 0, 100, 9),  # the second last of the warm-up
        (0, 0, 100, 2),  # the first makes the kernels
        (10, 50, 100, 52),
        (10, 0, 5, 5),
        (10, 99, 100, 100),
    )
    def test_is_warm_and_within_the_run(self, warmup, begin, last_step, step):
        attempt = _attempt(begin, last_step, num_warmup_batches=warmup)
        self.assertEqual(attempt.recorded_step, step)
