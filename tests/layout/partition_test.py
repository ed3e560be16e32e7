"""Cuts into stages: balanced ones are the best of all, named ones as named."""

import itertools

import numpy as np
from absl.testing import parameterized

from towers.layout import partition


def _all_cuts(count, pieces):
    for ends in itertools.combinations(range(1, count), pieces - 1):
        yield (*ends, count)


def _largest(costs, cut):
    return max(sum(piece) for piece in partition.pieces_of(cut, costs))


class BalancedTest(parameterized.TestCase):
    @parameterized.product(
        seed=(0, 1, 2, 3),
        count=(1, 2, 5, 9),
        pieces=(1, 2, 3, 4, 9),
        zeros=(False, True),
    )
    def test_no_cut_has_a_smaller_largest_piece(self, seed, count, pieces, zeros):
        if pieces > count:
            pieces = count
        rng = np.random.default_rng(seed)
        costs = rng.integers(0 if zeros else 1, 20, count).tolist()
        if zeros:
            costs = [cost if k % 2 else 0 for k, cost in enumerate(costs)]
        cut = partition.balanced(costs, pieces)
        self.assertLen(cut, pieces)
        self.assertEqual(cut[-1], count)
        self.assertTrue(all(partition.pieces_of(cut, costs)))
        best = min(_largest(costs, other) for other in _all_cuts(count, pieces))
        self.assertEqual(_largest(costs, cut), best)

    def test_equal_blocks_give_equal_pieces(self):
        self.assertEqual(partition.balanced([1] * 12, 4), (3, 6, 9, 12))
        self.assertEqual(partition.imbalance([1] * 12, (3, 6, 9, 12)), 1.0)

    def test_what_one_large_block_leaves_is_shared_equally(self):
        self.assertEqual(partition.balanced([1, 1, 1, 1, 9], 3), (2, 4, 5))
        self.assertEqual(partition.balanced([9, 1, 1, 1, 1], 3), (1, 3, 5))

    def test_many_blocks_are_quick(self):
        costs = np.random.default_rng(0).random(150).tolist()
        cut = partition.balanced(costs, 16)
        self.assertLess(partition.imbalance(costs, cut), 1.3)

    def test_more_pieces_than_blocks(self):
        with self.assertRaisesRegex(ValueError, "3 pieces of 2 blocks"):
            partition.balanced([1, 1], 3)


class AfterTest(parameterized.TestCase):
    blocks = ("a", "b", "c", "d")

    def test_cuts_after_the_named_blocks(self):
        self.assertEqual(partition.after(["a", "c"], self.blocks, 3), (1, 3, 4))
        self.assertEqual(
            partition.pieces_of((1, 3, 4), self.blocks), [("a",), ("b", "c"), ("d",)]
        )

    @parameterized.parameters(
        (["x"], 2, "cannot cut after 'x'; cut after some of a, b, c"),
        (["d"], 2, r"cannot cut after 'd' \(it is the last\); cut after some of a"),
        (["a"], 3, "names 1 block to cut after, and 3 pieces need 2 of a, b, c"),
        (["a", "b"], 2, "names 2 blocks .* 2 pieces need 1"),
        (["c", "a"], 3, "another order .* write a,c"),
        (["a", "a"], 3, "names 1 block to cut after, and 3 pieces need 2 of a, b, c"),
        (["a", "b", "a"], 3, "twice; write a,b"),
        (["a", "a", "b"], 3, "twice; write a,b"),
    )
    def test_impossible_cuts(self, names, pieces, sentence):
        with self.assertRaisesRegex(ValueError, sentence):
            partition.after(names, self.blocks, pieces)
