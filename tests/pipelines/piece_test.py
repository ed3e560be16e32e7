"""Pieces of a segment end where towers exchange batch norm's statistics."""

import tensorflow as tf
from absl.testing import absltest

from towers.pipelines.piece import Barrier, BatchNormExchange, SubgraphCutter

v1 = tf.compat.v1


class _Traced:
    """y = (x + joined(2 x)) * joined(3 x + joined(2 x)), with a constant in both."""

    def __init__(self):
        self.graph = tf.Graph()
        self.exchanges = []
        with self.graph.as_default():
            self.x = v1.placeholder(tf.float32, [2], "x")
            self.read = v1.placeholder(tf.float32, [2], "read")
            self.weight = tf.sqrt(self.read)  # the same in all batches
            first = self._joined(2.0 * self.x * self.weight)
            second = self._joined(3.0 * self.x + first)
            self.y = (self.x + first) * second * self.weight

    def _joined(self, tensor):
        number = len(self.exchanges)
        sent = tf.identity(tensor)
        received = v1.placeholder(tf.float32, [2], f"received{number}")
        meeting = Barrier(f"sent/{number}", tf.TensorSpec([2]), "mean")
        self.exchanges.append(
            BatchNormExchange(f"joined/{number}", received, sent, meeting)
        )
        return received

    def piece(self):
        cutter = SubgraphCutter(self.graph, [self.x], self.exchanges)
        given = {"x": self.x, "read/w": self.read}
        return cutter.piece({"y": self.y}, given, carried="carried")


class PieceTest(absltest.TestCase):
    def test_a_leg_ends_with_what_is_sent(self):
        piece = _Traced().piece()
        sent = [[n for n in leg.outputs if n[:4] == "sent"] for leg in piece.legs]
        self.assertEqual(sent, [["sent/0"], ["sent/1"], []])
        self.assertIn("y", piece.legs[2].outputs)
        self.assertEqual(set(piece.meetings), {"joined/0", "joined/1"})

    def test_inputs_are_what_no_leg_makes(self):
        self.assertEqual(set(_Traced().piece().inputs), {"x", "read/w"})

    def test_what_does_not_depend_on_the_batch_is_not_carried(self):
        piece = _Traced().piece()
        self.assertIn("read/w", piece.legs[0].inputs)
        self.assertIn("read/w", piece.legs[2].inputs)
        carried = [n for leg in piece.legs for n in leg.outputs if "Sqrt" in n]
        self.assertEqual(carried, [])

    def test_legs_compute_what_was_traced(self):
        piece = _Traced().piece()
        with tf.Graph().as_default(), v1.Session() as session:
            xs = [tf.constant([1.0, 2.0]), tf.constant([3.0, 6.0])]
            all_values = [{"x": x, "read/w": tf.constant([4.0, 9.0])} for x in xs]
            for leg in piece.legs:
                for name in leg.inputs:
                    if name in piece.meetings and name not in all_values[0]:
                        sent = piece.meetings[name].sent
                        mean = tf.add_n([values[sent] for values in all_values]) / 2.0
                        for values in all_values:
                            values[name] = mean
                for values in all_values:
                    values |= leg(values)
            actual = session.run([values["y"] for values in all_values])
        first = [8.0, 24.0]  # the mean of 2 x w
        second = [14.0, 36.0]  # the mean of 3 x, plus the first
        for x, y in zip(([1.0, 2.0], [3.0, 6.0]), actual):
            wanted = [
                (a + b) * c * w for a, b, c, w in zip(x, first, second, (2.0, 3.0))
            ]
            self.assertSequenceAlmostEqual(y.tolist(), wanted, places=3)
