"""The benchmark of pipelines, on tiny models."""

import contextlib
import io
import re
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from benchmarks import pipelines
from towers.cluster import sessions
from towers.layout.stages import Pipeline

# They have one batch size, so that tests can share what they measured.
_WHOLE, _CUT = Pipeline(1, 1), Pipeline(2, 2)
_RECOMPUTED = Pipeline(2, 2, recompute="block")
_BATCH = 2


def _printed(*arguments: str) -> list[str]:
    """What the command prints below the machine's facts."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert pipelines.main(arguments) == 0
    return output.getvalue().splitlines()[1:]


class PipelinesTest(tf.test.TestCase, parameterized.TestCase):
    def test_compute_says_its_share_of_the_ideal(self):
        size = ["--layers=2", "--units=32", "--batch_size=4", "--micro_batches=2"]
        settled = mock.Mock(wraps=sessions.settle_process)
        with mock.patch.object(sessions, "settle_process", settled):
            first, last = _printed("compute", *size, "--steps=1")
        _, devices = settled.call_args_list[0].args
        self.assertEqual(devices.num_intra_threads, 1)
        self.assertRegex(first, r"^one device \d+\.\d+ s, two stages ")
        self.assertRegex(last, r"^speed-up \d+\.\d\d .* of the ideal 1\.\d\d$")

    def test_balance_is_never_worse_than_equal_numbers(self):
        *_, two, four = _printed("balance", "--models=lenet", "--batch_size=2")
        for line in (two, four):
            name, _, before, after = line.split()
            self.assertEqual(name, "lenet")
            self.assertLessEqual(float(after), float(before))

    @parameterized.parameters((_WHOLE, 5, 2), (_CUT, 5, 4), (_RECOMPUTED, 3, 6))
    def test_the_largest_fits_and_the_next_does_not(self, how, megabytes, layers):
        limit = megabytes * 10**6
        actual = pipelines.largest(how, limit, _BATCH)
        self.assertEqual(actual.layers, layers)
        self.assertLessEqual(actual.estimate, limit)
        smaller = pipelines.largest(how, actual.estimate - 1, _BATCH)
        self.assertEqual(smaller.layers, actual.layers - how.stages)

    def test_where_not_one_layer_fits_nothing_is_run(self):
        ways = {
            "nothing": pipelines.PipelineMeasurement(_WHOLE),
            "K=2": pipelines.PipelineMeasurement(_CUT),
        }
        with (
            mock.patch.dict(pipelines.WAYS, ways, clear=True),
            mock.patch.object(pipelines, "build"),
        ):
            *_, first_line, two = _printed(
                "memory", "--megabytes=1", f"--batch_size={_BATCH}"
            )
        self.assertRegex(first_line, r"^nothing +0 +- +- +- +[1-9]\.\d for 1 +- +-$")
        self.assertRegex(two, r"^K=2 +0 +- +- +- +[1-9]\.\d for 2 +- +-$")

    def test_a_run_takes_what_was_planned(self):
        ways = {
            "nothing": pipelines.PipelineMeasurement(_WHOLE, gpipe=3),
            "K=2": pipelines.PipelineMeasurement(_CUT),
            "K=2 + recompute": pipelines.PipelineMeasurement(_RECOMPUTED, gpipe=13),
        }
        with mock.patch.dict(pipelines.WAYS, ways, clear=True):
            words = "memory", "--megabytes=3", f"--batch_size={_BATCH}"
            title, _, *rows = _printed(*words)
        self.assertIn("  layers  ratio  GPipe's  M parameters", title)
        layers, theirs = [], []
        for line in rows:
            *_, number, ratio, gpipe, _, plan, peak, error = line.split()
            layers.append(int(number))
            theirs.append(gpipe)
            self.assertAlmostEqual(float(ratio), layers[-1] / layers[0], delta=0.06)
            self.assertLessEqual(float(plan), 3.0)
            self.assertAlmostEqual(float(plan) / float(peak), 1.0, delta=0.15)
            self.assertEndsWith(error, "%")
        self.assertLen(layers, len(ways))
        self.assertGreater(layers[-1], layers[0])
        self.assertEqual(theirs, ["1.0", "-", "4.3"])

    def test_build_counts_nodes(self):
        [line] = _printed("build", "--stages=2", "--micro_batches=2", "--towers=1")
        nodes = int(re.search(r"(\d+) nodes", line)[1])
        self.assertBetween(nodes, 100, 4000)
