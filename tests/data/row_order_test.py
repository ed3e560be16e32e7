"""Windows and examples in rows: each once, and a row goes on from step to step."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from models.language import NO_TOKEN
from models.layers import Rows
from towers.data import row_order


class RowOrderTest(parameterized.TestCase, tf.test.TestCase):
    @parameterized.parameters((100, 7, 3), (100, 5, 1), (99, 9, 11), (31, 30, 1))
    def test_rows_of_training_are_equally_long(self, size, length, count):
        text = np.arange(size)
        tokens, labels = row_order.windows(text, length, count, every=False)
        self.assertAllEqual(labels, tokens + 1)
        long = size // count
        steps = (long - 1) // length
        self.assertLen(tokens, steps * count)
        for row in range(count):
            of_row = tokens[row::count].reshape(-1)
            self.assertAllEqual(of_row, row * long + np.arange(steps * length))

    @parameterized.parameters((100, 7, 3), (100, 5, 1), (99, 9, 11), (12, 30, 4))
    def test_evaluation_has_every_token_but_the_first_once(self, size, length, count):
        text = np.arange(size).astype(np.uint8)
        tokens, labels = row_order.windows(text, length, count, every=True)
        there = labels != NO_TOKEN
        by_row = [labels[row::count][there[row::count]] for row in range(count)]
        self.assertAllEqual(np.concatenate(by_row), text[1:])
        self.assertAllEqual(tokens[there] + 1, labels[there])

    def test_numbers_go_on_row_by_row(self):
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            indices = tf.range(24, dtype=tf.int64)
            numbers = session.run(row_order.numbers(indices, Rows(4, 3)))
        epoch = [[row * 3 + step for row in range(4)] for step in range(3)]
        self.assertAllEqual(numbers.reshape(6, 4), epoch * 2)

    def test_a_limit_is_whole_steps(self):
        class Source:
            rows = Rows(8, 3)

        limits = [row_order.whole_steps(limit, Source()) for limit in (1, 8, 9)]
        self.assertEqual(limits, [8, 8, 16])
        self.assertEqual(row_order.whole_steps(9, object()), 9)
