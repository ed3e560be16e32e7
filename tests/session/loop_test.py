"""The session loop: TensorFlow's hooks work, and no step is lost."""

import tempfile
import types
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, trainer
from towers.callbacks.base import Callback
from towers.session import loop

v1 = tf.compat.v1


class _Recorder(Callback):
    """Notes what happens to it; wants to see the given steps by itself."""

    def __init__(self, due=None, stop_after=None):
        self.events = []
        self._due = due
        self._stop_after = stop_after

    def next_due(self, step):
        if self._due is None:
            return step + 1
        return min((s for s in self._due if s > step), default=2**62)

    def begin(self):
        self.events.append("begin")

    def after_create_session(self, session, coord):
        self.events.append("created")

    def after_run(self, run_context, run_values):
        self.events.append(1)
        if self.steps == self._stop_after:
            run_context.request_stop()

    def after_steps(self, step, losses, seconds):
        assert step == self.steps + len(losses), (step, self.events)
        assert seconds > 0
        self.events.append(len(losses))

    def end(self, session):
        self.events.append("end")

    @property
    def steps(self):
        return sum(event for event in self.events if isinstance(event, int))


class _Fetch(v1.train.SessionRunHook):
    """Fetches something else at each step, with feeds and options if asked."""

    def __init__(self, fetches, **options):
        self._fetches = fetches
        self._options = options
        self.found = []

    def before_run(self, run_context):
        fetches = self._fetches[len(self.found) % len(self._fetches)]
        return v1.train.SessionRunArgs(fetches, **self._options)

    def after_run(self, run_context, run_values):
        self.found.append(run_values)


class _CountsCallables:
    """A session that counts the callables it is asked for."""

    def __init__(self, session):
        self._session = session
        self.made = self.runs = 0

    def __getattr__(self, name):
        return getattr(self._session, name)

    def make_callable(self, *args, **options):
        self.made += 1
        return self._session.make_callable(*args, **options)

    def run(self, *args, **options):
        self.runs += 1
        return self._session.run(*args, **options)


def _trainer(**options):
    options = {"towers": 2, "batch_size": 4, **options}
    return trainer.Trainer(**options)


class TensorFlowsHooksTest(tf.test.TestCase):
    def setUp(self):
        super().setUp()
        self.made = _trainer()

    def _run(self, *hooks, last_step=10):
        # Some hooks look for the global step in the default graph when they are made.
        with self.made.train.graph.as_default():
            hooks = [make() for make in hooks]
        self.made.start()
        step = loop.run(self.made.train, self.made.session, hooks, last_step=last_step)
        self.assertEqual(step, self.made.session.run(self.made.train.global_step))
        return step

    def test_stop_at_step(self):
        self.assertEqual(self._run(lambda: v1.train.StopAtStepHook(last_step=7)), 7)
        self.assertEqual(self._run(lambda: v1.train.StopAtStepHook(num_steps=3)), 3)

    def test_logging_tensors(self):
        loss = self.made.train.loss
        with self.assertLogs("tensorflow", "INFO") as logs:
            self._run(
                lambda: v1.train.LoggingTensorHook({"mine": loss}, every_n_iter=4)
            )
        lines = [line for line in logs.output if "mine = " in line]
        self.assertLen(lines, 3)  # at steps 1, 5 and 9

    def test_nan_tensor(self):
        train = self.made.train
        with train.graph.as_default():
            poison = tf.where(train.step >= 4, np.nan, 0.0)
        with self.assertRaises(v1.train.NanLossDuringTrainingError):
            self._run(lambda: v1.train.NanTensorHook(poison))
        self.assertEqual(self.made.session.run(train.global_step), 4)

    def test_checkpoints_summaries_and_counters(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        train = self.made.train
        with train.graph.as_default():
            saver = v1.train.Saver(train.saved)
            summary = v1.summary.scalar("mine", train.loss)
        self._run(
            lambda: v1.train.CheckpointSaverHook(directory, save_steps=4, saver=saver),
            lambda: v1.train.SummarySaverHook(
                save_steps=3, output_dir=directory, summary_op=summary
            ),
            lambda: v1.train.StepCounterHook(every_n_steps=5, output_dir=directory),
        )
        paths = tf.train.get_checkpoint_state(directory).all_model_checkpoint_paths
        self.assertEqual([int(path.rsplit("-", 1)[1]) for path in paths], [0, 4, 8, 10])
        values = self.made.values()
        reader = tf.train.load_checkpoint(paths[-1])
        for name, value in values.items():
            arrays.assert_same_bits(reader.get_tensor(name), value, name)
        v1.summary.FileWriterCache.clear()
        [file] = tf.io.gfile.glob(f"{directory}/events*")
        tags = [
            value.tag
            for event in v1.train.summary_iterator(file)
            for value in event.summary.value
        ]
        self.assertEqual(tags.count("mine"), 4)  # steps 1, 4, 7, 10
        self.assertEqual(tags.count("global_step/sec"), 1)  # from step 1 to 6

    def test_feeds_options_and_metadata(self):
        train = self.made.train
        with train.graph.as_default():
            fed = v1.placeholder_with_default(1.0, [], "fed")
        options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
        feeds = _Fetch([fed], feed_dict={fed: 5.0})
        traces = _Fetch([{"loss": train.loss}], options=options)
        plain = _Fetch([[train.step, (fed,)]])
        self._run(lambda: feeds, lambda: traces, lambda: plain, last_step=2)
        self.assertEqual([values.results for values in feeds.found], [5, 5])
        self.assertEqual(plain.found[1].results, [2, (5.0,)])
        self.assertEqual(list(traces.found[0].results), ["loss"])
        self.assertNotEmpty(traces.found[0].run_metadata.step_stats.dev_stats)
        self.assertEqual(traces.found[0].options.trace_level, v1.RunOptions.FULL_TRACE)

    def test_fetches_by_name_and_in_any_structure(self):
        train = self.made.train
        # A name made anew at a step may have the address of an earlier name.
        names = [train.loss.name, train.step.name]
        by_name = _Fetch([None])
        by_name.before_run = lambda context: v1.train.SessionRunArgs(
            "".join(names[len(by_name.found) % 2])
        )
        step = train.step
        shapes = _Fetch([step, [step], (step,), {"x": step}, [step, ()], {"y": step}])
        self._run(lambda: by_name, lambda: shapes, last_step=6)
        self.assertEqual([v.results for v in by_name.found[1::2]], [2, 4, 6])
        self.assertEqual(
            [v.results for v in shapes.found],
            [1, [2], (3,), {"x": 4}, [5, ()], {"y": 6}],
        )

    def test_a_hook_may_run_the_session(self):
        values = []

        class Hook(v1.train.SessionRunHook):
            def after_run(self, run_context, run_values):
                values.append(run_context.session.run(global_step))

        global_step = self.made.train.global_step
        self._run(Hook, last_step=3)
        self.assertEqual(values, [1, 2, 3])


class LoopTest(tf.test.TestCase, parameterized.TestCase):
    def test_hooks_are_called_in_order(self):
        training = _trainer().start()
        hook = _Recorder()
        loop.run(training.train, training.session, [hook], last_step=3)
        self.assertEqual(hook.events, ["begin", "created", 1, 1, 1, "end"])

    def test_a_run_ends_at_the_global_step_and_goes_on_from_it(self):
        training = _trainer().start()
        for last_step in (3, 3, 2, 5):
            step = loop.run(training.train, training.session, [], last_step=last_step)
            self.assertEqual(step, max(3, last_step))

    def test_a_hook_stops_the_run_after_its_step(self):
        training = _trainer().start()
        hooks = [_Recorder(stop_after=4), _Recorder()]
        self.assertEqual(
            loop.run(training.train, training.session, hooks, last_step=9), 4
        )
        self.assertEqual([hook.events[-2:] for hook in hooks], [[1, "end"]] * 2)

    def test_without_hooks_nothing_but_the_step_is_run(self):
        training = _trainer().start()
        session = _CountsCallables(training.session)
        loop.run(training.train, session, [], last_step=20)
        self.assertEqual((session.made, session.runs), (1, 1))

    def test_a_callable_is_made_once_per_set_of_fetches(self):
        training = _trainer().start()
        train, session = training.train, _CountsCallables(training.session)
        hooks = [_Fetch([train.loss]), _Fetch([train.step, train.loss, train.step])]
        loop.run(train, session, hooks, last_step=12)
        self.assertEqual((session.made, session.runs), (2, 1))

    def test_steps_run_inside_the_graph_between_those_that_a_hook_must_see(self):
        training = _trainer().add_loop().start()
        hook = _Recorder(due=[1, 9, 10])
        step = loop.run(
            training.train, training.session, [hook], last_step=24, steps_per_loop=5
        )
        self.assertEqual(step, 24)
        self.assertEqual(hook.events[2:-1], [1, 5, 2, 1, 1, 5, 5, 4])

    @parameterized.parameters(
        (50, 1.0, [8, 3, 3, 3, 3]),  # no longer than 3 seconds, from the second call on
        (50, 0.25, [8, 12]),
        (5, 0.25, [5, 5, 5, 5]),
        (50, 60.0, [8, 2, 2, 2, 2, 2, 2]),
    )
    def test_steps_inside_the_graph_end_in_time(self, steps_per_loop, pace, calls):
        """So that a signal or a checkpoint waits for seconds, not for all of them."""
        training = _trainer().add_loop().start()
        now, hook = [50.0], _Recorder(due=[])
        runner = training.train.loop.runner(training.session)

        def timed(step, count):
            now[0] += pace * count
            yield from runner(step, count)

        inner = types.SimpleNamespace(free=False, runner=lambda session: timed)
        train = training.train._replace(loop=inner)
        with mock.patch.object(loop.time, "monotonic", lambda: now[0]):
            loop.run(
                train,
                training.session,
                [hook],
                last_step=20,
                steps_per_loop=steps_per_loop,
            )
        self.assertEqual(hook.events[2:-1], calls)

    def test_towers_that_run_free_end_together_from_time_to_time(self):
        """So that a hook may become due meanwhile, as by a signal."""
        training = _trainer().add_loop().start()
        free = types.SimpleNamespace(free=True, runner=training.train.loop.runner)
        train = training.train._replace(loop=free)
        least, hook = 8 * train.placement.num_towers, _Recorder(due=[])
        with mock.patch.object(loop, "_SECONDS", 0.0):
            loop.run(train, training.session, [hook], last_step=2 * least + 1)
        self.assertEqual(hook.events[2:-1], [least, least, 1])

    def test_a_plain_hook_sees_every_step(self):
        training = _trainer().add_loop().start()
        hook = _Fetch([training.train.step])
        loop.run(
            training.train, training.session, [hook], last_step=4, steps_per_loop=50
        )
        self.assertEqual([values.results for values in hook.found], [1, 2, 3, 4])


class StartTest(tf.test.TestCase):
    def test_variables_then_checkpoint_then_replicas_then_input(self):
        """Each act sees what the ones before it did."""
        training = _trainer(variable_update="replicated").start()
        training.steps(3)
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        training.save(directory)
        saved = training.values()
        training.steps(5)

        other = _trainer(variable_update="replicated")
        seen = {}

        def restore(session):
            seen.update(session.run(other.train.saved))
            with other.train.graph.as_default():
                v1.train.Saver(other.train.saved).restore(
                    session, tf.train.latest_checkpoint(directory)
                )

        loop.start(other.train, other.session, restore)
        self.assertEqual(seen["global_step"], 0)
        trainer.assert_same_bits(other.values(), saved)
        with other.train.graph.as_default():
            replicas = other.train.mode.replicas
        for name, copies in replicas.items():
            for copy in other.session.run(copies):
                arrays.assert_same_bits(copy, saved[name], name)
        # The examples are those after the checkpoint's.
        other.steps(5)
        trainer.assert_same_bits(other.everything(), training.everything())

    def test_steps_left(self):
        for limit, towers, left in ((70, 2, 9), (72, 2, 9), (73, 2, 10), (73, 1, 19)):
            training = _trainer(limit=limit, towers=towers).start()
            self.assertEqual(loop.steps_left(training.train, training.session), left)
        training.steps(4)
        self.assertEqual(loop.steps_left(training.train, training.session), 15)
        values = training.to_the_end()
        self.assertEqual((values["global_step"], values["position"]), (19, 73))
        self.assertEqual(loop.steps_left(training.train, training.session), 0)
