"""The benchmark of reductions: its sums, its copies and its files."""

import contextlib
import io
import json
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

import models
from benchmarks import reduce
from towers.gradients import reduction


def _run(number, spec, seconds, cpu_seconds=1.0):
    return reduce.ReduceRun(number, "m", 2, spec, seconds, cpu_seconds, 3 * 10**9)


class ReduceTest(tf.test.TestCase, parameterized.TestCase):
    def test_shapes_are_those_of_the_model(self):
        for name in ("lenet", "mlp"):
            elements = sum(shape.num_elements() for shape in reduce.shapes_of(name))
            self.assertEqual(elements, models.get(name).num_parameters)

    def test_every_algorithm_is_checked_before_it_is_timed(self):
        specs = reduction.usable("cpu")
        shapes = [tf.TensorShape([3, 5]), tf.TensorShape([2])]
        reductions = reduce.Reductions(shapes, 3, specs)
        with reductions.start() as session:
            for spec in specs:
                reductions.step(session, spec)()
        wrong = reduce.Reductions(shapes, 3, specs[:1])
        copies = wrong._sums[specs[0]][0]
        with wrong._graph.as_default():
            copies[1] = copies[1] + 1.0
        with wrong.start() as session, self.assertRaisesRegex(AssertionError, "pscpu"):
            wrong.step(session, specs[0])

    @parameterized.parameters((80, 1000), (4000, 400), (4040, 400), (8, 4))
    def test_the_copy_moves_as_many_bytes_as_it_says(self, num_bytes, block):
        copy = reduce.MemoryCopy(num_bytes, block)
        written = []
        original = np.copyto
        with mock.patch.object(reduce.np, "copyto") as copyto:
            copyto.side_effect = lambda to, source: (
                written.append(to.nbytes),
                original(to, source),
            )
            copy()
        self.assertEqual(2 * sum(written), num_bytes)
        self.assertTrue(np.all(copy._to == 1.0))

    def test_speeds_and_ratios(self):
        runs = [_run(1, "copy", 0.5), _run(1, "tree", 1.0, 4.0)]
        runs += [_run(2, "copy", 0.6), _run(2, "tree", 0.6, 2.0)]
        results = reduce.ReduceResults(runs)
        self.assertAllClose([*results.speed(("m", 2), "tree")], [4.0, 3.0, 5.0])
        self.assertAllClose([*results.against_copy(("m", 2), "tree")], [0.75, 0.5, 1.0])
        by_cpu = results.against_copy(("m", 2), "tree", cpu=True)
        self.assertAllClose([*by_cpu], [0.375, 0.25, 0.5])
        self.assertRegex(results.tables()[-1], r"^m x 2 +tree +4\.00 \[3\.00, 5\.00\] ")

    def test_the_command(self):
        prefix = self.create_tempfile("reduce").full_path
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            status = reduce.main(
                [
                    "--models=mlp",
                    "--towers=2",
                    "--specs=pscpu,xring#2",
                    "--rounds=2",
                    "--seconds=0.001",
                    f"--out={prefix}",
                ]
            )
        self.assertEqual(status, 0)
        with open(prefix + ".json", encoding="utf-8") as file:
            numbers = json.load(file)
        self.assertLen(numbers["runs"], 6)
        self.assertEqual(
            [s["spec"] for s in numbers["summary"]][1:], ["pscpu", "xring#2"]
        )
        self.assertEqual(numbers["runs"][0]["num_bytes"], 3 * 4 * 199_210)
        self.assertIn("over the copy", output.getvalue())
