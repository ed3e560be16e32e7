"""Loads a checkpoint of a run that trained other variables."""

import os
import tempfile

import numpy as np
import tensorflow as tf
from absl.testing import absltest

from towers.checkpoints.loading import Loaders
from towers.layout import parts
from towers.layout.parts import Split

v1 = tf.compat.v1


def _variable(name, value):
    start = np.array(value, np.float32)
    return v1.get_variable(name, initializer=start, use_resource=True)


class LoadingTest(absltest.TestCase):
    def _saved(self, **values):
        path = os.path.join(tempfile.mkdtemp(), "there")
        with tf.Graph().as_default(), v1.Session() as session:
            names = {name.replace("__", "/"): v for name, v in values.items()}
            variables = {n: _variable(n, v) for n, v in names.items()}
            session.run(v1.global_variables_initializer())
            v1.train.Saver(variables).save(session, path, write_meta_graph=False)
        return path

    def _loaded(self, path, names):
        """Values by name of zeros that were loaded, and what was said."""
        lines = []
        with tf.Graph().as_default() as graph:
            whole = parts.make("w", tf.zeros([3, 2]), Split(2), ["", ""])
            variables = {name: _variable(name, [0.0, 0.0]) for name in names}
            loaders = Loaders({**variables, "w": whole}, lines.append)
            begin = v1.global_variables_initializer()
            graph.finalize()
            with v1.Session() as session:
                session.run(begin)
                loaders.load(session, path)
                values = session.run({**variables, "w": list(whole)})
        joined = np.concatenate(values.pop("w")).tolist()
        return {n: v.tolist() for n, v in values.items()} | {"w": joined}, lines

    def test_slots_begin_anew_and_averages_at_the_variable(self):
        w = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
        average = "ExponentialMovingAverage"
        saved = {"b__Slot": [9.0, 9.0], f"b__{average}": [8.0, 8.0]}
        path = self._saved(w=w, a=[1.0, 2.0], b=[3.0, 4.0], **saved)
        names = ("a", "b", "a/Slot", "b/Slot", f"a/{average}", f"b/{average}")
        values, lines = self._loaded(path, names)
        self.assertEqual(
            values,
            {
                "w": w,
                "a": [1.0, 2.0],
                "b": [3.0, 4.0],
                "a/Slot": [0.0, 0.0],
                "b/Slot": [9.0, 9.0],
                f"a/{average}": [1.0, 2.0],
                f"b/{average}": [8.0, 8.0],
            },
        )
        self.assertLen(lines, 1)
        self.assertStartsWith(lines[0], "The optimizer's slots of 1 variable")

    def test_an_evaluation_says_nothing(self):
        """It reads averages only: of what was frozen, the variable."""
        average = "ExponentialMovingAverage"
        path = self._saved(
            w=np.ones([3, 2]),
            a=[1.0, 2.0],
            b=[3.0, 4.0],
            **{f"b__{average}": [8.0, 8.0]},
        )
        values, lines = self._loaded(path, (f"a/{average}", f"b/{average}"))
        self.assertEqual(values[f"a/{average}"], [1.0, 2.0])
        self.assertEqual(values[f"b/{average}"], [8.0, 8.0])
        self.assertEmpty(lines)
