"""The benchmark of an evaluation's memory, on evaluations that run."""

import argparse
import os

from absl.testing import absltest

from benchmarks.mechanisms import evaluation_memory


class EvaluationMemoryTest(absltest.TestCase):
    def test_measures_every_way_in_every_round(self):
        if not os.path.exists("/proc/self/statm"):
            self.skipTest("this system does not say what a process takes")
        options = argparse.Namespace(model="mlp", evaluations=3, warmup=1, rounds=2)
        measured = evaluation_memory.measure(options)
        ways = [evaluation_memory.RUN, evaluation_memory.INITIALIZED]
        self.assertEqual(list(measured), ways)
        for lost in measured.values():
            self.assertLen(lost, 2)

    def test_the_memory_of_this_process(self):
        before = evaluation_memory.resident()
        held = bytearray(os.urandom(2**26))
        self.assertGreater(evaluation_memory.resident() - before, 2**25)
        del held
