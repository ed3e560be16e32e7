"""Tests of flags.tf_cnn_run: batches, steps and epochs."""

from absl.testing import parameterized

from flags.tf_cnn_run import num_steps
from tests.flags.tf_cnn_commands import run_of

_TWO = dict(job_name="worker", worker_hosts=("a:1", "b:1"))


class RunTest(parameterized.TestCase):
    @parameterized.parameters(
        (None, None, 100),  # benchmark_cnn.py:1098
        (7, None, 7),
        (None, 1.0, 11),  # 101 images in steps of 10, rounded up
        (None, 0.5, 5),  # 50.5 and 9 are 59 images there
    )
    def test_steps(self, batches, epochs, wanted):
        self.assertEqual(num_steps(batches, epochs, 10, 101), wanted)

    @parameterized.parameters(
        ({}, 10),
        ({"num_warmup_batches": 0}, 0),
        ({"autotune_threshold": 1}, 10),
        ({"autotune_threshold": 2}, 20),
        ({"autotune_threshold": 3, "num_warmup_batches": 4}, 4),
    )
    def test_warmup_steps(self, flags, wanted):
        self.assertEqual(run_of(**flags).warmup_steps, wanted)

    @parameterized.parameters(
        # mode, flags, gradients that are added, images of rates, counts of a step
        ("parameter_server", {}, 1, 128, 1),
        ("replicated", {}, 2, 128, 1),
        ("parameter_server", _TWO, 2, 128, 2),
        ("parameter_server", {**_TWO, "cross_replica_sync": False}, 1, 128, 2),
        ("distributed_replicated", _TWO, 2, 128, 2),
        ("distributed_all_reduce", _TWO, 4, 128, 1),
        ("collective_all_reduce", _TWO, 4, 256, 1),
    )
    def test_modes(self, mode, flags, added, rate_batch, counts):
        run = run_of(variable_update=mode, num_gpus=2, **flags)
        self.assertEqual(run.adds_gradients, added)
        self.assertEqual((run.rate_batch, run.counts), (rate_batch, counts))
        self.assertEqual(run.global_batch, 64 * 2 * (2 if flags else 1))

    def test_epochs_are_those_of_the_examples(self):
        self.assertEqual(run_of(batch_size=100).epoch(1_281_167), 100.0)
        # The global step there counts each of two workers.
        two = run_of(batch_size=100, **_TWO)
        self.assertEqual(two.epoch(1_281_167), 100.0)
        self.assertEqual(run_of(model="ncf", batch_size=1).epoch(99_308_850), 1.0)

    @parameterized.parameters(
        ("", False, "cpu"), ("", True, "gpu"), ("cpu", True, "cpu")
    )
    def test_the_device(self, device, gpus, wanted):
        self.assertEqual(run_of(gpus=gpus, device=device).device, wanted)
