"""The command `towers.verify`, from its flags to its exit status."""

import contextlib
import io
import os
import subprocess
import sys
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from flags import config
from models.model import Model
from tests import faulty_modes, flag_lines, trainer
from towers import planning, verify
from towers.variable_update import modes

_OWN = "--model=tests.verify_test:own"
_NORMED = "--model=tests.verify_test:normed"
_SMALL = (
    "--accumulate_steps=1",
    "--compact_gradient_transfer=float32",
    "--pipelines=none",
    "--num_shards=1",
    "--device=cpu",
    "--num_towers=1,2",
    "--batch_size=4",
    "--num_steps=2",
)

_REFUSED = flag_lines.table("""
--num_towers=0
 must be at least 1
--variable_update=replicate
 no such
--model=lenett
 no such model
--all_reduce_spec=pscpu,ring
--all_reduce_spec=ring: at character 1
--num_towers=2,3 --batch_size=3
 2 towers cannot
--device=gpu
--num_towers=4: 4 GPUs asked for, but
--num_stages=2,3
 own is a chain of 2 blocks; write 2
--num_micro_batches=3 --num_towers=1,2
 must divide every tower's batch, 8 and 4; write some of 1,2,4
--schedule=fifo
 no such schedule
--pipelines=none --num_stages=2
--num_stages=2: does not go with --pipelines=none
--compact_gradient_transfer=float16 --optimizer=adam
 a rounded gradient may turn a step of adam by any amount; write --optimizer=sgd or \
momentum
--logical_gpus=2 --device=cpu
 does not go with --device=cpu
--train_dir=d
--train_dir: is a flag of python -m towers.train
--num_gpus=2
--num_gpus: is a flag of python -m towers.train
--noeval
--eval: is a flag of python -m towers.train
stray
 stray argument
--variable_update=independent --all_reduce_spec=tree
--all_reduce_spec=tree: needs replicated or relaxed in --variable_update
""")


def own() -> Model:
    """A user's model."""
    return trainer.dense_model("own")


def normed() -> Model:
    """Two blocks, each with batch norm."""

    def stem(x, nn):
        return nn.batch_norm(nn.conv(x, 3, 3, use_bias=False))

    def head(x, nn):
        x = nn.batch_norm(nn.conv(x, 3, 3, use_bias=False), activation=tf.nn.relu)
        return nn.dense(nn.flatten(x), nn.num_classes)

    return trainer.model_of(stem, head, name="normed")


def unchained() -> Model:
    """A block that reads what an earlier one did not hand on."""
    kept = {}

    def first(x, nn):
        kept["x"] = nn.flatten(x)
        return nn.dense(kept["x"], 4, activation=tf.nn.tanh)

    def last(x, nn):
        return nn.dense(tf.concat([x, kept["x"]], 1), nn.num_classes)

    return trainer.model_of(first, last, name="unchained")


def rectified() -> Model:
    """Logits that are no dense layer's."""

    def logits(x, nn):
        return nn.dense(nn.flatten(x), nn.num_classes, activation=tf.nn.relu)

    return trainer.model_of(logits, name="rectified")


def broken() -> Model:
    """A block that fits no data."""

    def first(x, nn):
        return tf.reshape(nn.flatten(x), [7, 7])

    return trainer.model_of(first, name="broken")


def _run(*arguments: str) -> tuple[int, list[str], list[str]]:
    """Exit status, lines printed, and lines of errors."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = verify.main(["verify", *arguments])
    return status, out.getvalue().splitlines(), err.getvalue().splitlines()


class VerifyTest(parameterized.TestCase):
    def test_the_process_is_settled_before_data_is_read(self):
        calls = mock.Mock()
        with (
            mock.patch.object(verify, "settle_process", calls.settle),
            mock.patch.object(planning, "make", calls.make),
        ):
            calls.make.side_effect = ValueError("no data")
            self.assertEqual(verify.main(["verify", _OWN, *_SMALL]), 2)
        self.assertEqual([call[0] for call in calls.mock_calls], ["settle", "make"])

    def test_the_command(self):
        flags = ["--all_reduce_spec=xring", "--gradient_repacking=3"]
        flags += ["--agg_small_grads_max_bytes=64"]
        flags += ["--variable_update=replicated", "--data_name=digits"]
        command = [sys.executable, "-m", "towers.verify", *_SMALL, *flags]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        heading, names, *rows, last = done.stdout.splitlines()
        self.assertStartsWith(heading, "lenet on digits")
        self.assertStartsWith(names, "variable_update ")
        self.assertLen(rows, 3)
        self.assertRegex(rows[1], r"^replicated +xring, 3 packs +2 .* agrees$")
        self.assertEqual(last, "3 of 3 agree with one tower to 1e-05")

    def test_batch_norm_over_all_towers(self):
        flags = ["--variable_update=independent", "--batch_norm=sync"]
        status, _, errors = _run(_OWN, *_SMALL, "--batch_norm=sync")
        self.assertEqual(status, 2)
        self.assertStartsWith(
            errors[0], "error: --batch_norm=sync: own has no batch no"
        )
        status, _, errors = _run(_NORMED, *_SMALL, *flags)
        self.assertEqual(status, 2)
        self.assertStartsWith(errors[0], "error: --batch_norm=sync: the towers of ind")
        flags = ["--variable_update=parameter_server,staged"]
        flags.append("--batch_norm=sync_micro_batch")
        status, lines, errors = _run(_NORMED, *_SMALL, *flags, "--accumulate_steps=1,2")
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(lines[-1], "9 of 9 agree with one tower to 1e-05")

    def test_batch_norm_over_whole_batches_of_pipelines(self):
        flags = ["--variable_update=parameter_server", "--pipelines=pairs"]
        flags += ["--num_stages=2", "--num_micro_batches=1,2", "--batch_norm=sync"]
        status, lines, errors = _run(*_SMALL, _NORMED, *flags)
        self.assertEqual((status, errors), (0, []))
        self.assertRegex("\n".join(lines), r"gpipe K=2 M=2.* 2 .*agrees")
        self.assertNotRegex("\n".join(lines), r"1f1b K=2 M=2|\d rounds")
        status, _, errors = _run(_OWN, *_SMALL, *flags, "--accumulate_steps=2")
        self.assertEqual(status, 2)
        self.assertRegex(errors[0], "accumulate_steps=2: does not go with --batch_no")

    def test_a_users_own_model_and_a_mode_that_sums(self):
        flags = [_OWN, *_SMALL, "--all_reduce_spec=tree", "--gradient_repacking=0"]
        flags += ["--agg_small_grads_max_bytes=0", "--optimizer=sgd"]
        status, lines, errors = _run(*flags)
        self.assertEqual((status, errors), (0, []))
        once = len(modes.VARIABLE_UPDATES)
        updates = modes.VARIABLE_UPDATES.values()
        factored = [m for m in updates if m.exact and "sufficient_factors" in m.reads]
        twice = once + len(factored)  # these also train with whole gradients
        count = once + twice
        self.assertEqual(lines[-1], f"{count} of {count} agree with one tower to 1e-05")
        faulty = {"replicated": faulty_modes.Sums}
        with mock.patch.dict(modes.VARIABLE_UPDATES, faulty):
            mode = "--variable_update=replicated"
            status, lines, errors = _run(*flags, "--num_towers=2", mode)
        self.assertEqual((status, errors), (1, []))
        self.assertEqual(
            lines[-1],
            "0 of 1 agree with one tower to 1e-05; "
            "replicated (tree) with 2 towers differs from step 1 on, first in "
            "hidden/dense/kernel; --variable_update=replicated: with "
            "--all_reduce_spec=tree, gradients of 1 in all of 2 towers moved "
            "probe/vector_29 by -2 in step 1, not by -1: that is their sum, not their "
            "mean",
        )

    def test_shards(self):
        small = [flag for flag in _SMALL if "shards" not in flag]
        small += ["--all_reduce_spec=tree", "--gradient_repacking=0"]
        small += ["--agg_small_grads_max_bytes=0"]
        modes = "--variable_update=parameter_server,replicated"
        flags = ["--model=tests.embedding_models:untied", *small]
        status, lines, errors = _run(*flags, modes)
        self.assertEqual((status, errors), (0, []))
        second = lines[1].index("reduction")
        ways = {" ".join(line[second:].split()[:-5]) for line in lines[2:-1]}
        self.assertEqual(
            {way for way in ways if " over " in way},
            {"classes over 2", "rows over 2", "classes and rows over 2"},
        )
        self.assertStartsWith(lines[-1], f"{len(lines) - 3} of {len(lines) - 3} agree")
        # A model that cannot be spread is left out, unless it is asked for.
        flags = ["--model=tests.verify_test:rectified", *small, modes]
        status, lines, errors = _run(*flags)
        self.assertEqual((status, lines[-1][:6], errors), (0, "5 of 5", []))
        self.assertEqual(
            lines[1:3],
            [
                "left out: --shard_classifier=2: the last block of rectified does not "
                "end with a dense layer",
                "left out: --shard_embeddings=2: no block of rectified looks up rows "
                "by nn.embedding",
            ],
        )
        status, lines, errors = _run(*flags, "--num_shards=3")
        self.assertEqual((status, lines), (2, []))
        self.assertRegex(errors[0], "--shard_classifier=3: the last block of rectified")

    def test_pipelines_and_gradients_in_16_bits(self):
        small = [flag for flag in _SMALL if "pipelines" not in flag]
        flags = ["--variable_update=replicated", "--all_reduce_spec=tree"]
        flags += ["--gradient_repacking=0", "--agg_small_grads_max_bytes=0"]
        flags += ["--num_micro_batches=2", "--schedule=gpipe", "--recompute=none,block"]
        flags += ["--compact_gradient_transfer=float16", "--optimizer=momentum"]
        status, lines, errors = _run(_OWN, *small, *flags)
        self.assertEqual((status, errors), (0, []))
        self.assertEqual(
            lines[1],
            "left out: --num_stages=4: more than the model has blocks, or the machine "
            "devices",
        )
        table = "\n".join(lines)
        self.assertRegex(table, r"tree, float16 .* agrees \(bound 2e-03\)\n")
        self.assertRegex(table, r"gpipe K=1 M=2 +1 .* agrees\n")
        self.assertEqual(
            lines[-1],
            "8 of 8 agree with one tower to 1e-05, 1 of them to the rounding of 16 "
            "bits",
        )
        status, lines, errors = _run(_OWN, *small, *flags, "--pipelines=all")
        self.assertEqual((status, errors), (0, []))
        self.assertStartsWith(lines[-1], "11 of 11 agree")

    def test_a_block_that_fails_is_told_once(self):
        small = [f for f in _SMALL if "pipelines" not in f and "shards" not in f]
        status, lines, errors = _run("--model=tests.verify_test:broken", *small)
        self.assertEqual((status, lines), (2, []))
        (error,) = errors
        self.assertStartsWith(error, "error: block 'first' on (8, ")

    def test_what_a_model_or_optimizer_is_not_made_for_is_left_out(self):
        small = [f for f in _SMALL if "pipelines" not in f and "float32" not in f]
        flags = ["--model=tests.verify_test:unchained", *small]
        flags += ["--variable_update=parameter_server", "--optimizer=adam"]
        status, lines, errors = _run(*flags)
        self.assertEqual((status, errors), (0, []))
        self.assertStartsWith(
            lines[1], "left out: --compact_gradient_transfer: a rounded gradient may"
        )
        self.assertStartsWith(lines[2], "left out: --pipelines: ")
        self.assertIn("the model cannot be cut between the two; return", lines[2])
        self.assertEqual(lines[-1], "3 of 3 agree with one tower to 1e-05")
        for asked in ("--pipelines=all", "--num_stages=2"):
            status, lines, errors = _run(*flags, asked)
            self.assertEqual((status, lines), (2, []))
            self.assertIn("return the tensor from every block", errors[0])

    @parameterized.parameters(*_REFUSED)
    def test_bad_input_is_one_sentence_and_status_2(self, line, beginning):
        with mock.patch.object(tf.config, "list_physical_devices") as devices:
            devices.return_value = []
            status, lines, errors = _run(_OWN, *line.split())
        self.assertEqual((status, lines), (2, []))
        (error,) = errors
        self.assertStartsWith(error, f"error: {beginning}")

    def test_products_are_float32_on_gpus(self):
        settings = config.make(
            config.VerifyConfig, model=_OWN.split("=")[1], device="cpu"
        )
        self.assertFalse(verify._plan(settings).config.devices.tensor_float_32)

    def test_nobody_reads_the_help(self):
        """As in `python -m towers.verify --help | head -1`."""
        reader, writer = os.pipe()
        os.close(reader)
        with (
            open(writer, "w", buffering=1) as nobody,
            mock.patch.object(sys, "stdout", nobody),
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            self.assertEqual(verify.main(["verify", "--help"]), 141)
        self.assertEqual(errors.getvalue(), "")
