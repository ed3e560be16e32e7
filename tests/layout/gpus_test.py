"""The GPUs that towers can use, and the error if there are too few."""

from absl.testing import parameterized

from flags import config
from towers.layout.gpus import Gpus

_ON_CPUS = "write device=cpu for logical CPU devices"


class GpusTest(parameterized.TestCase):
    @parameterized.parameters(
        (Gpus(), 2, (0, 1)), (Gpus((3, 1)), 2, (3, 1)), (Gpus(split=2), 3, (0, 1, 2))
    )
    def test_numbers(self, gpus, count, wanted):
        self.assertEqual(gpus.first(count), wanted)
        gpus.check(count, 4)

    def test_those_that_settings_ask_for(self):
        settings = config.make(
            gpu_indices=(2, 1), logical_gpus=3, gpu_memory_frac_for_testing=0.5
        )
        self.assertEqual(Gpus.of(settings.devices), Gpus((2, 1), 3, 0.5))

    @parameterized.parameters(
        (
            Gpus(),
            1,
            0,
            "num_gpus=1: 1 GPU asked for, but this machine has 0 visible GPUs; "
            f"lower num_gpus, or {_ON_CPUS}",
        ),
        (
            Gpus(),
            4,
            1,
            "num_gpus=4: 4 GPUs asked for, but this machine has 1 visible GPU; lower "
            f"num_gpus, or {_ON_CPUS}, or logical_gpus=4 to split it",
        ),
        (
            Gpus((1, 4), split=2),
            2,
            2,
            "num_gpus=2: GPU 4 asked for, but this machine has 2 visible GPUs, as 4 "
            f"logical GPUs; lower num_gpus, or {_ON_CPUS}, or logical_gpus=3 to "
            "split each of them",
        ),
    )
    def test_too_few(self, gpus, count, visible, wanted):
        with self.assertRaises(ValueError) as raised:
            gpus.check(count, visible)
        self.assertEqual(str(raised.exception), wanted)

    @parameterized.parameters((2, 2, 4, 1), (4, 2, 2, 4), (3, 1, 1, 4), (2, 3, 2, 4))
    def test_workers_have_their_own(self, count, workers, visible, split):
        Gpus(split=split).check_workers(count, workers, visible)

    @parameterized.parameters(
        (
            (1, 2, 1, 1),
            "local_cluster: 2 workers with num_gpus=1 need 2 GPUs, but this "
            "machine has 1 visible GPU; lower num_gpus or the number of workers, or "
            f"{_ON_CPUS}, or logical_gpus=2 to split it",
        ),
        (
            (3, 2, 2, 4),
            "num_gpus=3: the 2 workers of local_cluster cannot share GPUs evenly "
            "with logical_gpus=4; write a number that divides the other",
        ),
    )
    def test_workers_that_cannot(self, asked, wanted):
        count, workers, visible, split = asked
        with self.assertRaises(ValueError) as raised:
            Gpus(split=split).check_workers(count, workers, visible)
        self.assertEqual(str(raised.exception), wanted)

    def test_logical_ones_are_said_to_share(self):
        self.assertEqual(Gpus().notice(2), "")
        self.assertStartsWith(
            Gpus(split=4).notice(4), "4 logical GPUs, 4 to a GPU: they share its memory"
        )
