"""A cluster of two tasks is measured in every way."""

from absl.testing import absltest

from benchmarks.lib import process
from benchmarks.mechanisms import transport
from benchmarks.peers import transport_peer
from tests.processes import programs


class TransportPeerTest(absltest.TestCase):
    def test_measures_every_way_and_size(self):
        programs.need_private_networks()
        options = transport.parse(
            ["--sizes=4096,262144", "--counts=1", "--seconds=0.02"]
        )
        setting = transport.SETTINGS["channels"]
        finished = process.run(transport.command(setting, options), timeout=120)
        self.assertEqual(finished.status, 0, finished.lines)
        measured = transport.measured(finished)
        ways = ["socket", "1 ps"] + ([] if transport_peer.grpc is None else ["grpc"])
        self.assertCountEqual(
            [(row["way"], row["bytes"]) for row in measured],
            [(way, size) for way in ways for size in (4096, 262144)],
        )
        for row in measured:
            self.assertBetween(row["gigabytes_per_second"], 1e-6, 100.0)

    def test_a_rate_is_bytes_over_time(self):
        calls = []
        rate = transport_peer.rate(lambda: calls.append(1), 1000, seconds=0.01)
        # One call is the warm-up; the others take 0.01 seconds or a little more.
        self.assertBetween(rate, (len(calls) - 1) * 1e-7, (len(calls) - 1) * 1e-4)
