"""The peak memory of operations, counted by hand and measured."""

import types

import tensorflow as tf
from absl.testing import absltest

from towers.pipelines import liveness
from towers.session import pipeline_report

v1 = tf.compat.v1

_UNIT = 4 * 1000  # bytes of a vector


def _peak(make, **options):
    """Of what is made from a placeholder, in units."""
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, [1000])
        outputs = make(x)
        operations = [op for op in graph.get_operations() if op is not x.op]
        options = {name: options[name](outputs) for name in options}
        return liveness.peak(operations, outputs, **options) / _UNIT


def _in_place(x):
    return [tf.tanh(tf.tanh(tf.tanh(x)))]


def _read_twice(x):
    first = tf.tanh(x)
    second = tf.sinh(first)
    return [first * second]


def _read_by_a_later_one(x):
    first = tf.cumsum(x)
    second = tf.tanh(first)  # cannot reuse the buffer, which is read again
    return [tf.cumsum(second) + first]


def _reshaped(x):
    return [tf.cumsum(tf.reshape(tf.cumsum(x), [10, 100]))]


def _kept(x):
    first = tf.cumsum(x)
    return [first, tf.cumsum(first)]


def _kept_early(x):
    first = tf.cumsum(x)
    return [first, tf.cumsum(tf.cumsum(first))]


def _two_ways(x):
    """Both ways are begun before the first is done."""
    upward, other = tf.cumsum(x), tf.cumsum(x, reverse=True)
    return [tf.reduce_sum(tf.cumsum(upward)) + tf.reduce_sum(tf.cumsum(other))]


class PeakTest(absltest.TestCase):
    def test_an_element_wise_operation_writes_over_what_nobody_else_reads(self):
        self.assertEqual(_peak(_in_place), 1)
        self.assertEqual(_peak(_read_twice), 2)
        self.assertEqual(_peak(_read_by_a_later_one), 3)

    def test_another_shape_takes_nothing(self):
        self.assertEqual(_peak(_reshaped), 2)

    def test_outputs_stay(self):
        self.assertEqual(_peak(lambda x: [tf.cumsum(tf.cumsum(tf.cumsum(x)))]), 2)
        self.assertEqual(_peak(_kept), 2)
        self.assertEqual(_peak(_kept_early), 3)

    def test_what_is_counted_elsewhere_is_not_counted(self):
        self.assertEqual(_peak(_kept, apart=lambda outputs: outputs[:1]), 1)
        self.assertEqual(_peak(_kept, apart=lambda outputs: outputs), 0)

    def test_first_come_first_served(self):
        self.assertAlmostEqual(_peak(_two_ways), 3, places=2)

    def test_only_what_is_made_is_counted(self):
        with tf.Graph().as_default():
            x = tf.cumsum(v1.placeholder(tf.float32, [1000]))
            y = tf.cumsum(x)
            self.assertEqual(liveness.peak([y.op], [y]), _UNIT)

    def test_a_run_takes_as_much(self):
        with tf.Graph().as_default() as graph:
            x = v1.placeholder(tf.float32, [100, 100])
            y = x
            for _ in range(4):
                y = tf.tanh(y @ tf.transpose(y))
            [dx] = tf.gradients(tf.reduce_sum(y * y), [x])
            operations = [op for op in graph.get_operations() if op is not x.op]
            config = v1.ConfigProto(inter_op_parallelism_threads=1)
            config.use_per_session_threads = True
            config.graph_options.rewrite_options.disable_meta_optimizer = True
            config.graph_options.optimizer_options.opt_level = -1  # L0
            metadata = v1.RunMetadata()
            with v1.Session(graph=graph, config=config) as session:
                session.run(
                    dx,
                    {x: [[0.1] * 100] * 100},
                    v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
                    metadata,
                )
        [taken] = pipeline_report.peak_bytes(metadata).values()
        self.assertBetween(liveness.peak(operations, [dx]) / taken, 0.85, 1.15)


class InLegsTest(absltest.TestCase):
    def test_what_waits_between_legs_counts_for_every_micro_batch(self):
        with tf.Graph().as_default():
            x = v1.placeholder(tf.float32, [256])  # 1 KiB
            carried, dropped = tf.tanh(x), tf.sin(x)
            sent = tf.reduce_sum(dropped)
            y = tf.exp(carried)
        first = types.SimpleNamespace(
            operations=[carried.op, dropped.op, sent.op.inputs[1].op, sent.op],
            inputs={"x": x},
            outputs={"carried": carried, "sent": sent},
        )
        last = types.SimpleNamespace(
            operations=[y.op], inputs={"carried": carried}, outputs={"y": y}
        )
        legs = [first, last]
        row_bytes, sums = 1024, 4
        for meeting in (1, 4):
            # The last micro-batch of the first leg has two tensors, each other one.
            self.assertEqual(
                liveness.in_legs(legs, meeting, apart=[y]),
                (meeting + 1) * row_bytes + sums,
            )
            # A tensor that is kept for later is not counted twice.
            self.assertEqual(
                liveness.in_legs(legs, meeting, apart=[y, carried]), row_bytes + sums
            )
            # The inputs of each micro-batch are kept, too.
            self.assertEqual(
                liveness.in_legs(legs, meeting, 10 * row_bytes, apart=[y]),
                10 * meeting * row_bytes + 2 * row_bytes + sums,
            )
        # The results of all stay.
        self.assertEqual(liveness.in_legs([last], 4), 4 * row_bytes)
