"""TensorFlow's collective operations in one graph: right, whole, and never hanging."""

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from towers.gradients import collective
from towers.gradients.transfer import Wire
from towers.session import device_loop

v1 = tf.compat.v1
_MILLISECONDS = 60_000


def _reduced(values, **options):
    devices = [f"/device:CPU:{k}" for k in range(len(values))]
    shares = []
    for device, value in zip(devices, values):
        with tf.device(device):
            shares.append(tf.identity(value))
    arguments = {"num_shards": 1, "wire": Wire(), **options}
    return collective.collective_reduce(shares, devices, **arguments, hint="auto")


def _session(num_devices):
    return v1.Session(config=v1.ConfigProto(device_count={"CPU": num_devices}))


def _run(session, fetches, **options):
    limit = v1.RunOptions(timeout_in_ms=_MILLISECONDS)
    return session.run(fetches, options=limit, **options)


class CollectiveTest(parameterized.TestCase):
    @parameterized.product(
        num_towers=(1, 2, 5), num_shards=(1, 3), dtype=(tf.float32, tf.bfloat16)
    )
    def test_sums(self, num_towers, num_shards, dtype):
        rng = np.random.default_rng(0)
        values = rng.integers(-8, 8, (num_towers, 5, 3)).astype("f4")
        ones = np.arange(num_towers, dtype="f4")[:, None]
        with tf.Graph().as_default() as graph, _session(num_towers) as session:
            options = dict(num_shards=num_shards, wire=Wire(dtype))
            # As many at a time as a model has variables.
            tensors = [_reduced(values, **options) for _ in range(8)]
            tensors.append(_reduced(ones, **options))
            *actual, last = _run(session, tensors)
            for op in graph.get_operations():
                if op.type == "CollectiveReduceV2":
                    self.assertEqual(op.inputs[0].dtype, dtype)
        for copies in actual:
            for copy in copies:
                np.testing.assert_array_equal(copy, values.sum(0))
        for copy in last:
            np.testing.assert_array_equal(copy, ones.sum(0))

    def test_the_sum_of_one_tower_alone_runs_all_members(self):
        with tf.Graph().as_default(), _session(3) as session:
            actual = _reduced(np.ones((3, 4), "f4"))
            np.testing.assert_array_equal(_run(session, actual[2]), [3, 3, 3, 3])

    def test_a_step_that_fails_ends_and_the_next_one_works(self):
        # TensorFlow reports the failure itself, or that others were cancelled.
        errors = tf.errors.InvalidArgumentError, tf.errors.CancelledError
        with tf.Graph().as_default(), _session(2) as session:
            number = v1.placeholder(tf.float32, [])
            checked = tf.debugging.check_numerics(number, "not a number")
            actual = _reduced([tf.reshape(checked, [1]), tf.ones([1])])
            for value in (1.0, 2.0, 3.0):
                copies = _run(session, actual, feed_dict={number: value})
                self.assertEqual([float(copy[0]) for copy in copies], [value + 1] * 2)
                with self.assertRaises(errors):
                    _run(session, actual, feed_dict={number: float("nan")})

    def test_a_first_step_that_fails_ends_too(self):
        errors = tf.errors.InvalidArgumentError, tf.errors.CancelledError
        with tf.Graph().as_default(), _session(2) as session:
            checked = tf.debugging.check_numerics(tf.constant([np.nan]), "no number")
            with self.assertRaises(errors):
                _run(session, _reduced([checked, tf.ones([1])]))

    def test_many_steps_in_one_call_are_the_same_steps(self):
        """The loop in the graph holds copies of the operations, keys included."""
        options = dict(
            towers=3,
            variable_update="replicated",
            exchange=dict(all_reduce_spec="collective"),
        )
        runs = []
        for _ in range(2):
            runs.append(trainer.Trainer(**options))
        plain = runs[0].start().steps(6)
        train = runs[1].train
        with train.graph.as_default():
            loop = device_loop.build(train.train_op, train.step, train.loss)
        runs[1].start()
        _run(runs[1].session, loop.step, feed_dict={loop.count: 6})
        trainer.assert_same_bits(plain, runs[1].values())
