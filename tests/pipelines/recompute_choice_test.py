"""The chosen blocks to recompute are the best of all that fit into memory."""

import itertools
import random

from absl.testing import parameterized

from towers.pipelines import recompute_choice


def _block(kept: int, passing: int, **options) -> recompute_choice.BlockCost:
    """A block for which it makes no difference whether any is computed again."""
    options = {"gradients": 0, "flops": 1, **options}
    return recompute_choice.BlockCost(((kept,) * 2,) * 2, (passing,) * 2, **options)


class CheapestTest(parameterized.TestCase):
    @parameterized.product(seed=tuple(range(6)), together=(False, True))
    def test_is_the_best_of_all_choices(self, seed, together):
        draw = random.Random(seed)
        blocks = [
            recompute_choice.BlockCost(
                kept=tuple(
                    tuple(sorted(draw.sample(range(low, low + 6), 2), reverse=True))
                    for low in (8, 1)
                ),
                passing=(draw.randrange(6), draw.randrange(12)),
                gradients=draw.randrange(4),
                flops=draw.randrange(5),
                together=together,
            )
            for _ in range(7)
        ]
        every = []
        for some in itertools.product((False, True), repeat=len(blocks)):
            choice = recompute_choice.RecomputeChoice()
            for block, again in zip(blocks, some):
                choice = choice.then(block, again)
            every.append(choice)
        fewest = min(choice.bytes for choice in every)
        self.assertEqual(recompute_choice.least(blocks), fewest)
        self.assertIsNone(recompute_choice.cheapest(blocks, fewest - 1))
        for room in range(fewest, max(c.bytes for c in every) + 1, 5):
            best = min(c[:2] for c in every if c.bytes <= room)
            actual = recompute_choice.cheapest(blocks, room)
            self.assertLessEqual(actual.bytes, room)
            self.assertEqual(actual[:2], best)

    def test_blocks_pass_one_after_the_other(self):
        choice = recompute_choice.RecomputeChoice()
        for kept, passing in ((1, 5), (2, 7), (4, 3)):
            choice = choice.then(_block(kept, passing), False)
        self.assertEqual(choice.bytes, 1 + 2 + 4 + 7)

    def test_what_later_blocks_keep_is_gone_if_all_go_back_together(self):
        for together, bytes_ in ((False, 10 + 2 + 8), (True, 10 + 8)):
            choice = recompute_choice.RecomputeChoice()
            for kept, passing in ((10, 8), (2, 1)):
                choice = choice.then(_block(kept, passing, together=together), False)
            self.assertEqual(choice.bytes, bytes_)

    def test_the_gradients_of_later_blocks_are_there_when_a_block_goes_back(self):
        for last_passing, bytes_ in ((1, 10 + 2 + 8 + 4), (30, 10 + 2 + 30)):
            choice = recompute_choice.RecomputeChoice()
            for kept, passing, gradients in ((10, 8, 3), (2, last_passing, 4)):
                choice = choice.then(_block(kept, passing, gradients=gradients), False)
            self.assertEqual(choice.bytes, bytes_)

    def test_many_different_blocks_take_no_time(self):
        draw = random.Random(1)
        blocks = [
            recompute_choice.BlockCost(
                kept=((size := draw.randrange(50, 100), size - 5), (10, 5)),
                passing=(5, size - 10),
                gradients=0,
                flops=draw.randrange(100),
            )
            for _ in range(40)
        ]
        choice = recompute_choice.cheapest(blocks, 1500)
        self.assertLessEqual(choice.bytes, 1500)
        self.assertGreater(choice.blocks, 10)
