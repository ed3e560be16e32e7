"""What the programs of the peers have in common."""

from absl.testing import absltest

from benchmarks.lib.process import TOTAL
from benchmarks.peers import peer


class PeerTest(absltest.TestCase):
    def test_flags(self):
        flags = peer.parser("lenet_peer", "", ["lenet", "mlp"])
        options = flags.parse_args(["--model=mlp", "--num_devices=4"])
        self.assertEqual((options.model, options.num_devices), ("mlp", 4))
        for wrong in ("--model=rumour", "--num_devices=0", "--batch_size=-1"):
            with self.assertRaises(SystemExit):
                flags.parse_args([wrong])

    def test_the_total_line_is_the_one_that_is_looked_for(self):
        options = peer.parser("lenet_peer", "", ["lenet"]).parse_args(
            ["--num_devices=4", "--batch_size=8", "--num_batches=10"]
        )
        line = peer.total_line(options, 2.0)
        self.assertEqual(line, "total images/sec: 160.00")
        self.assertTrue(TOTAL.match(line))
