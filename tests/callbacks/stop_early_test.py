"""Training ends when a metric no longer improves."""

from absl.testing import parameterized

from tests.callbacks import metric_runs
from towers.callbacks import StopEarly
from towers.callbacks.user_callbacks import CallbackError


class StopEarlyTest(metric_runs.MetricRuns):
    @parameterized.parameters(
        ("min", 1, 0.0, [3.0, 2.0, 2.5, 1.0, 1.0], 12),
        ("min", 2, 0.0, [3.0, 2.0, 2.5, 1.0, 1.0], 20),
        ("max", 1, 0.0, [3.0, 2.0, 2.5, 1.0, 1.0], 8),
        ("min", 1, 0.6, [3.0, 2.0, 1.5, 1.0, 0.1], 12),
        ("min", 2, 0.0, [3.0, float("nan"), float("nan"), 1.0, 1.0], 12),
    )
    def test_stops_after_the_evaluation(self, best, patience, change, values, step):
        stop = StopEarly("own", best=best, patience=patience, min_change=change)
        lines = self.train(stop, values=values, num_batches=20)
        self.assertEqual(self.steps(), [step])
        stopped = [line for line in lines if line.startswith("StopEarly: own was best")]
        self.assertLen(stopped, int(step < 20))

    def test_the_same_command_does_not_go_on(self):
        for last_step in (8, 8):
            stop = StopEarly("own", best="min")
            self.train(stop, values=[1.0, 2.0, 0.5], save_model_steps=4)
            self.assertEqual(self.steps()[-1], last_step)
        # an evaluator beside the run reads it
        with open(f"{self.directory}/end") as file:
            self.assertEqual(file.read(), "8\n")

    def test_a_resumed_run_stops_where_one_that_was_never_killed_does(self):
        values = [1.0, 2.0, 0.9, 1.0, 1.0, 0.1]
        settings = dict(values=values, num_batches=24, save_model_steps=4)
        with self.assertRaises(CallbackError):
            self.train(
                metric_runs.Fails(8, "after_evaluation"),
                StopEarly("own", best="min", patience=2),
                **settings,
            )
        self.train(StopEarly("own", best="min", patience=2), **settings)
        self.assertEqual(self.steps()[-1], 20)

    def test_an_evaluation_that_the_checkpoint_holds_is_counted_once(self):
        values = [1.0, 2.0, 0.9, 1.0, 1.0, 0.1]
        for steps in (8, 24):
            stop = StopEarly("own", best="min", patience=2)
            self.train(stop, values=values, num_batches=steps)
        self.assertEqual(self.steps()[-1], 20)

    def test_a_metric_that_is_not_there(self):
        with self.assertRaisesRegex(
            CallbackError,
            "^StopEarly: no metric is called 'top_accuracy'; did you mean ",
        ):
            self.train(StopEarly("top_accuracy", best="max"))
        self.assertEqual(self.steps(), [4])  # nothing is lost

    def test_a_run_that_does_not_evaluate(self):
        with self.assertRaisesRegex(CallbackError, "^StopEarly needs evaluations: "):
            never = dict(eval_during_training_every_n_steps=None, eval_at_end=True)
            self.train(StopEarly("own", best="max"), **never)

    def test_neither_the_least_nor_the_largest(self):
        with self.assertRaisesRegex(ValueError, "best is 'low', and must be 'min' or"):
            StopEarly("loss", best="low")
