"""Which settings of evaluation go with which run."""

from absl.testing import parameterized

from flags import sections
from towers.errors.collected import PlanError
from towers.evaluation import eval_settings


class EvaluationTest(parameterized.TestCase):
    def _errors(self, *, real=True, in_epochs=False, shared=False, **flags):
        settings = sections.EvaluationFlags(**flags)
        try:
            eval_settings.check(settings, real=real, in_epochs=in_epochs, shared=shared)
        except PlanError as error:
            return error.errors
        return []

    @parameterized.parameters(
        dict(),
        dict(real=False),
        dict(in_epochs=True, num_eval_batches=3),
        dict(eval_at_end=True, num_eval_batches=3),
        dict(eval=True, eval_split="train"),
        dict(eval_during_training_every_n_steps=5, eval_at_end=False, eval_dir="/d"),
        # A cluster's evaluator reads them, too.
        dict(shared=True, num_eval_batches=3),
        dict(shared=True, eval_interval_secs=3),
        dict(eval=True, eval_interval_secs=3),
        dict(shared=True, eval_at_end=False, eval_dir="/d"),
        dict(shared=True, real=False, eval_batch_size=3),
    )
    def test_goes(self, **settings):
        self.assertEqual(self._errors(**settings), [])

    @parameterized.parameters(
        (False, False, {}),
        (True, True, {}),
        (False, True, dict(eval_at_end=False)),
        (True, False, dict(eval_at_end=True)),
        (True, False, dict(eval=True)),
        (True, True, dict(eval_at_end=False, eval_during_training_every_n_steps=5)),
        (False, False, dict(eval_split="train")),
    )
    def test_wanted(self, wanted, in_epochs, flags):
        actual = eval_settings.wanted(sections.EvaluationFlags(**flags), in_epochs)
        self.assertEqual(actual, wanted)

    @parameterized.parameters(
        (dict(num_eval_batches=3), "num_eval_batches=3", "this run evaluates nothing"),
        (dict(eval_dir="/d"), "eval_dir=/d", "this .*; write --eval_at_end, or leave"),
        (
            dict(in_epochs=True, eval_at_end=False, eval_batch_size=5),
            "eval_batch_size=5",
            "this run evaluates nothing",
        ),
        (dict(real=False, in_epochs=True, eval_split="x"), "eval_split=x", "synthetic"),
    )
    def test_refuses(self, settings, flag, words):
        [error] = self._errors(**settings)
        self.assertRegex(error, f"^--{flag}: is about evaluation, and {words}")

    @parameterized.parameters({}, dict(eval_at_end=True), dict(in_epochs=True))
    def test_who_trains_does_not_look_for_checkpoints(self, **settings):
        [error] = self._errors(eval_interval_secs=60, **settings)
        self.assertRegex(error, "^--eval_interval_secs=60: needs --eval, or a cluster")

    def test_names_all(self):
        self.assertLen(self._errors(num_eval_epochs=1.0, eval_batch_size=5), 2)

    @parameterized.parameters(
        dict(eval_at_end=True),
        dict(eval_during_training_every_n_steps=5),
        dict(eval_during_training_at_specified_epochs=(1.0,)),
        dict(eval=True, eval_dir="/d"),
    )
    def test_synthetic_data(self, **flags):
        [error] = self._errors(real=False, **flags)
        name, *_ = flags
        self.assertRegex(error, f"^--{name}: synthetic .* --data_name$")
