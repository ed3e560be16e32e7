"""Towers that stay slow get fewer examples, and the run is that of the same batches."""

import dataclasses
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests import digit_runs, trainer
from towers import rebalance

_FAST, _SLOW = [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 3.0]


class BetterSizesTest(parameterized.TestCase):
    @parameterized.parameters(
        # A tower that stays slow, and one that is slow once.
        ((10,) * 4, (_SLOW, _SLOW), (12, 12, 12, 4)),
        ((10,) * 4, (_FAST, _SLOW), None),
        ((10,) * 4, (_SLOW, _FAST), None),
        ((10,) * 4, (_FAST, [1.0, 1.0, 1.0, 30.0]), None),
        # Another one each time.
        ((10,) * 4, (_SLOW, _SLOW[::-1]), None),
        # Less than a tenth slower; and a step that would be less than a tenth shorter.
        ((10,) * 4, ([1.0, 1.0, 1.0, 1.09],) * 2, None),
        ((10,) * 4, ([1.0, 1.0, 1.0, 1.15],) * 2, None),
        # It is fast again.
        ((12, 12, 12, 4), ([1.2, 1.2, 1.2, 0.4],) * 2, (10,) * 4),
        ((12, 12, 12, 4), ([1.2, 1.2, 1.2, 1.2],) * 2, None),
        ((12, 12, 12, 4), ([1.2, 1.2, 1.2, 0.4], [1.2, 1.2, 1.2, 1.2]), None),
        # The clock was set.
        ((10,) * 4, (_SLOW, [-1.0, -1.0, -1.0, 3.0]), None),
        # There is nothing left to take.
        ((13, 13, 13, 1), ([1.3, 1.3, 1.3, 9.0],) * 2, None),
    )
    def test_sizes(self, sizes, intervals, wanted):
        self.assertEqual(rebalance.better_sizes(sizes, intervals), wanted)

    def test_of_micro_batches(self):
        sizes = rebalance.better_sizes((10,) * 4, (_SLOW, _SLOW), multiple=5)
        self.assertEqual(sizes, (15, 10, 10, 5))


def _smooth_model():
    """The digits without batch norm, and without kinks that amplify rounding."""

    def hidden(x, nn):
        return nn.dropout(nn.dense(nn.flatten(x), 16, activation=tf.nn.tanh), 0.2)

    def logits(x, nn):
        return nn.dense(x, nn.num_classes)

    blocks = (("hidden", hidden), ("logits", logits))
    return dataclasses.replace(digit_runs.small_model(), blocks=blocks)


class RunTest(digit_runs.Runs):
    """Runs of which some change their batch sizes after the sixth and twelfth step."""

    def _run(self, *changes, **settings):
        """The lines of a run, and the variables that it saved; see `better_sizes`."""
        self.directory = self.create_tempdir().full_path
        return self._continued(*changes, **settings)

    def _continued(self, *changes, num_batches=20, **settings):
        wanted = iter(changes)
        with mock.patch.object(
            rebalance, "better_sizes", side_effect=lambda *_, **__: next(wanted, None)
        ):
            lines = self.run_flags(
                num_gpus=4,
                num_batches=num_batches,
                num_warmup_batches=0,
                train_dir=self.directory,
                get_model=lambda name: _smooth_model(),
                **settings,
            )
        changed = [line for line in lines if line.startswith("Batch sizes")]
        values = self.values()
        kept = values.pop("constant/tower_batch_sizes", [])
        self.kept = list(map(int, kept))
        return lines, changed, values

    @parameterized.parameters(
        {"steps_per_loop": 5},
        {"variable_update": "replicated", "accumulate_steps": 2, "batch_size": 8},
        {"variable_update": "relaxed"},
        {"num_micro_batches": 2, "partition": "params"},
    )
    def test_the_variables_are_those_of_the_undisturbed_run(self, **how):
        _, _, calm = self._run(**how)
        size = how.get("batch_size", 16)
        changes = (2 * size - 4, size, size, 4), (4, size + 2, size + 4, 2 * size - 10)
        _, changed, values = self._run(*changes, rebalance=2, **how)
        first, second = (", ".join(map(str, sizes)) for sizes in changes)
        equal = ", ".join([str(size)] * 4)
        took = r"took \d+\.\d, \d+\.\d, \d+\.\d, \d+\.\d ms"
        self.assertRegex(changed[0], f"from step 6 on: {first}, as {equal} {took}")
        self.assertRegex(changed[1], f"from step 12 on: {second}, as {first} {took}")
        self.assertLen(changed, 2)
        self.assertEqual(self.kept, list(changes[-1]))
        self.assertEqual(values["position"], calm["position"])
        self.assertLess(trainer.difference(calm, values), 1e-5)

    def test_a_resumed_run_takes_the_sizes(self):
        sizes = (28, 16, 16, 4)
        _, _, straight = self._run(sizes, rebalance=2)
        self._run(sizes, num_batches=11, rebalance=2)
        lines, changed, values = self._continued(rebalance=2)
        path = f"{self.directory}/model.ckpt-11"
        self.assertIn(f"Resuming from {path}", lines)
        words = f"Batch sizes: --tower_batch_sizes=28,16,16,4, as in {path}"
        self.assertEqual(changed, [words])
        self.assertEqual(self.kept, list(sizes))
        trainer.assert_same_bits(straight, values)

    def test_what_is_done_after_a_step_is_done_once(self):
        """Evaluations, checkpoints, callbacks; and the last step is the last."""
        lines, changed, _ = self._run(
            (28, 16, 16, 4),
            (16, 16, 16, 16),
            num_batches=12,
            rebalance=2,
            eval_during_training_every_n_steps=6,
            save_model_steps=6,
        )
        self.assertLen(changed, 1)
        self.assertEqual(self.steps(), [6, 12])
        self.assertLen(digit_runs.accuracies(lines), 2)
        self.assertEqual(lines.count("Initializing graph"), 1)
