"""The cluster with a slow worker, and how its steps compare."""

import os
import sys
from unittest import mock

from absl.testing import absltest

from benchmarks.lib import process, slow_worker
from flags import cluster, config, parse


class SlowWorkerTest(absltest.TestCase):
    def test_only_the_last_worker_is_slow(self):
        waits = []
        for index in range(4):
            argv, factor = (
                ["train", f"--task_index={index}"],
                {"TOWERS_SLOW_WORKER": "5"},
            )
            with (
                mock.patch.object(sys, "argv", argv),
                mock.patch.dict(os.environ, factor),
                mock.patch.object(
                    slow_worker, "waiting", lambda s, **_: waits.append(s)
                ),
            ):
                slow_worker.model()
        self.assertEqual(waits, [0.1, 0.1, 0.1, 0.5])

    def test_the_commands_differ_in_what_is_compared(self):
        fast, slow, backup = slow_worker.commands("py", 5.0, 20).values()
        self.assertEqual(fast.argv, slow.argv)
        self.assertEqual({**fast.env, "TOWERS_SLOW_WORKER": "5.0"}, slow.env)
        self.assertEqual([*slow.argv, "--backup_workers=1"], backup.argv)
        self.assertEqual(slow.env, backup.env)
        read = parse.parse(
            ["train", *backup.argv[3:]], {"model": ["benchmarks.lib.slow_worker:model"]}
        )
        self.assertIsInstance(read, config.Config)
        self.assertEqual(
            cluster.parse_tasks(read.cluster.local_cluster), {"ps": 1, "worker": 4}
        )

    def test_steps_of_the_same_round_are_compared(self):
        rates = iter([40.0, 8.0, 32.0, None, 8.0, 20.0])

        def run(command, timeout):
            rate = next(rates)
            lines = [(1.0, f"total images/sec: {rate}")] if rate else [(1.0, "no")]
            return process.Finished(0, lines, 2.0)

        with mock.patch.object(process, "run", run):
            seconds, failures = slow_worker.measure(
                "py", 5.0, steps=20, rounds=2, timeout=9.0
            )
        self.assertEqual(failures, ["[2/2] all fast: no"])
        self.assertEqual(
            seconds,
            {
                "all fast": [0.1],
                "one slow": [0.5, 0.5],
                "one slow, one backup": [0.125, 0.2],
            },
        )
        lines = slow_worker.report(seconds)
        self.assertStartsWith(lines[2], "one slow, one backup: 0.16")
        self.assertIn("of fast ones: 1.25", lines[2])
