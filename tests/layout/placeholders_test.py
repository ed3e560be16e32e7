"""The devices of the nodes of a tower's template."""

from absl.testing import absltest

from towers.layout import placeholders


class PlaceholdersTest(absltest.TestCase):
    def test_where_a_node_of_a_template_goes(self):
        tower, owners = (
            ["/device:GPU:2", "/device:GPU:3"],
            ["/job:ps/task:1/device:CPU:0"],
        )
        for node_device, wanted in (
            ("", tower[0]),
            (placeholders.shard(1), tower[1]),
            (placeholders.shard(1) + "/device:CPU:0", "/device:CPU:0"),
            (placeholders.owner(0), owners[0]),
            ("/device:CPU:0", "/device:CPU:0"),
        ):
            self.assertEqual(placeholders.of_node(node_device, tower, owners), wanted)

    def test_what_is_one(self):
        for device in (placeholders.shard(1), placeholders.owner(0) + "/device:CPU:0"):
            self.assertTrue(placeholders.is_one(device))
        for device in ("", "/device:CPU:0", "/job:ps/task:0"):
            self.assertFalse(placeholders.is_one(device))
