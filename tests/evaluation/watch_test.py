"""Evaluation alone finds what training's own evaluation found, on any towers."""

import dataclasses
import io
import json
import math
import os
import shutil
import signal
import tempfile
import types
from unittest import mock

from absl.testing import parameterized

import models
from flags import config
from tests import digit_runs, in_process_cluster
from towers import planning
from towers.callbacks.base import TrainingError
from towers.checkpoints import run_status
from towers.errors import output_paths
from towers.evaluation import watch
from towers.session import progress
from towers.session.stop import StopOnSignal


class WatchTest(digit_runs.Runs):
    """A run of one epoch, 46 steps of 32, with checkpoints on the way."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.trained = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, cls.trained)
        cls.lines = None

    def setUp(self):
        super().setUp()
        if self.lines is None:
            type(self).lines = self.run_flags(
                num_gpus=2,
                num_epochs=1.0,
                save_model_steps=20,
                eval_during_training_at_specified_steps=(20, 40),
                train_dir=self.trained,
            )
        shutil.copytree(self.trained, self.directory)
        self.at_20, self.at_40, self.at_end = digit_runs.accuracies(self.lines)

    def _evaluate(self, **flags):
        flags = {"num_epochs": 1.0, "train_dir": self.directory, **flags}
        return self.run_flags(eval=True, **flags)

    def _plan(self, **flags):
        flags = dict(device="cpu", data_name="digits", eval=True, **flags)
        settings = config.make(train_dir=self.directory, **flags)
        with mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}):
            return planning.make(settings, lambda name: digit_runs.small_model())

    def _forget(self, *steps):
        """Removes the checkpoints of some steps, newest last."""
        for name in os.listdir(self.directory):
            if any(f"model.ckpt-{step}." in name for step in steps):
                os.remove(os.path.join(self.directory, name))

    def test_any_number_of_towers_and_any_batch_size(self):
        before = sorted(os.listdir(self.directory))
        self.assertEqual(self.at_end[1], 355)
        for num_gpus, batch_size in ((1, 0), (2, 50), (8, 7)):
            lines = self._evaluate(num_gpus=num_gpus, eval_batch_size=batch_size)
            self.assertEqual(lines[0], "Running evaluation at global_step 46")
            self.assertEqual(digit_runs.accuracies(lines), [self.at_end])
        self.assertEqual(sorted(os.listdir(self.directory)), before)

    def test_any_number_of_shards(self):
        lines = self._evaluate(num_gpus=6, shard_classifier=3)
        self.assertEqual(digit_runs.accuracies(lines), [self.at_end])

    @parameterized.parameters(False, True)
    def test_a_cluster_finds_the_same(self, between):
        ended = in_process_cluster.ended(
            *("--model=tests.digit_runs:small_model", "--eval", "--eval_batch_size=7"),
            f"--train_dir={self.directory}",
            data_dir=digit_runs.data_dir(),
            between=between,
        )
        evaluated = ended["worker 0" if between else "controller 0"]
        self.assertEqual(digit_runs.accuracies(evaluated), [self.at_end])

    def test_averages_are_read(self):
        with_averages = digit_runs.accuracies(self._evaluate())
        without = digit_runs.accuracies(self._evaluate(ema_decay=0.0))
        self.assertNotEqual(with_averages, without)

    def test_averages_are_not_left_aside_without_a_word(self):
        plan = self._plan(num_epochs=1.0)
        update = dataclasses.replace(plan.update, ema_decay=0.0)
        plan = dataclasses.replace(plan, update=update)
        with self.assertRaisesRegex(ValueError, "give the value of the training"):
            watch.evaluate_checkpoints(plan, progress.Console(io.StringIO()))

    def test_summaries_and_logs(self):
        out = self.create_tempdir().full_path
        self._evaluate(eval_dir=f"{out}/mine", benchmark_log_dir=f"{out}/log")
        scalars = {tag: value for _, tag, value in digit_runs.events(f"{out}/mine")}
        self.assertAlmostEqual(scalars["top_1_accuracy"], self.at_end[0], delta=1e-4)
        with open(f"{out}/log/metric.log") as file:
            metrics = {m["name"]: m["global_step"] for m in map(json.loads, file)}
        self.assertEqual(metrics["eval_top_1_accuracy"], 46)
        before = len(digit_runs.events(f"{self.directory}/eval"))
        self._evaluate()
        self.assertGreater(len(digit_runs.events(f"{self.directory}/eval")), before)

    def test_part_of_the_split(self):
        [(_, count)] = digit_runs.accuracies(
            self._evaluate(num_eval_batches=3, num_gpus=2)
        )
        self.assertEqual(count, 3 * 2 * 16)
        [(accuracy, count)] = digit_runs.accuracies(self._evaluate(num_eval_epochs=2.0))
        self.assertEqual((accuracy, count), (self.at_end[0], 2 * 355))
        [(_, count)] = digit_runs.accuracies(self._evaluate(num_eval_epochs=0.001))
        self.assertEqual(count, 1)

    def test_each_checkpoint_once_though_the_newest_is_another(self):
        """One that comes while the newest is looked for; then one that is broken."""
        self._forget(46)
        find, shown = watch.checkpoint.latest, ["model.ckpt-20"] * 2

        def latest(directory):
            newest = find(directory)
            return os.path.join(directory, shown.pop()) if shown else newest

        def wait(seconds, over):
            if os.path.exists(f"{self.directory}/model.ckpt-46.index"):
                os.kill(os.getpid(), signal.SIGTERM)
            shutil.copy(f"{self.trained}/model.ckpt-46.index", self.directory)

        with (
            mock.patch.object(watch, "_wait", wait),
            mock.patch.object(watch.checkpoint, "latest", latest),
        ):
            flags = dict(eval_interval_secs=7, num_epochs=9.0)
            lines = self._evaluate(status=143, **flags)
        self.assertEqual(digit_runs.accuracies(lines), [self.at_40])
        self.assertLen([line for line in lines if "cannot be read" in line], 1)

    def test_one_that_could_not_be_read_is_looked_at_again(self):
        """Its data may come after its index, as on a network's file system."""
        data = "model.ckpt-46.data-00000-of-00001"
        os.remove(os.path.join(self.directory, data))

        def wait(seconds, over):
            shutil.copy(os.path.join(self.trained, data), self.directory)

        with mock.patch.object(watch, "_wait", wait):
            lines = self._evaluate(eval_interval_secs=7)
        self.assertEqual(digit_runs.accuracies(lines), [self.at_40, self.at_end])

    def test_no_checkpoint(self):
        shutil.rmtree(self.directory)
        with self.assertRaisesRegex(
            ValueError, "^eval=True: there is no checkpoint in"
        ):
            self._evaluate()
        self.assertFalse(os.path.exists(self.directory))

    def test_another_model(self):
        with self.assertRaisesRegex(
            ValueError, "of another model .*not in it: hidden1/"
        ):
            self._evaluate(get_model=lambda name: models.get("mlp"))

    def test_another_model_after_one_that_was_evaluated(self):
        """What would be refused at the start has failed by then: status 1."""
        self._forget(46)

        def wait(seconds, over):
            for suffix in (".index", ".data-00000-of-00001"):
                shutil.copy(f"{self.trained}/model.ckpt-46{suffix}", self.directory)

        refused = mock.MagicMock(side_effect=[None, ValueError("of another model")])
        with (
            mock.patch.object(watch, "_wait", wait),
            mock.patch.object(watch.SavedVariables, "_check_averages", refused),
            self.assertRaisesRegex(TrainingError, "^of another model$"),
        ):
            self._evaluate(eval_interval_secs=7, num_epochs=9.0)

    def test_as_they_come_until_the_end_on_other_towers(self):
        """With nothing at first, then the checkpoints of 20, 40 and the end."""
        coming = [[], [20], [], [40], [46]]
        self._forget(20, 40, 46)
        os.remove(os.path.join(self.directory, "checkpoint"))

        def wait(seconds, stop):
            self.assertEqual(seconds, 7)
            for step in coming.pop(0):
                for suffix in (".index", ".data-00000-of-00001"):
                    name = f"model.ckpt-{step}{suffix}"
                    shutil.copy(f"{self.trained}/{name}", f"{self.directory}/{name}")

        with mock.patch.object(watch, "_wait", wait):
            # Steps of 48 on three towers: 31 of them make the epoch.
            lines = self._evaluate(eval_interval_secs=7, num_gpus=3)
        self.assertEqual(
            digit_runs.accuracies(lines), [self.at_20, self.at_40, self.at_end]
        )
        self.assertEqual(coming, [])

    def test_the_end_of_a_run_of_so_many_steps(self):
        flags = dict(eval_interval_secs=7, num_epochs=None, num_warmup_batches=6)
        with mock.patch.object(watch, "_wait", side_effect=AssertionError):
            lines = self._evaluate(num_batches=40, **flags)
            self.assertLen(digit_runs.accuracies(lines), 1)
            with self.assertRaises(AssertionError):
                self._evaluate(num_batches=41, **flags)

    def test_an_end_that_is_told_after_its_checkpoint_was_evaluated(self):
        """As training saves, evaluates, and only then finds itself accurate enough."""

        def wait(seconds, over):
            self.assertEqual(run_status.end(self.directory), math.inf)
            run_status.leave_end(self.directory, 46)

        with mock.patch.object(watch, "_wait", wait):
            lines = self._evaluate(eval_interval_secs=7, num_epochs=9.0)
        self.assertEqual(digit_runs.accuracies(lines), [self.at_end])

    def test_signals_end_the_wait(self):
        for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):

            def wait(seconds, stop, number=number):
                os.kill(os.getpid(), number)

            with mock.patch.object(watch, "_wait", wait):
                lines = self._evaluate(
                    eval_interval_secs=7, num_epochs=9.0, status=status
                )
            self.assertLen(digit_runs.accuracies(lines), 1)
            said = f"^Stopped by {number.name}: step 46 was evaluated last; the same"
            self.assertRegex(lines[-1], said)

    def test_a_failure_ends_the_wait_with_an_error(self):
        self._forget(46)
        looks = []

        def wait(seconds, over):
            self.assertFalse(over())
            if not looks:  # at the first look a checkpoint appears
                for suffix in (".index", ".data-00000-of-00001"):
                    name = f"model.ckpt-46{suffix}"
                    shutil.copy(f"{self.trained}/{name}", f"{self.directory}/{name}")
            else:
                run_status.leave(self.directory, "the disk is full")
                self.assertTrue(over())
            looks.append(seconds)

        with mock.patch.object(watch, "_wait", wait):
            with self.assertRaisesRegex(
                TrainingError, "no more check.*: the training failed: the disk"
            ):
                self._evaluate(eval_interval_secs=7, num_epochs=9.0)
        self.assertEqual(looks, [7, 7])

    def test_a_controller_that_is_gone_ends_the_wait_with_an_error(self):
        plan = self._plan(eval_interval_secs=7, num_epochs=9.0)
        lines = io.StringIO()
        with self.assertRaisesRegex(TrainingError, "will come: nobody is there"):
            watch.evaluate_checkpoints(
                plan, progress.Console(lines), absent=lambda: "nobody is there"
            )
        self.assertIn("Running evaluation at global_step 46", lines.getvalue())

    def test_a_run_that_was_killed_is_waited_for_and_given_up(self):
        """Its lock is free, and nothing else says that it is gone."""
        plan = self._plan(eval_interval_secs=1, num_epochs=9.0)
        printed = io.StringIO()
        console = progress.Console(printed)
        absent = watch.Desertion(self.directory, seconds=0.2, console=console)
        with self.assertRaises(TrainingError) as caught:
            watch.evaluate_checkpoints(plan, console, absent=absent)
        lines = printed.getvalue().splitlines()
        self.assertEqual(digit_runs.accuracies(lines), [self.at_end])
        wanted = f"no more checkpoints will come: nobody trains in {self.directory}, "
        self.assertStartsWith(str(caught.exception), wanted)

    def test_desertion(self):
        lines, now = [], [0.0]
        with mock.patch.object(watch.time, "monotonic", lambda: now[0]):
            absent = watch.Desertion(self.directory, seconds=30, console=lines.append)

            def look(at):
                now[0] = at
                return absent()

            with output_paths.held("", self.directory):
                self.assertEqual([look(0.0), look(99.0)], ["", ""])
            self.assertEqual([look(100.0), look(114.0), lines], ["", "", []])
            self.assertEqual([look(116.0), look(129.0)], ["", ""])
            said = (
                f"Nobody trains in {self.directory}, whose lock is free: waiting 14 s"
            )
            self.assertEqual(lines, [f"{said} for a run to go on."])
            with output_paths.held("", self.directory):  # the evaluator starts again
                self.assertEqual(look(130.0), "")
            self.assertEqual([look(131.0), look(160.0)], ["", ""])
            self.assertStartsWith(look(161.0), "nobody trains in")

    def test_a_run_that_has_not_begun_is_waited_for(self):
        shutil.rmtree(self.directory)
        absent = watch.Desertion(self.directory, seconds=0, console=self.fail)
        for _ in range(3):
            self.assertEqual(absent(), "")
            os.makedirs(self.directory, exist_ok=True)
        with output_paths.held("", self.directory):
            self.assertEqual(absent(), "")
        self.assertEqual(absent(), "")
        self.assertStartsWith(absent(), "nobody trains in")  # a run was there before

    def test_waiting(self):
        slept = []

        def sleep(seconds):
            slept.append(seconds)
            if len(slept) == 5:
                os.kill(os.getpid(), signal.SIGTERM)

        clock = types.SimpleNamespace(sleep=sleep, monotonic=lambda: 7.0 + sum(slept))
        with mock.patch.object(watch, "time", clock), StopOnSignal() as stop:
            watch._wait(1.25, lambda: stop.received)
            self.assertEqual(slept, [0.5, 0.5, 0.25])
            watch._wait(60, lambda: stop.received)
            self.assertEqual(slept[3:], [0.5, 0.5])
            watch._wait(60, lambda: stop.received)
            self.assertLen(slept, 5)
