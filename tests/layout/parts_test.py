"""Partitioned variables: initial values, slots and checkpoints."""

import os

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import arrays
from towers.checkpoints.checkpoint import Checkpoints, FiniteCheck
from towers.layout import parts
from towers.layout.graph_names import checkpoint_name
from towers.layout.parts import Parts, Split
from towers.optimizers.learning_rate import Piecewise
from towers.optimizers.optimizer import Update
from towers.variable_update.variable_store import VariableStore

v1 = tf.compat.v1

_DEVICES = [f"/device:CPU:{k}" for k in range(3)]


class SplitTest(parameterized.TestCase):
    @parameterized.parameters(
        (1, [(0, 7)]), (3, [(0, 3), (3, 2), (5, 2)]), (7, [(k, 1) for k in range(7)])
    )
    def test_the_first_parts_are_longer(self, count, ranges):
        self.assertEqual(Split(count).ranges(7), ranges)

    def test_shapes_are_cut_along_the_axis(self):
        shapes = Split(2, axis=1).shapes([4, 5, 6])
        self.assertEqual([s.as_list() for s in shapes], [[4, 3, 6], [4, 2, 6]])


class NamesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("a/kernel/part_1", "a/kernel"),
        ("a/kernel/part_12/Momentum", "a/kernel/Momentum"),
        ("a/kernel", "a/kernel"),
        ("a/part_1st", "a/part_1st"),
    )
    def test_of_the_whole(self, name, whole):
        self.assertEqual(parts.whole_name(name), whole)

    def test_only_known_wholes_are_joined(self):
        with tf.Graph().as_default():
            variables = {
                name: v1.get_variable(name, [2, 3], use_resource=True)
                for name in ("a/part_0", "a/part_1", "a/part_0/Adam", "b/part_0")
            }
            known = {"a": Parts([variables["a/part_0"], variables["a/part_1"]], 1)}
            joined = parts.joined(variables, known)
        self.assertEqual(list(joined), ["a", "a/Adam", "b/part_0"])
        self.assertEqual(joined["a"].shape, [2, 6])
        self.assertLen(parts.each(joined["a"]), 2)
        self.assertLen(parts.each(joined["b/part_0"]), 1)


class _Trained:
    """A variable w, [7, 5], whole or in parts, after some steps."""

    def __init__(self, split: Split | None, optimizer: str, decayed=None):
        update = Update(
            optimizer,
            Piecewise((0.1,)),
            weight_decay=0.01,
            decayed=decayed or (lambda name: name == "w"),
        )
        self.graph = tf.Graph()
        with self.graph.as_default():
            copy = VariableStore([["/device:CPU:0"]], 1, shards=[[d] for d in _DEVICES])
            shape = tf.TensorShape([7, 5])
            copy.create("w", shape, None, trainable=True, split=split)
            names = list(copy.variables)
            self.devices = [variable.device for variable in copy.variables.values()]
            gradients = []
            for name in names:
                gradients.append(2.0 * copy.read(name))
            self.step = copy.optimizer.apply(
                update.rules,
                update.make,
                gradients,
                copy.pieces(["w"]),
                rate=tf.constant(0.1),
            )
            plain = {checkpoint_name(v): v for v in v1.global_variables()}
            self.saved = parts.joined(plain, copy.wholes)
            self._start = v1.global_variables_initializer()
            self.saver = None
            self.session = v1.Session(
                config=v1.ConfigProto(device_count={"CPU": len(_DEVICES)})
            )
            self.session.run(self._start)

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.session.run(self.step)

    def checkpoints(self, directory: str) -> Checkpoints:
        with self.graph.as_default():
            return Checkpoints(directory, self.saved)

    def values(self) -> dict[str, np.ndarray]:
        return {
            name: np.concatenate(value, self.saved[name].axis)
            if isinstance(self.saved[name], Parts)
            else value
            for name, value in self.session.run(self.saved).items()
        }


_SPLITS = (None, Split(3), Split(3, axis=1))


class PartsTest(parameterized.TestCase):
    @parameterized.product(split=_SPLITS[1:], optimizer=("momentum", "adam", "adamw"))
    def test_values_and_slots_are_those_of_the_whole(self, split, optimizer):
        whole, cut = (_Trained(s, optimizer) for s in (None, split))
        self.assertEqual(cut.devices, _DEVICES)
        for step in range(3):
            wanted, actual = whole.values(), cut.values()
            self.assertEqual(set(actual), set(wanted))
            for name, value in wanted.items():
                # The last elements of a part are computed with other vector registers.
                bound = 1e-6 * np.abs(value).max() if step else 0.0
                arrays.assert_close(
                    actual[name], value, rtol=0.0, atol=bound, name=name
                )
            whole.run(1)
            cut.run(1)

    @parameterized.product(before=_SPLITS, after=_SPLITS)
    def test_a_checkpoint_does_not_know_the_parts(self, before, after):
        directory = os.path.join(self.create_tempdir(), "train")
        first, second = (_Trained(split, "adam") for split in (before, after))
        first.run(2)
        path = first.checkpoints(directory).save(first.session, 2)
        held = tf.train.load_checkpoint(path).get_variable_to_shape_map()
        self.assertEqual(held["w"], [7, 5])
        self.assertEqual(held["w/Adam_1"], [7, 5])
        self.assertEqual(second.checkpoints(directory).restore(second.session), path)
        for name, value in first.values().items():
            arrays.assert_same_bits(second.values()[name], value, name)

    def test_what_is_no_number_is_found_in_any_part(self):
        cut = _Trained(Split(3), "sgd")
        with cut.graph.as_default():
            finite = FiniteCheck(cut.saved)
            last = cut.saved["w"][2]
            self.assertIsNone(finite.broken(cut.session))
            cut.session.run(last.assign(np.full([2, 5], np.nan, np.float32)))
        self.assertEqual(finite.broken(cut.session), "w/part_2")


class DivideTest(tf.test.TestCase, parameterized.TestCase):
    @parameterized.parameters(
        ([5, 5], 100, 3, None),  # just fits
        ([5, 5], 99, 3, Split(2)),
        ([5, 5], 1, 3, Split(3)),
        ([2, 50], 1, 3, Split(3, 1)),
        ([2], 1, 3, Split(2)),
        ([], 1, 3, None),
        ([5, 5], 0, 3, None),
        ([5, 5], 1, 1, None),
    )
    def test_as_few_as_are_small_enough(self, shape, limit, most, wanted):
        self.assertEqual(Split.over(tf.TensorShape(shape), limit, most), wanted)

    @parameterized.parameters(0, 1)
    def test_divides_a_sparse_gradient(self, axis):
        shape = [7, 5]
        with tf.Graph().as_default(), v1.Session() as session:
            with v1.variable_scope("", use_resource=True):
                zeros, place = tf.zeros(shape), "/device:CPU:0"
                variable = parts.make("w", zeros, Split(3, axis), [place] * 3)
            self.assertEqual(variable.shape, shape)
            gradient = tf.IndexedSlices(
                tf.reshape(tf.range(20.0), [4, 5]),
                tf.constant([6, 0, 3, 6]),
                tf.constant(shape),
            )
            pieces = parts.divide(gradient, variable, place)
            whole = tf.concat([tf.convert_to_tensor(p) for p in pieces], axis)
            actual, wanted = session.run([whole, tf.convert_to_tensor(gradient)])
            np.testing.assert_array_equal(actual, wanted)
            shapes = session.run([p.dense_shape for p in pieces])
        self.assertEqual([list(s) for s in shapes], [p.shape for p in variable])
