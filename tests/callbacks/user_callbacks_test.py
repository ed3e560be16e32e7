"""Users' callbacks in whole runs: TensorFlow's own, and some that fail."""

import contextlib
import glob
import io
import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, trainer
from tests.callbacks import metric_runs
from towers import callbacks, train
from towers.callbacks import Callback
from towers.callbacks.user_callbacks import CallbackError
from towers.checkpoints import checkpoint

v1 = tf.compat.v1
hooks = v1.train

_LOOPS = (dict(), dict(steps_per_loop=4), dict(variable_update="replicated"))


class _Notes(hooks.SessionRunHook):
    """A plain hook that notes its calls."""

    def __init__(self):
        self.calls = []

    def begin(self):
        self.calls.append(f"begin {v1.get_default_graph().finalized}")

    def after_create_session(self, session, coord):
        self.calls.append("created")

    def after_run(self, run_context, run_values):
        self.calls.append("step")

    def after_evaluation(self, run_context, step, metrics):
        self.calls.append(f"evaluation {step} {sorted(metrics)[0]}")

    def end(self, session):
        self.calls.append("end")


class TensorFlowsHooksTest(metric_runs.MetricRuns):
    """Those that TensorFlow has, made as a user makes them."""

    def setUp(self):
        super().setUp()
        self.out = self.create_tempdir().full_path

    def _run(self, make, **settings):
        """Trains with what `make` makes of the train graph; the lines."""
        plain = dict(eval_during_training_every_n_steps=None, eval_batch_size=None)
        with self.patched(make):
            return self.train(**{**plain, **settings})

    @contextlib.contextmanager
    def patched(self, make):
        run, self.run_flags = self.run_flags, None

        def run_flags(callbacks, **settings):
            return run(callbacks=lambda graph: [make(graph)], **settings)

        self.run_flags = run_flags
        try:
            yield
        finally:
            self.run_flags = run

    def _tags(self):
        v1.summary.FileWriterCache.clear()
        return [tag for _, tag, _ in digit_runs.events(self.out)]

    @parameterized.parameters(*_LOOPS)
    def test_step_counter(self, **settings):
        self._run(
            lambda graph: hooks.StepCounterHook(every_n_steps=5, output_dir=self.out),
            **settings,
        )
        self.assertEqual(self._tags(), ["global_step/sec"] * 2)

    @parameterized.parameters(*_LOOPS)
    def test_profiler(self, **settings):
        self._run(
            lambda graph: hooks.ProfilerHook(save_steps=5, output_dir=self.out),
            **settings,
        )
        names = sorted(map(os.path.basename, glob.glob(f"{self.out}/timeline-*")))
        self.assertEqual(names, ["timeline-10.json", "timeline-5.json"])

    @parameterized.parameters(*_LOOPS)
    def test_stop_at_step(self, **settings):
        self._run(lambda graph: hooks.StopAtStepHook(last_step=7), **settings)
        self.assertEqual(self.steps(), [7])

    @parameterized.parameters(*_LOOPS)
    def test_checkpoint_saver(self, **settings):
        self._run(
            lambda graph: hooks.CheckpointSaverHook(self.out, save_steps=5), **settings
        )
        paths = tf.train.get_checkpoint_state(self.out).all_model_checkpoint_paths
        steps = [int(path.rpartition("-")[2]) for path in paths]
        self.assertEqual(steps, [0, 5, 10, 12])
        reader = tf.train.load_checkpoint(paths[-1])
        values = {n: reader.get_tensor(n) for n in reader.get_variable_to_shape_map()}
        trainer.assert_same_bits(values, self.values())

    def test_feeds(self):
        """A rate of 0 is fed from step 7 on."""
        step = [0]

        def make(graph):
            def feed():
                step[0] += 1
                return {graph.learning_rate: 0.0} if step[0] > 6 else {}

            return hooks.FeedFnHook(feed)

        self._run(make, save_model_steps=6, num_batches=9)
        names = [name for name in self.values() if name.endswith("kernel")]
        self.assertNotEmpty(names)
        for name in names:
            before, after = self.values(6)[name], self.values(9)[name]
            np.testing.assert_array_equal(before, after)

    def test_logging_tensors(self):
        with self.assertLogs("tensorflow", "INFO") as logs:
            self._run(
                lambda graph: hooks.LoggingTensorHook(
                    {"mine": graph.loss, "by_name": graph.learning_rate.name},
                    every_n_iter=4,
                )
            )
        lines = [line for line in logs.output if "mine = " in line]
        self.assertLen(lines, 3)
        self.assertIn("by_name = 0.05", lines[0])

    def test_nan_tensor(self):
        def make(graph):
            return hooks.NanTensorHook(tf.where(graph.step >= 5, np.nan, 0.0))

        with self.assertRaisesRegex(
            CallbackError, "^NanTensorHook.after_run failed: NanLossDuring.*ckpt-5$"
        ):
            self._run(make)

    @parameterized.parameters(*_LOOPS)
    def test_summary_saver(self, **settings):
        def make(graph):
            mine = v1.summary.scalar("mine", graph.loss)
            return hooks.SummarySaverHook(
                save_steps=5, output_dir=self.out, summary_op=mine
            )

        self._run(make, **settings)
        self.assertEqual(self._tags(), ["mine"] * 3)

    def test_where_towers_step_apart_one_step_of_a_hundred_is_seen(self):
        notes = _Notes()
        self._run(lambda graph: notes, variable_update="asynchronous", num_batches=350)
        self.assertBetween(notes.calls.count("step"), 5, 40)
        self._run(
            lambda graph: hooks.StopAtStepHook(num_steps=50),
            variable_update="asynchronous",
            num_batches=10**6,
        )
        self.assertBetween(self.steps()[-1], 750, 1000)


class CallsTest(metric_runs.MetricRuns):
    def test_the_order_of_the_calls(self):
        notes = _Notes()
        self.train(notes, num_batches=8)
        steps = ["step"] * 4
        wanted = [*steps, "evaluation 4 loss", *steps, "evaluation 8 loss"]
        self.assertEqual(notes.calls, ["begin False", "created", *wanted, "end"])

    def test_an_evaluation_at_the_end_comes_after_it(self):
        notes, never = _Notes(), dict(eval_during_training_every_n_steps=None)
        self.train(notes, num_batches=4, eval_at_end=True, **never)
        steps = ["step"] * 4
        wanted = ["begin False", "created", *steps, "end", "evaluation 4 loss"]
        self.assertEqual(notes.calls, wanted)

    @parameterized.parameters(
        dict(),
        dict(variable_update="replicated"),
        dict(variable_update="distributed_replicated"),
        dict(variable_update="staged"),
        dict(variable_update="relaxed"),
        dict(steps_per_loop=3),
        dict(accumulate_steps=2),
        dict(num_gpus=4, num_stages=2, num_micro_batches=2),
        dict(use_fp16=True, fp16_enable_auto_loss_scale=True),
        dict(optimizer="adam"),
    )
    def test_all_together_change_no_bit_of_a_training(self, **settings):
        self.train(**settings)
        plain, self.directory = self.values(), self.create_tempdir().full_path
        self.train(
            callbacks.CsvLog(every=2),
            callbacks.GradientNorms(every=5),
            callbacks.KeepBest("top_1_accuracy", best="max"),
            callbacks.StopEarly("loss", best="min", patience=9),
            callbacks.ReduceRate("loss", best="min", patience=9),
            callbacks.RateFinder(steps=20, highest=1e3),
            _Notes() if "steps_per_loop" not in settings else Callback(),
            **settings,
        )
        added = [name for name in self.values() if name.startswith("callbacks/")]
        self.assertLen(added, 4)
        kept = {n: v for n, v in self.values().items() if n not in added}
        trainer.assert_same_bits(kept, plain)

    def test_the_graph_has_no_names_more_at_its_top(self):
        def top(*added):
            names, note = set(), _Notes()

            def look():
                for operation in v1.get_default_graph().get_operations():
                    names.add(operation.name.partition("/")[0])

            note.end = lambda session: look()
            self.train(*added, note, num_batches=4)
            return names

        added = (
            callbacks.CsvLog(),
            callbacks.GradientNorms(),
            callbacks.KeepBest("loss", best="min"),
            callbacks.ReduceRate("loss", best="min"),
            callbacks.RateFinder(steps=3),
        )
        self.assertEqual(top(*added) - {"summaries"}, top())

    def test_a_variable_of_a_callback_is_saved_and_restored(self):
        class Counts(hooks.SessionRunHook):
            def begin(self):
                self._count = v1.get_variable("mine", [], tf.int32, use_resource=True)
                self._more = self._count.assign_add(1)

            def after_run(self, run_context, run_values):
                run_context.session.run(self._more)

        for steps in (3, 5):
            self.train(Counts(), num_batches=steps)
            self.assertEqual(self.values()["callbacks/mine"], steps)


class WrongTest(digit_runs.Runs):
    """What a user can get wrong is one sentence, and status 2."""

    def _main(self, text, *flags, function="made"):
        path = os.path.join(self.create_tempdir(), "mine.py")
        with open(path, "w") as file:
            file.write(f"import tensorflow as tf\nhooks = tf.compat.v1.train\n{text}")
        errors = io.StringIO()
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(errors),
        ):
            status = train.main(
                [
                    "train",
                    *("--model=mlp", "--device=cpu", "--batch_size=2", "--num_gpus=2"),
                    *("--num_batches=5", "--num_warmup_batches=0"),
                    f"--train_dir={self.directory}",
                    f"--callbacks={path}:{function}",
                    *flags,
                ]
            )
        self.assertEqual(status, 2)
        lines = [line for line in errors.getvalue().splitlines() if "error" in line]
        [line] = lines
        return line.replace(path, "FILE")

    @parameterized.parameters(
        ("after_run(self, run_context, run_values)", 1),
        ("before_run(self, run_context)", 0),
        ("end(self, session)", 5),
        ("after_create_session(self, session, coord)", 0),
    )
    def test_one_that_raises(self, method, step):
        name = method.partition("(")[0]
        line = self._main(
            "class Mine(hooks.SessionRunHook):\n"
            f"    def {method}:\n"
            "        1 / 0\n"
            "def made():\n    return [Mine()]\n"
        )
        self.assertEqual(
            line,
            f"error: Mine.{name} failed: ZeroDivisionError: division by zero (FILE:5); "
            f"the run is saved in {checkpoint.latest(self.directory)}",
        )
        self.assertEqual(self.steps(), [step])
        with open(f"{self.directory}/failure") as file:
            self.assertStartsWith(file.read(), f"Mine.{name} failed: ")

    def test_one_that_raises_in_begin_has_begun_nothing(self):
        line = self._main(
            "class Mine(hooks.SessionRunHook):\n    def begin(self):\n"
            "        raise ValueError('no such thing')\n"
            "def made(train):\n    return [Mine()]\n"
        )
        self.assertEqual(line, "error: Mine.begin failed: no such thing (FILE:5)")
        self.assertEmpty(self.steps())

    def test_one_that_adds_to_the_graph_too_late(self):
        line = self._main(
            "class Mine(hooks.SessionRunHook):\n"
            "    def after_run(self, run_context, run_values):\n"
            "        tf.constant(1.0)\n"
            "def made():\n    return (Mine(),)\n"
        )
        self.assertStartsWith(
            line,
            "error: Mine.after_run failed: it adds to the graph, which is complete "
            "once training begins; make operations and variables in begin (FILE:5); ",
        )

    @parameterized.parameters(
        ("made = 3", "error: --callbacks=FILE:made: 'FILE' has no function 'made'"),
        ("def make(): return []", "'FILE' has no function 'made'; did you mean make?"),
        ("def made(): return None", "made returned NoneType; it must be a callback"),
        ("def made(): return [3]", "made: 3 is no tf.compat.v1.train.SessionRunHook"),
        ("def made(): return [hooks.StopAtStepHook]", "Hook; write () after its name"),
        ("def made(): 1 / 0", "made of callbacks failed: ZeroDivisionError: division"),
        ("import nothing_like_it", "error: --callbacks=FILE:made: cannot import"),
    )
    def test_no_callbacks(self, text, sentence):
        self.assertIn(sentence, self._main(f"{text}\n"))

    @parameterized.parameters(
        (
            "hooks.SessionRunArgs('loss:7')",
            "fetches 'loss:7', which is not in",
        ),
        ("hooks.SessionRunArgs([3])", "fetches 3, which is not in the graph"),
        (
            "{'loss': 1}",
            "Mine.before_run returned dict; return a tf.compat.v1.train.Se",
        ),
    )
    def test_wrong_arguments_of_a_step(self, args, sentence):
        line = self._main(
            "class Mine(hooks.SessionRunHook):\n"
            "    def before_run(self, run_context):\n"
            f"        return {args}\n"
            "def made():\n    return [Mine()]\n"
        )
        self.assertIn(sentence, line)

    def test_a_callback_is_seen_where_many_steps_are_taken_at_once(self):
        line = self._main(
            "import towers.callbacks\nclass Mine(towers.callbacks.Callback):\n"
            "    def next_due(self, step):\n        return 2**62\n"
            "    def after_steps(self, step, losses, seconds):\n        1 / 0\n"
            "def made():\n    return [Mine()]\n",
            "--variable_update=asynchronous",
        )
        self.assertIn("Mine.after_steps failed: ZeroDivisionError", line)
        [step] = self.steps()
        self.assertEqual(self.values()["global_step"], step)
