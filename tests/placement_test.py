"""Device strings, groups and errors of placements."""

import tensorflow as tf
from absl.testing import parameterized

from towers import placement


class PlacementTest(parameterized.TestCase):
    @parameterized.parameters(1, 2, 4, 8)
    def test_logical_cpu_devices_when_no_gpu_is_visible(self, num_towers):
        if tf.config.list_physical_devices("GPU"):
            self.skipTest("this machine has a GPU")
        found = placement.local(num_towers)
        self.assertEqual(found.kind, "cpu")
        self.assertEqual(
            found.towers, tuple(f"/device:CPU:{i}" for i in range(num_towers))
        )
        self.assertEqual(found.parameters, ("/device:CPU:0",))
        self.assertEqual(found.groups, [("/device:CPU:0", list(found.towers))])
        self.assertIn("No GPU is visible", found.notice)
        self.assertEqual(
            placement.session_config(found).device_count["CPU"], num_towers
        )

    def test_asking_for_cpu_needs_no_notice(self):
        self.assertEqual(placement.local(2, kind="cpu").notice, "")

    def test_more_gpus_than_there_are(self):
        visible = len(tf.config.list_physical_devices("GPU"))
        with self.assertRaisesRegex(ValueError, f"{visible} visible GPU.*--device=cpu"):
            placement.local(visible + 1, kind="gpu")

    def test_gpu_parameters_for_cpu_towers(self):
        with self.assertRaisesRegex(ValueError, "local_parameter_device=cpu"):
            placement.local(2, kind="cpu", parameters="gpu")

    def test_groups_follow_the_hosts(self):
        found = placement.Placement(
            kind="cpu", towers=("a", "b", "c"), hosts=("x", "x", "y"), parameters=("x",)
        )
        self.assertEqual(found.groups, [("x", ["a", "b"]), ("y", ["c"])])

    def test_placement_is_hard(self):
        config = placement.session_config(placement.local(1, kind="cpu"))
        self.assertFalse(config.allow_soft_placement)
        self.assertEqual(config.device_count["GPU"], 0)

    def test_xla_compiles_clusters_when_asked(self):
        for asked in (True, False):
            config = placement.session_config(
                placement.local(1, kind="cpu"), auto_jit=asked
            )
            options = config.graph_options.optimizer_options
            self.assertEqual(options.global_jit_level == options.ON_1, asked)


if __name__ == "__main__":
    tf.test.main()
