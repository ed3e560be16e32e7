"""The main of tf_cnn_benchmarks' command line, in this process."""

import contextlib
import io
import logging
import os
import re
import runpy
import subprocess
import sys
from unittest import mock

from absl.testing import parameterized

from tests.processes.programs import ROOT
from towers import tf_cnn_benchmarks, train

_SHORT = (
    "--device=cpu --local_parameter_device=cpu --data_format=NHWC --num_gpus=2 "
    "--num_batches=2 --num_warmup_batches=1 --display_every=1 "
)


def _run_main(name, **options):
    """Does what `runpy` does, in a process that has other threads."""
    assert (name, options["run_name"]) == ("towers.train", "__main__")
    sys.exit(train.main())


class MainTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        library = logging.getLogger("tensorflow")
        self.addCleanup(library.setLevel, library.level)
        # Mains leave out its warnings about its own calls (`start.import_tensorflow`).
        library.setLevel(logging.ERROR)

    def _main(self, line):
        """Exit status, and the lines of both streams."""
        out, errors = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            with (
                mock.patch.dict(os.environ),
                mock.patch.object(sys, "argv", []),
                mock.patch.object(runpy, "run_module", _run_main),
            ):
                try:
                    status = tf_cnn_benchmarks.main(["program", *line.split()])
                except SystemExit as end:
                    status = end.code
        return status, out.getvalue().splitlines(), errors.getvalue().splitlines()

    @parameterized.parameters(
        "--model=lenet --batch_size=4",
        "--model=lenet --batch_size=4 --variable_update=replicated",
        "--model=lenet --batch_size=4 --optimizer=momentum",
        "--model=lenet --batch_size=4 --variable_update=independent",
        "--model=densenet40_k12 --data_name=cifar10 --batch_size=2",
        "--model=resnet20 --data_name=cifar10 --batch_size=2 --optimizer=rmsprop",
    )
    def test_it_trains_and_prints_what_their_parsers_read(self, line):
        status, lines, errors = self._main(_SHORT + line)
        self.assertEqual((status, errors), (0, []))
        self.assertRegex(lines[0], r"^TensorFlow:  2\.\d+$")
        self.assertEqual(lines[1], "Generating training model")
        header = dict(re.findall(r"^(\w[\w ]*): +(.*)$", "\n".join(lines), re.M))
        batch = 2 * int(re.search(r"batch_size=(\d)", line)[1])
        self.assertEqual(header["Batch size"], f"{batch} global")
        self.assertEqual(header["Num batches"], "2")
        self.assertEqual(header["Data format"], "NHWC")
        wanted = re.search(r"optimizer=(\w+)", line)
        self.assertEqual(header["Optimizer"], wanted[1] if wanted else "sgd")
        first = lines.index("Step\tImg/sec\ttotal_loss")
        self.assertEqual(lines[first - 2 : first], ["Running warm up", "Done warm up"])
        steps = [text.split("\t")[0] for text in lines[first + 1 : first + 3]]
        self.assertEqual(steps, ["1", "2"])
        self.assertRegex(lines[first + 4], r"^total images/sec: \d+\.\d\d$")

    def test_a_loss_that_is_no_number_does_not_end_the_run_as_there(self):
        line = "--model=lenet --batch_size=4 --init_learning_rate=1e30"
        status, lines, errors = self._main(_SHORT + line)
        self.assertEqual((status, errors), (0, []))
        self.assertTrue(any(text.endswith("\tnan") for text in lines), lines)

    def test_print_flags(self):
        status, [line], errors = self._main(
            "--print_flags --model=lenet --momentum=0.5"
        )
        self.assertEqual(status, 0)
        self.assertStartsWith(line, "python -m towers.train --model=lenet ")
        note = "note: --momentum has no effect: it needs --optimizer=momentum"
        self.assertEqual(errors, [note])

    @parameterized.parameters(
        ("--modle=lenet --trt_mode=FP16", 2),
        ("--model=lenett", 1),
        ("--distortions False", 1),
        ("--num_gpus=3 --gpu_indices=0,0,1 --device=cpu --data_format=NHWC", 2),
    )
    def test_a_mistake_is_a_sentence_and_status_2(self, line, count):
        status, lines, errors = self._main(line)
        self.assertEqual(status, 2)
        self.assertLessEqual(len(lines), 1)
        self.assertLen(errors, count)
        for error in errors:
            self.assertRegex(error, "^error: [^ ]+: ")

    def test_the_program_itself(self):
        program = [sys.executable, "-m", "towers.tf_cnn_benchmarks"]
        line = f"{_SHORT} --model=lenet --batch_size=4"
        run = subprocess.run(
            [*program, *line.split()], cwd=ROOT, capture_output=True, text=True
        )
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("\ntotal images/sec: ", run.stdout)

    def test_an_empty_value_is_as_if_the_flag_was_not_given(self):
        words = "--ps_hosts= --job_name= --trt_mode= --print_flags"
        self.assertEqual(self._main(words), self._main("--print_flags"))
