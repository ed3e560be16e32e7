"""Flags that several benchmarks share."""

import argparse
import contextlib
import importlib
import io
import os
import re
import sys
from unittest import mock

from absl.testing import parameterized

import benchmarks
from benchmarks.lib import cases, options
from tests.processes.programs import ROOT

# A benchmark, flags of which one has a value that makes no sense, and the sentence.
_WRONG = """
peers.bare_peer --num_devices=0 | 0 is not at least 1
chaos --kills=2 --seeds=3 | must be as many as --seeds
elastic --events=3 --seeds=2 | write 2 or 4
goodput --workers=3 --plot=x.svg | two numbers of --workers
mechanisms.checkpoints --rounds=0 | 0 is not at least 1
cluster_speed --case=lenet | a case is MODEL:TOWERSxBATCH
compare --max_others=nan | nan is not above 0
compare --resume | give --out
data_sources --rounds=0 | 0 is not at least 1
mechanisms.epoch_order --examples=0 | 0 is not at least 1
mechanisms.evaluation_memory --model=mpl | no such model; did you mean mlp
input --rounds=0 | 0 is not at least 1
peers.bare_input /d training 64 0 9 | 0 is not at least 1
lib.launch_tasks --tasks=ps:1,worker:1 --cwd=/no/such -- true | --cwd=/no/such: No such
lib.many_towers --model=gpt2_124m | reads no images
memory --timeout=-1 | -1 is not above 0
pipelines schedules --wait_ms=0 | 0 is not above 0
pipelines build --stages=0 | 0 is not at least 1
pipelines memory --batch_size=3 | --batch_size=3: is not a multiple of 8 micro-
pipelines balance --models=ncf | --models=ncf: reads pairs
reduce --specs=nccl | nccl runs on GPU devices only
same_steps --limit=0 | 0 is not above 0
scaling --python=/no/such | '/no/such' is no program
mechanisms.sharding --classes=-5 | -5 is not at least 1
single_gpu --num_batches=0 | 0 is not at least 1
startup --parts=models | give --tf_cnn_benchmarks
mechanisms.step_overhead --model=mpl | no such model; did you mean mlp
mechanisms.transport --settings=fast | 'fast'
peers.transport_peer --index=-1 | -1 is not at least 0
lib.two_machines --tasks=ps:1 -- true | --tasks=ps:1: needs a worker
lib.unequal_towers --slower=0 | 0 is not above 0
lib.waiting_towers --mode=replicatd | no replicatd, only parameter_server
"""
_WRONG = [line.split(" | ") for line in _WRONG.strip().splitlines()]
# Their packages may be absent; the flags of the first two are those of `peer`, and
# tested there, and other benchmarks call the others.
_WITH_PACKAGES_OF_THEIR_OWN = (
    *("peers.keras_peer", "peers.torch_peer", "peers.tf_cnn_peer"),
    *("peers.torch_input", "peers.tf_cnn_input", "peers.tf_cnn_pixels"),
    *("lib.disturbed_run", "lib.short_runs"),
)


def _of_the_docs() -> list[str]:
    """`NAME FLAGS` of each benchmark that a page names; `speed_chart` takes none."""
    commands = set()
    for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]:
        text = page.read_text(encoding="utf-8")
        flags = r"(?: \w+(?=  )| --?\w+(?:[= ][\w=,./]+)?)*"
        pattern = rf"python -m benchmarks\.((?:mechanisms\.)?\w+{flags})(?=[`\s])"
        commands.update(re.findall(pattern, text))
    return sorted(commands)


def _parsed(*arguments: str) -> argparse.Namespace:
    parser = options.parser_for("scaling", __doc__)
    parser.add_argument("--cases", type=options.list_of_cases, default="lenet:4x8")
    parser.add_argument("--rounds", type=options.positive, default=5)
    parser.add_argument("--seconds", type=options.above_0, default=0.3)
    parser.add_argument("--towers", type=options.positives, default="2,4")
    parser.add_argument("--warmup", type=options.natural, default=0)
    parser.add_argument("--out", type=options.writable)
    options.add_places(parser)
    return parser.parse_args(arguments)


class OptionsTest(parameterized.TestCase):
    def test_nothing_said(self):
        defaults = _parsed()
        self.assertEqual(
            (defaults.cases, defaults.rounds), ([cases.BenchmarkCase("lenet", 4, 8)], 5)
        )
        self.assertEqual(
            (defaults.seconds, defaults.towers, defaults.warmup), (0.3, [2, 4], 0)
        )
        where = options.places_of(defaults)
        self.assertEqual(where.tf_cnn_benchmarks, "")
        pythons = {where.python, where.torch_python, where.tf_cnn_python}
        self.assertEqual(pythons, {sys.executable})

    def test_interpreters_of_their_own(self):
        options_read = _parsed("--python=sh", "--tf_cnn_python=true")
        where = options.places_of(options_read, "/c")
        self.assertEqual(
            (where.python, where.torch_python, where.tf_cnn_python),
            ("sh", "/c", "true"),
        )

    def test_the_checkout_or_its_folder_of_scripts(self):
        checkout = self.create_tempdir()
        scripts = checkout.mkdir("scripts/tf_cnn_benchmarks")
        scripts.create_file("tf_cnn_benchmarks.py")
        for path in (checkout.full_path, os.path.relpath(scripts.full_path)):
            where = options.places_of(_parsed(f"--tf_cnn_benchmarks={path}"))
            self.assertEqual(where.tf_cnn_benchmarks, scripts.full_path)

    @parameterized.parameters(
        ("--tf_cnn_benchmarks=/no/such", "no tf_cnn_benchmarks.py in '/no/such'"),
        ("--rounds=0", "0 is not at least 1"),
        ("--rounds=x", "'x' is not a whole number"),
        ("--warmup=-1", "-1 is not at least 0"),
        ("--towers=1,0", "0 is not at least 1"),
        ("--towers=", "'' is not a whole number"),
        ("--seconds=0", "0 is not above 0"),
        ("--seconds=nan", "nan is not above 0 and finite"),
        ("--seconds=x", "'x' is not a number"),
        ("--python=/no/such", "'/no/such' is no program"),
        ("--tf_cnn_python=/no/such", "'/no/such' is no program"),
        ("--out=/no/such/file", "there is no folder /no/such"),
        ("--cases=lenet", "MODEL:TOWERSxBATCH"),
        ("--cases=lenet:1x2,lenet:1x2", "names a case twice"),
    )
    def test_bad_input_is_a_sentence(self, argument, sentence):
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as caught:
            _parsed(argument)
        self.assertEqual(caught.exception.code, 2)
        self.assertIn(sentence, said.getvalue())

    @parameterized.parameters(*_WRONG)
    def test_every_benchmark_has_a_sentence_for_its_user(self, line, sentence):
        name, *flags = line.split()
        main = importlib.import_module(f"benchmarks.{name}").main
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit) as caught:
            main(flags)
        self.assertEqual(caught.exception.code, 2)
        self.assertStartsWith(said.getvalue(), f"usage: python -m benchmarks.{name} ")
        self.assertRegex(said.getvalue(), f"{name}[a-z ]*: error: .*\n$")
        self.assertIn(sentence, said.getvalue())

    @parameterized.parameters(*_of_the_docs())
    def test_commands_of_the_docs_are_legal(self, command):
        """A flag that is not there is all that is wrong with them."""
        checkout = self.create_tempdir()
        checkout.create_file("tf_cnn_benchmarks.py")
        command = command.replace(" a.jpg", f" {__file__}")
        command = command.replace("=PATH", f"={checkout.full_path}")
        name, *flags = command.split()
        main = importlib.import_module(f"benchmarks.{name}").main
        said = io.StringIO()
        with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
            main([*flags, "--not_there"])
        self.assertEndsWith(said.getvalue(), "unrecognized arguments: --not_there\n")

    def test_one_list_of_all_commands(self):
        commands = re.compile(r"python -m benchmarks\.([\w.]+) .*")
        folder = ROOT / "benchmarks"
        top, mechanisms = (
            [
                f"{prefix}{path.stem}"
                for path in folder.glob(f"{inner}*.py")
                if path.stem != "__init__"
            ]
            for inner, prefix in (("", ""), ("mechanisms/", "mechanisms."))
        )
        self.assertLessEqual(len(top), 14)
        self.assertCountEqual(commands.findall(benchmarks.__doc__), [*top, *mechanisms])
        page = (ROOT / "docs/performance.md").read_text(encoding="utf-8")
        for match in commands.finditer(benchmarks.__doc__):
            self.assertIn(f"    {match[0]}\n", page)

    def test_a_folder_that_takes_nothing(self):
        said = io.StringIO()
        with mock.patch.object(os, "access", return_value=False):
            with contextlib.redirect_stderr(said), self.assertRaises(SystemExit):
                _parsed("--out=numbers")
        self.assertIn("nothing can be written in .\n", said.getvalue())

    def test_no_benchmark_is_left_out(self):
        folder = ROOT / "benchmarks"
        programs = [
            ".".join(path.relative_to(folder).with_suffix("").parts)
            for path in folder.rglob("*.py")
            if "\ndef main(" in path.read_text(encoding="utf-8")
        ]
        tried = {line.split()[0] for line, _ in _WRONG}
        self.assertCountEqual(programs, [*tried, *_WITH_PACKAGES_OF_THEIR_OWN])
