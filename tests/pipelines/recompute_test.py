"""Recomputation: least cost within the memory, and equal results."""

import dataclasses
import itertools
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer
from towers.compute import tower
from towers.layout import placement, schedule
from towers.layout.partition import pieces_of
from towers.layout.stages import Pipeline
from towers.pipelines import recompute, segment

_BATCH = 16
_FLOAT = 4  # bytes


def _conv(x, nn):
    return nn.conv(x, 8, 3, activation=tf.nn.tanh)


def _wide(x, nn):
    hidden = nn.dropout(nn.dense(nn.flatten(x), 64, activation=tf.nn.tanh), 0.5)
    return nn.dense(hidden, 12, activation=tf.nn.tanh)


def _logits(x, nn):
    return nn.dense(x, nn.num_classes)


def _model() -> Model:
    return trainer.model_of(
        ("conv", _conv),
        ("more", _conv),
        ("wide", _wide),
        ("wider", _wide),
        ("logits", _logits),
        name="chain",
    )


def _chosen(how: Pipeline) -> Pipeline:
    """The pipeline with its choice."""
    task = tower.TowerSpec(model=_model(), num_classes=5, pipeline=how)
    specs = tf.TensorSpec([_BATCH, 4, 4, 1]), tf.TensorSpec([_BATCH], tf.int32)
    where = placement.local(how.stages, kind="cpu", num_stages=how.stages)
    # so fine that no size is rounded
    with mock.patch.object(recompute, "_GRAINS", 2**40):
        return recompute.with_choice(task, *specs, where).pipeline


def _brute_force(how: Pipeline) -> dict[tuple[int, ...], tuple[int, list[int]]]:
    """Blocks recomputed -> FLOPs and the bytes of every stage, each counted anew."""
    task = tower.TowerSpec(model=_model(), num_classes=5)
    size = _BATCH // how.micro_batches
    batch_bytes = _BATCH * 4 * 4 * _FLOAT * (1 + (how.micro_batches > 1))
    batch = segment.MicroBatchSpec(
        tf.TensorSpec([size, 4, 4, 1]), tf.TensorSpec([size], tf.int32)
    )
    groups = [[block] for block in task.model.blocks]
    plain, again = (
        recompute._segments(task, groups, batch, recomputed=again_here)
        for again_here in (False, True)
    )
    count, options = len(plain), {}
    for some in itertools.product((False, True), repeat=count):
        numbers = tuple(n for n in range(count) if some[n])
        work, sizes = 0, []
        for stage, piece in enumerate(pieces_of(how.cut, range(count))):
            kept = {
                again_here
                for n in piece
                for again_here in recompute._kept(again if some[n] else plain, n)
            }
            parameters = [
                sum(shape.num_elements() for shape in again_here.shapes.values())
                for again_here in plain
            ]
            # With the gradients of later blocks, whose backward pass came before.
            passing = [
                recompute.beside((again if some[n] else plain)[n])
                + _FLOAT * sum(parameters[n + 1 : piece[-1] + 1])
                for n in piece
            ]
            held = schedule.held(how.order()[stage])
            sizes.append(
                held * sum(bytes_ for _, bytes_ in kept)
                + max(passing)
                + (3 + (how.micro_batches > 1))
                * _FLOAT
                * sum(parameters[piece[0] : piece[-1] + 1])
                + (0 if stage else batch_bytes)
            )
            work += sum(
                recompute._work(again[n].backward) - recompute._work(plain[n].backward)
                for n in piece
                if some[n]
            )
        options[numbers] = work, sizes
    return options


class WithChoiceTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        Pipeline(1, 1, cut=(5,)),
        Pipeline(1, 4, "gpipe", cut=(5,)),
        Pipeline(2, 4, "1f1b", cut=(2, 5)),
    )
    def test_is_the_best_of_all_choices(self, how):
        how = dataclasses.replace(how, recompute="auto")
        every = _brute_force(how)
        most = sorted({max(sizes) for _, sizes in every.values()})
        seen = set()
        for limit in (most[0], *most[1::4], most[-1]):
            chosen = _chosen(dataclasses.replace(how, memory_limit=limit)).chosen
            self.assertLessEqual(max(chosen.bytes), limit)
            work, sizes = every[chosen.blocks]
            self.assertEqual(list(chosen.bytes), sizes)
            legal = [w for w, s in every.values() if max(s) <= limit]
            self.assertEqual(work, min(legal))
            seen.add(chosen.blocks)
        self.assertIn((), seen)
        self.assertGreater(len(seen), 2)
        with self.assertRaisesRegex(ValueError, "still needs 1 MB by estimate"):
            _chosen(dataclasses.replace(how, memory_limit=most[0] - 1))

    def test_a_choice_is_made_once_and_only_where_it_is_open(self):
        how = Pipeline(2, 4, cut=(2, 5), recompute="auto", memory_limit=10**6)
        chosen = _chosen(how)
        with mock.patch.object(recompute.segment, "trace") as trace:
            self.assertIs(_chosen(chosen), chosen)
            block = dataclasses.replace(how, recompute="block")
            self.assertIs(_chosen(block), block)
            trace.assert_not_called()

    def test_bytes_are_rounded_up(self):
        sizes = [recompute._up(size, 4) for size in (0, 1, 4, 5)]
        self.assertEqual(sizes, [0, 4, 4, 8])

    def test_without_a_limit_on_cpus(self):
        with self.assertRaisesRegex(ValueError, "^recompute=auto: how much memory"):
            _chosen(Pipeline(1, 2, cut=(5,), recompute="auto"))

    def test_the_words(self):
        how = Pipeline(1, 4, "gpipe", cut=(5,), recompute="auto")
        least = min(max(sizes) for _, sizes in _brute_force(how).values())
        chosen = _chosen(dataclasses.replace(how, memory_limit=least))
        self.assertRegex(
            recompute.words(chosen, [name for name, _ in _model().blocks]),
            r"^auto: [a-z, ]+\n\d+\.\d % more FLOPs; at most 0\.\d of 0 MB per stage",
        )


class EqualTest(tf.test.TestCase):
    def test_nothing_else_changes(self):
        def made(how):
            return trainer.Trainer(_model(), batch_size=_BATCH, pipeline=how)

        how = Pipeline(1, 4, "gpipe", cut=(5,), recompute="auto")
        most = sorted({max(sizes) for _, sizes in _brute_force(how).values()})
        kept_all = made(None).start().steps(4)
        small = dataclasses.replace(how, memory_limit=int(1.01 * most[0]))
        other = made(small)
        chosen = other.train.template.pipeline.chosen
        self.assertBetween(len(chosen.blocks), 1, 4)
        self.assertLess(trainer.difference(kept_all, other.start().steps(4)), 1e-5)
