"""Tests of flags.devices: what is admitted of each flag."""

from absl.testing import parameterized

from flags import devices, field

_FLAGS = {flag.name: flag for flag in field.flags_of("devices", devices.DeviceFlags)}


class DevicesTest(parameterized.TestCase):
    @parameterized.parameters(
        ("num_gpus", 1024, 0),
        ("num_gpus", 1, 1025),
        ("gpu_indices", (0, 3), (-1,)),
        ("logical_gpus", 2, 0),
        ("device", "auto", "tpu"),
        ("num_intra_threads", 0, 4097),
        ("num_inter_threads", 4096, -1),
        ("gpu_memory_frac_for_testing", 1.0, 1.1),
    )
    def test_bounds(self, name, admitted, refused):
        self.assertEqual(_FLAGS[name].problem(admitted), "")
        self.assertNotEqual(_FLAGS[name].problem(refused), "")
