"""Partitioned variables train as whole ones."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays, embedding_models, trainer
from towers import graph
from towers.checkpoints import checkpoint
from towers.gradients.exchange import GradientExchange
from towers.layout import placement
from towers.optimizers.optimizer import OPTIMIZERS, Hyperparameters
from towers.session import loop

v1 = tf.compat.v1

_PS = tuple(f"/device:CPU:{k}" for k in (3, 4, 5))  # beside the towers, 3 at most
_BYTES = 100


def _train(towers: int, partition_bytes: int, *, model=None, source=None, **options):
    """(train graph, session), begun."""
    update = options.pop("update", trainer.MOMENTUM)
    directory = options.pop("directory", None)
    where = placement.local(towers, kind="cpu")
    where = dataclasses.replace(where, parameters=_PS)
    train = graph.build(
        model or trainer.dense_model(),
        source or trainer.random_source(),
        update,
        placement=where,
        options=graph.Options(
            batch_size=12 // towers,
            exchange=GradientExchange(partition_bytes=partition_bytes),
            **options,
        ),
    )
    config = placement.session_config(where)
    config.device_count["CPU"] = 6
    session = v1.Session(graph=train.graph, config=config)
    with train.graph.as_default():
        saver = checkpoint.Checkpoints(directory, train.saved) if directory else None
    loop.start(train, session, lambda s: saver.restore(s) if saver else None)
    return train, session, saver


def _values(train, session) -> dict[str, np.ndarray]:
    return trainer.whole(train.saved, session.run(train.saved))


class TrainTest(tf.test.TestCase, parameterized.TestCase):
    def _after(self, steps: int, towers: int, size: int, **options):
        """The values after some steps, of variables that really are whole or cut."""
        train, session, _ = _train(towers, size, **options)
        kernels = {name for name in train.mode.variables if "bias" not in name}
        cut = {"hidden/dense/kernel", "logits/dense/kernel"} if size else set()
        if "model" in options:
            rows = {"product/rows", "product/tied", "product/wide"}
            cut = rows if size else set()
        self.assertEqual(set(train.mode.wholes), cut, kernels)
        loop.run(train, session, [], last_step=steps)
        return _values(train, session)

    def test_large_variables_are_cut_and_spread(self):
        train, _, _ = _train(2, _BYTES)
        cut = train.mode.held("hidden/dense/kernel")  # [16, 16]
        self.assertEqual([part.shape[0] for part in cut], [6, 5, 5])
        self.assertSameElements([part.device for part in cut], _PS)
        self.assertIsInstance(train.mode.variables["hidden/dense/bias"], tf.Variable)
        slot = train.saved["hidden/dense/kernel/Momentum"]
        self.assertEqual([s.device for s in slot], [p.device for p in cut])

    def test_starts_and_is_named_as_a_whole_variable_is(self):
        whole, many = self._after(0, 2, 0), self._after(0, 2, _BYTES)
        trainer.assert_same_bits(whole, many)

    @parameterized.parameters((1, "momentum"), *((3, name) for name in OPTIMIZERS))
    def test_takes_the_steps_of_whole_variables(self, towers, optimizer):
        update = dataclasses.replace(
            trainer.MOMENTUM,
            optimizer=optimizer,
            settings=Hyperparameters(adam_epsilon=1e-3),
            decayed=lambda name: name == "hidden/dense/kernel",
            ema_decay=0.9,
            clip_value=0.1,
        )
        whole, many = (
            self._after(4, towers, size, update=update) for size in (0, _BYTES)
        )
        if optimizer in ("lars", "lamb"):  # a norm is summed over the parts
            self.assertLess(trainer.difference(whole, many), 1e-6)
        else:
            trainer.assert_same_bits(whole, many)
        self.assertIn("hidden/dense/kernel/ExponentialMovingAverage", whole)

    @parameterized.parameters((1, "sgd"), (3, "sgd"), (3, "momentum"), (3, "adam"))
    def test_rows_go_to_the_part_that_has_them(self, towers, optimizer):
        update = dataclasses.replace(
            trainer.MOMENTUM,
            optimizer=optimizer,
            settings=Hyperparameters(adam_epsilon=1e-3),
            weight_decay=0.0,
        )
        of = dict(
            model=embedding_models.model(),
            source=embedding_models.source(),
            update=update,
        )
        start, whole, many = (
            self._after(steps, towers, size, **of)
            for steps, size in ((0, 0), (4, 0), (4, _BYTES))
        )
        trainer.assert_same_bits(whole, many)
        moved = start["product/rows"] != whole["product/rows"]
        self.assertTrue(moved.any() and not moved.all())

    @parameterized.parameters("asynchronous", "staged", "distributed_replicated")
    def test_other_modes_of_one_copy(self, mode):
        whole, many = (
            self._after(4, 1, size, variable_update=mode) for size in (0, _BYTES)
        )
        trainer.assert_same_bits(whole, many)

    def test_clips_by_the_norm_of_all(self):
        update = dataclasses.replace(trainer.MOMENTUM, clip_norm=0.5)
        whole, many = (self._after(4, 2, size, update=update) for size in (0, _BYTES))
        self.assertLess(trainer.difference(whole, many), 1e-5)

    def test_a_checkpoint_goes_on_with_any_number_of_parts(self):
        directory = self.create_tempdir().full_path
        sizes = (_BYTES, 0, 400)
        for steps, size in enumerate(sizes, start=1):
            train, session, saver = _train(2, size, directory=directory)
            loop.run(train, session, [], last_step=2 * steps)
            saver.save(session, 2 * steps)
        straight = self._after(6, 2, 0)
        trainer.assert_same_bits(straight, _values(train, session))
        reader = tf.train.load_checkpoint(checkpoint.latest(directory))
        for name, value in straight.items():
            arrays.assert_same_bits(reader.get_tensor(name), value, name)
