"""The fastest mode is found and remembered, and trains as if named by a flag."""

import contextlib
import io
import os
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from flags import config
from tests import digit_runs, trainer
from towers import planning, train
from towers.errors.cache_file import CacheFile
from towers.gradients.reduction import REDUCTIONS, usable
from towers.session import tune
from towers.variable_update.modes import VARIABLE_UPDATES

_TREE = tune.TrainingChoice("replicated", "tree")


def _seconds(fast: tune.TrainingChoice):
    """A clock by which one way to train is twice as fast as all others."""
    asked = []

    def measured(plan, way):
        asked.append(way)
        return [0.5, 0.25, 0.125] if way == fast else [0.5, 0.5, 0.5]

    return measured, asked


class TuneTest(digit_runs.Runs):
    def setUp(self):
        super().setUp()
        self.home = self.create_tempdir().full_path
        here = mock.patch.dict(os.environ, {"XDG_CACHE_HOME": self.home})
        self.enter_context(here)
        self.lines = []

    def _plan(self, **settings) -> planning.Plan:
        config_made = config.make(
            data_name="synthetic", device="cpu", num_batches=3, **settings
        )
        return planning.make(
            tune.settled(config_made), lambda name: trainer.dense_model()
        )

    def _choose(self, fast=_TREE, *, again=False, **settings):
        """The choice, and what was timed for it."""
        measured, asked = _seconds(fast)
        plan = self._plan(num_gpus=2, **settings)
        options = dict(again=again, measured=measured)
        choice = tune.choose(plan, self.lines.append, **options)
        return choice, asked

    def test_what_competes(self):
        candidates = tune.candidates(2, kind="cpu")
        self.assertEqual(candidates[0], tune.DEFAULT)
        names = [name for name, mode in VARIABLE_UPDATES.items() if mode.exact]
        alone = [tune.TrainingChoice(name) for name in names]
        specs = [tune.TrainingChoice("replicated", spec) for spec in usable("cpu")]
        self.assertContainsSubset([*specs, alone[0], alone[2]], candidates)
        self.assertNotIn(tune.TrainingChoice("replicated"), candidates)
        self.assertEqual({way.variable_update for way in candidates}, {*names})
        on_gpus = {way.all_reduce_spec for way in tune.candidates(2, kind="gpu")}
        self.assertEqual(on_gpus, {None, *REDUCTIONS})
        narrow = tune.candidates(2, kind="gpu", wire=tf.bfloat16)
        cannot = on_gpus - {way.all_reduce_spec for way in narrow}
        self.assertEqual(cannot, {"nccl", "collective"})
        for way in candidates:
            mode = VARIABLE_UPDATES[way.variable_update]
            self.assertTrue(mode.exact and mode.joined and mode.together)
        self.assertEqual(tune.candidates(1, kind="cpu"), alone)

    def test_the_fastest_is_taken_and_remembered(self):
        choice, asked = self._choose()
        self.assertEqual(choice, _TREE)
        self.assertEqual(asked, tune.candidates(2, kind="cpu"))
        row = next(
            line
            for line in self.lines
            if line.startswith("replicated  ") and " tree " in line
        )
        self.assertEqual(row.split(), "replicated tree 32.0 [16.0, 64.0]".split())
        begins = {line.find("[") for line in self.lines if "[" in line}
        self.assertLen(begins, 1, "\n".join(self.lines))  # the columns are aligned
        folder = os.path.join(self.home, "towers", "variable_update")
        self.assertIn(f"{_TREE}, remembered in {folder}/", self.lines[-1])
        other = tune.TrainingChoice("replicated", "xring")
        self.assertEqual(self._choose(other), (_TREE, []))
        self.assertIn(str(_TREE), self.lines[-1])
        # Another run has another key.
        self.assertEqual(self._choose(other, batch_size=5)[0], other)
        self.assertEqual(self._choose(tune.DEFAULT), (_TREE, []))
        self.assertEqual(self._choose(other, again=True)[0], other)
        self.assertEqual(self._choose(_TREE), (other, []))
        self._choose(accumulate_steps=3)  # all batches of a step count
        self.assertIn(" 96.0 ", "\n".join(self.lines))

    @parameterized.parameters(([],), ({"choice": 3},), ({"choice": {"a": 1}},))
    def test_what_is_no_choice_is_ignored(self, content):
        file = CacheFile("variable_update", f"{tune.key(self._plan(num_gpus=2))}.json")
        file.write(content)
        self.assertEqual(self._choose()[0], _TREE)
        self.assertEqual(file.read()["choice"], _TREE._asdict())

    def test_a_folder_that_cannot_be_written_is_said(self):
        with open(os.path.join(self.home, "towers"), "w"):
            pass
        self.assertEqual(self._choose()[0], _TREE)
        self.assertTrue(any(s.startswith("Not remembered in ") for s in self.lines))

    def test_a_way_that_does_not_work_here_is_left_out(self):
        def measured(plan, way):
            if way == _TREE:
                raise tf.errors.ResourceExhaustedError(None, None, "OOM when alloc")
            if way != tune.DEFAULT:
                raise ValueError("no such link")
            return [1.0]

        plan = self._plan(num_gpus=2)
        choice = tune.choose(plan, self.lines.append, measured=measured)
        self.assertEqual(choice, tune.DEFAULT)
        for reason in ("no such link", "OOM when alloc"):
            self.assertTrue(any(reason in line for line in self.lines))

        def broken(plan, way):
            raise ValueError("no such link")

        with self.assertRaisesRegex(ValueError, "^variable_update=auto: .*no such"):
            tune.choose(plan, self.lines.append, again=True, measured=broken)

    def test_the_run_is_that_of_the_mode_written_out(self):
        auto = config.make(variable_update="auto", num_gpus=2)
        self.assertEqual(
            tune.settled(auto, _TREE),
            config.make(
                variable_update="replicated", all_reduce_spec="tree", num_gpus=2
            ),
        )
        written = config.make(variable_update="relaxed")
        self.assertIs(tune.settled(written, _TREE), written)

    def test_training_after_tuning_is_the_same_bit_for_bit(self):
        values = []
        for tuned in (False, True):
            if tuned:
                tune.measure(self._plan(num_gpus=2), _TREE)
            self.directory = os.path.join(self.create_tempdir(), "train")
            self.run_flags(
                num_gpus=2, num_batches=4, train_dir=self.directory, **_TREE._asdict()
            )
            values.append(self.values())
        trainer.assert_same_bits(*values)

    def test_the_command(self):
        flags = "--model=mlp --data_name=synthetic --device=cpu --num_gpus=2"
        flags += " --batch_size=4 --num_warmup_batches=1 --num_batches=2"
        commands = []
        for again in ("", " --tune_again", ""):
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                argv = f"train {flags} --variable_update=auto{again}".split()
                self.assertEqual(train.main(argv), 0)
            lines = out.getvalue().splitlines()
            commands.append(
                [line for line in lines if "Timing" in line or "Fast" in line]
            )
        self.assertLen(commands[0], 2)
        self.assertLen(commands[1], 2)
        self.assertLen(commands[2], 1)
        self.assertLen(os.listdir(f"{self.home}/towers/variable_update"), 1)
