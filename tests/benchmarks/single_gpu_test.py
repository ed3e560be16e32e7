"""The benchmark of one GPU: its graphs and its table."""

import contextlib
import io

import tensorflow as tf

from benchmarks import single_gpu


class SingleGpuTest(tf.test.TestCase):
    def test_every_variant_is_measured_beside_the_bare_graph(self):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = single_gpu.main(
                "--device=cpu --model=lenet --batch_size=2 --num_batches=1 --rounds=2 "
                "--num_warmup_batches=1 --dtypes float32".split()
            )
        self.assertEqual(status, 0)
        text = printed.getvalue()
        for name in ("bare", *single_gpu.VARIANTS):
            self.assertRegex(text, rf"float32 +{name} +\d")
        self.assertRegex(text, r"float32: [0-9.]+ TFLOP/s measured")

    def test_ratios_are_within_a_dtype(self):
        timed = [
            single_gpu.Timed("float32", "bare", print, 10),
            single_gpu.Timed("float32", "NHWC", print, 10),
            single_gpu.Timed("float16", "bare", print, 10),
            single_gpu.Timed("float16", "NHWC", print, 10),
        ]
        seconds = [[2.0], [1.0], [1.0], [4.0]]
        peaks = {"float32": 20.0, "float16": 50.0}
        lines = single_gpu.report(timed, seconds, peaks, 8)
        rows = [line.split() for line in lines[2:]]
        for column, wanted in (
            (2, "4.00 8.00 8.00 2.00"),  # images per second
            (5, "0.250 0.500 0.200 0.0500"),  # MFU
            (8, "1.00 2.00 1.00 0.250"),  # of the bare graph's speed
        ):
            self.assertEqual([row[column] for row in rows], wanted.split())
