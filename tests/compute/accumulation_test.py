"""A tower that computes its batch in rounds takes the step of the whole batch."""

import functools
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.model import Model
from tests import trainer

_ROWS = 24  # rows of a step in each test


def _made(towers: int, rounds: int, model: Model | None = None, **options):
    return trainer.Trainer(
        model,
        towers=towers,
        batch_size=_ROWS // towers // rounds,
        accumulate_steps=rounds,
        **options,
    )


def _trained(*args, steps: int = 6, **options):
    return _made(*args, **options).start().steps(steps)


@functools.cache
def _whole():
    """What one tower that takes its batch whole comes to."""
    return _trained(1, 1)


class AccumulationTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        (1, 3, "parameter_server"), (4, 3, "parameter_server"), (2, 4, "replicated")
    )
    def test_rounds_are_one_larger_batch(self, towers, rounds, mode):
        """Dropout, weight decay and momentum are on."""
        whole = _whole()
        other = _trained(towers, rounds, variable_update=mode)
        self.assertLess(trainer.difference(whole, other), 1e-5)

    def test_an_epoch_that_ends_within_a_round(self):
        """70 examples: the third step has 22, its last rounds few or none."""
        ends = [_made(t, r, limit=70).start().to_the_end() for t, r in ((1, 1), (2, 6))]
        self.assertEqual(ends[1]["position"], 70)
        self.assertEqual(ends[1]["global_step"], 3)
        self.assertLess(trainer.difference(*ends), 1e-5)

    def test_sparse_gradients(self):
        update = trainer.Update("momentum", trainer.Piecewise((0.05,)))
        ends = [
            _trained(t, r, trainer.embedding_model(), update=update)
            for t, r in ((1, 1), (2, 3))
        ]
        self.assertLess(trainer.difference(*ends), 1e-5)

    def test_a_checkpoint_does_not_know_the_rounds(self):
        directory = tempfile.mkdtemp(dir=self.get_temp_dir())
        training = _made(2, 3).start()
        training.steps(3)
        training.save(directory)
        other = _made(1, 2).start(directory).steps(6)
        self.assertLess(trainer.difference(_whole(), other), 1e-5)

    def test_the_statistics_are_the_mean_of_the_rounds(self):
        """Without a rate nothing but the moving averages moves."""
        update = trainer.Update("sgd", trainer.Piecewise((0.0,)))
        by_tower = _trained(4, 1, trainer.normed_model(), update=update)
        by_round = _trained(1, 4, trainer.normed_model(), update=update)
        self.assertLess(trainer.difference(by_tower, by_round), 1e-5)
        whole = _trained(1, 1, trainer.normed_model(), update=update)
        self.assertGreater(trainer.difference(whole, by_round), 1e-4)

    def test_towers_that_normalise_together_do_so_round_by_round(self):
        """Two towers of which each has half of a round are one with whole rounds."""
        source = trainer.random_source()

        class Interleaved:
            num_classes, num_examples = source.num_classes, source.num_examples

            def feed(self, groups, **options):
                """Hands tower k the k-th half of each round."""
                feed = source.feed(groups, **options)
                totals = []
                for k in range(2):
                    parts = zip(*(batch[:3] for batch in feed.batches))
                    joined = [tf.concat(part, 0) for part in parts]
                    rows = np.concatenate(
                        [np.arange(6) + 6 * k, np.arange(6) + 12 + 6 * k]
                    )
                    batch = [tf.gather(part, rows) for part in joined]
                    totals.append(type(feed.batches[0])(*batch, feed.batches[k].first))
                return feed._replace(batches=totals)

        together = trainer.Trainer(
            trainer.normed_model(),
            Interleaved(),
            towers=2,
            batch_size=6,
            accumulate_steps=2,
            batch_norm="sync_micro_batch",
        )
        one_tower = _trained(1, 2, trainer.normed_model())
        other = together.start().steps(6)
        self.assertLess(trainer.difference(one_tower, other), 1e-5)
