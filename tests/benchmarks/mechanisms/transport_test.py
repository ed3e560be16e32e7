"""The benchmark of transport: shares of a raw socket's speed."""

from absl.testing import absltest

from benchmarks.lib import process
from benchmarks.mechanisms import transport


def _one(way: str, size: int, rate: float) -> dict:
    return {"way": way, "bytes": size, "gigabytes_per_second": rate}


class TransportTest(absltest.TestCase):
    def test_shares_are_of_the_same_round(self):
        rounds = [
            [_one("socket", 4096, 2.0), _one("1 ps", 4096, 1.0)],
            [_one("socket", 4096, 4.0), _one("1 ps", 4096, 1.0)],
            [_one("socket", 4096, 1.0), _one("1 ps", 4096, 1.0)],
        ]
        title, _, row = transport.report(rounds)
        self.assertEqual(title.split(), "socket GB/s 1 ps / socket".split())
        self.assertEqual(
            row.split(), "4 KB 2.00 [1.00, 4.00] 0.500 [0.250, 1.00]".split()
        )

    def test_gains_are_of_the_same_round(self):
        rounds = {
            "default": [[_one("1 ps", 2**20, 1.0)], [_one("1 ps", 2**20, 2.0)]],
            "channels": [[_one("1 ps", 2**20, 2.0)], [_one("1 ps", 2**20, 2.0)]],
        }
        self.assertEqual(
            transport.gains(rounds)[2].split(), "1 MB 1.50 [1.00, 2.00]".split()
        )

    def test_every_setting_is_a_cluster_of_its_own(self):
        options = transport.parse(["--settings=default,queues", "--counts=1,2"])
        plain, queues = (
            transport.command(transport.SETTINGS[name], options)
            for name in options.settings
        )
        self.assertIn("--tasks=ps:2,worker:1", plain.argv)
        self.assertEqual(plain.argv, queues.argv)
        self.assertEqual(
            dict(queues.env.items() - plain.env.items()),
            {"TF_GRPC_WORKER_CACHE_QUEUES": "8", "TF_GRPC_WORKER_CACHE_THREADS": "8"},
        )

    def test_the_tunnel_carries_what_is_beside_the_tasks_too(self):
        options = transport.parse(["--settings=tunnel", "--counts=1"])
        argv = transport.command(transport.SETTINGS["tunnel"], options).argv
        launcher = ["benchmarks.lib.two_machines", "--port=3000", "--port=3001"]
        self.assertEqual(argv[2:6], [*launcher, "--tasks=ps:1,worker:1"])

    def test_a_cluster_that_fails_says_why(self):
        finished = process.Finished(1, [(0.0, "[{"), (0.1, "killed")][1:], 1.0)
        with self.assertRaisesRegex(RuntimeError, "the cluster failed: killed"):
            transport.measured(finished)
