"""What users start, on the GPUs of this machine; skipped where there are none.

The other tests see no GPU.  These see those of `TESTED_GPUS`, written as
`CUDA_VISIBLE_DEVICES` is, or all, from programs of their own.
"""

import functools
import os
import re
import subprocess
import sys

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from tests import trainer
from tests.processes.programs import ROOT

_FOUR_ON_ONE = ("--device=gpu", "--num_gpus=4", "--gpu_indices=0,1,2,3")
_FOUR_LOGICAL = (*_FOUR_ON_ONE, "--logical_gpus=4")

_COUNT = """
import tensorflow as tf
print(len(tf.config.list_physical_devices("GPU")))
"""

# NCCL between all GPUs, as many times as a model has variables; then the sum of one GPU
# alone, which runs all members.
_NCCL = """
import sys
import numpy as np
import tensorflow as tf
from towers.gradients import collective
from towers.gradients.transfer import Wire
from towers.layout import placement

v1 = tf.compat.v1
where = placement.local(int(sys.argv[1]), kind="gpu")
values = np.arange(len(where.towers) * 6, dtype="f4").reshape(len(where.towers), 6)


def reduced():
    shares = []
    for device, value in zip(where.towers, values):
        with tf.device(device):
            shares.append(tf.identity(value))
    how = {"num_shards": 1, "wire": Wire(), "hint": "nccl"}
    return collective.collective_reduce(shares, list(where.towers), **how)


config = placement.session_config(where)
limit = v1.RunOptions(timeout_in_ms=60_000)
with tf.Graph().as_default(), v1.Session(config=config) as session:
    tensors = [reduced() for _ in range(20)]
    for copies in session.run(tensors, options=limit):
        for copy in copies:
            np.testing.assert_array_equal(copy, values.sum(0))
    last = session.run(tensors[0][1], options=limit)
    np.testing.assert_array_equal(last, values.sum(0))
"""


def _environment() -> dict[str, str]:
    """Of a program that sees the GPUs."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    visible = environment.get("TESTED_GPUS", "all")
    environment["CUDA_VISIBLE_DEVICES"] = visible
    if visible == "all":
        del environment["CUDA_VISIBLE_DEVICES"]
    return environment


def _run(*arguments: str, status: int = 0) -> str:
    """What Python prints, in a process of its own."""
    finished = subprocess.run(
        [sys.executable, *arguments],
        env=_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=560,
        check=False,
    )
    assert finished.returncode == status, (
        f"status {finished.returncode}:\n{finished.stdout}"
    )
    return finished.stdout


@functools.cache
def _num_gpus() -> int:
    return int(_run("-c", _COUNT).splitlines()[-1])


class _OnGpus(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        if not _num_gpus():
            self.skipTest("this machine has no GPU")

    def _train(self, *flags: str, status: int = 0) -> str:
        return _run("-m", "towers.train", *flags, status=status)

    def _accuracy(self, printed: str) -> float:
        return float(re.search("Accuracy @ 1 = ([0-9.]+)", printed).group(1))


class OnGpuTest(_OnGpus):
    def test_one_tower_trains_and_evaluates(self):
        said = self._train("--device=gpu", "--num_epochs=20")
        self.assertIn("['/device:GPU:0']", said)
        self.assertGreater(self._accuracy(said), 0.95)

    @parameterized.parameters("cpu", "gpu")
    def test_four_towers_share_a_gpu(self, where):
        flags = (*_FOUR_LOGICAL, f"--local_parameter_device={where}")
        said = self._train(*flags, "--num_epochs=20")
        self.assertIn("'/device:GPU:3'", said)
        self.assertGreater(self._accuracy(said), 0.95)

    def test_a_checkpoint_goes_on(self):
        folder = self.create_tempdir().full_path
        flags = (*_FOUR_LOGICAL, f"--train_dir={folder}")
        self._train(*flags, "--num_batches=30", "--eval_at_end=false")
        said = self._train(*flags, "--num_epochs=20")
        self.assertIn("30", said)
        accuracy = self._accuracy(said)
        self.assertGreater(accuracy, 0.95)
        said = self._train("--eval", "--device=gpu", f"--train_dir={folder}")
        self.assertAlmostEqual(self._accuracy(said), accuracy, places=3)

    def test_nccl_needs_gpus_of_their_own(self):
        flags = ("--variable_update=replicated", "--all_reduce_spec=nccl")
        said = self._train(*_FOUR_LOGICAL, *flags, status=2)
        self.assertIn("nccl runs on GPU devices only", said)

    def test_more_than_there_are(self):
        said = self._train("--num_gpus=1024", status=2)
        self.assertIn("to split", said)

    def test_the_same_bits_in_every_run(self):
        values = []
        for _ in range(2):
            folder = self.create_tempdir().full_path
            self._train(
                *("--device=gpu", "--num_gpus=2", "--logical_gpus=2"),
                *("--model=resnet20", "--data_name=synthetic", "--batch_size=16"),
                *("--deterministic_ops", "--num_batches=20", f"--train_dir={folder}"),
            )
            reader = tf.train.load_checkpoint(folder)
            names = reader.get_variable_to_shape_map()
            values.append({name: np.array(reader.get_tensor(name)) for name in names})
        trainer.assert_same_bits(*values)


class WaysOnGpuTest(_OnGpus):
    """Every way that gradients meet variables runs, and learns."""

    @parameterized.parameters(
        *("pscpu", "psgpu", "tree", "xring#2", "rechd", "hierarchical", "collective")
    )
    def test_reductions(self, spec):
        flags = (f"--all_reduce_spec={spec}", "--check_replicas_every=5")
        self._learns("--variable_update=replicated", *flags)

    @parameterized.parameters(
        ("--cross_replica_sync=false", "--max_staleness=4"),
        ("--staged_vars",),
        ("--variable_update=replicated", "--variable_consistency=relaxed"),
        ("--variable_update=independent",),
        ("--variable_update=distributed_replicated",),
        ("--variable_update=replicated", "--gradient_repacking=4"),
        ("--compact_gradient_transfer", "--use_fp16"),
    )
    def test_update_modes(self, *flags):
        self._learns(*flags)

    @parameterized.parameters(
        ("--use_fp16", "--fp16_enable_auto_loss_scale", "--fp16_loss_scale=1e9"),
        ("--compute_dtype=bfloat16",),
        ("--accumulate_steps=2",),
        ("--steps_per_loop=10",),
        ("--xla",),
        ("--xla_compile",),
        ("--optimizer=lamb", "--init_learning_rate=0.01", "--gradient_clip_norm=1"),
    )
    def test_precision_and_compilation(self, *flags):
        self._learns(*flags)

    def _learns(self, *flags: str) -> None:
        flags = (*flags, "--num_epochs=20", "--eval_at_end")
        said = self._train(*_FOUR_LOGICAL, *flags)
        self.assertGreater(self._accuracy(said), 0.85)


class ModelsOnGpuTest(_OnGpus):
    @parameterized.parameters(
        ("resnet20", "--batch_norm=sync", "--data_format=NCHW", "--use_fp16"),
        ("resnet20", "--nobatchnorm_persistent", "--compute_dtype=bfloat16"),
        ("resnet20", "--num_stages=2", "--num_micro_batches=4", "--partition=flops"),
        ("alexnet", "--compute_dtype=bfloat16"),
        ("ncf", "--shard_embeddings=2"),
        ("lstm_lm", "--num_stages=2", "--num_micro_batches=2"),
        ("transformer_lm", "--num_stages=2", "--num_micro_batches=2"),
        ("transformer_lm", "--recompute=auto", "--optimizer=adamw"),
    )
    def test_models(self, model, *flags):
        said = self._train(
            *_FOUR_LOGICAL, f"--model={model}", "--batch_size=8", "--num_batches=5",
            "--data_name=synthetic", *flags,
        )  # fmt: skip
        self.assertIn("total ", said)


class AgreementOnGpuTest(_OnGpus):
    def test_towers_take_the_steps_of_one(self):
        _run(
            *("-m", "towers.verify", "--model=mlp", "--device=gpu", "--logical_gpus=4"),
            *("--num_towers=1,4", "--num_steps=3", "--pipelines=none"),
            *("--gradient_repacking=0", "--agg_small_grads_max_bytes=0"),
        )

    def test_nccl(self):
        count = _num_gpus()
        if count < 2:
            self.skipTest("NCCL needs two GPUs; there is one")
        _run("-c", _NCCL, str(count))
        _run(
            *("-m", "towers.verify", "--model=mlp", "--device=gpu"),
            *(f"--num_towers=1,{count}", "--num_steps=3", "--pipelines=none"),
            *("--variable_update=replicated", "--all_reduce_spec=nccl"),
        )
