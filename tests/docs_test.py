"""README.md and docs/: links lead to something; commands and snippets run."""

import contextlib
import io
import os
import pathlib
import re
import shlex
import sys
from unittest import mock

import numpy as np
import tensorflow as tf
from absl.testing import parameterized

from flags import config, parse
from tests import digit_runs
from tests.processes.programs import ROOT
from towers import command_line, train, verify
from towers.choices import CHOICES as ALL_CHOICES
from towers.data import from_files

_PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("deploy/*.md")]
)

# Flags of other programs that the pages name.
_OTHERS = {
    *("all", "changed", "check", "dist", "help", "helpfull", "logdir", "only"),
    *("flagfile", "tf_cnn_python", "large", "only_large"),
    *("seconds", "picture", "slower", "slow_worker"),
    *("cases", "parts", "rounds", "systems", "images", "towers"),  # flags of benchmarks
    *("same_command", "resume", "out", "ends", "preprocessing", "spread"),
    *("plot", "straggling", "from", "events", "seeds"),
    *("plain_gradients", "step_by_step", "official_models", "max_others"),
    *("tf_cnn_benchmarks", "settings", "estimates"),
    *("distortions", "single", "index", "port"),
    *("tasks", "gpus_per_worker", "conf"),  # of deploy/
    *("no", "nodes", "array", "replicas", "type"),  # of schedulers; --no-kill
    "mount",  # of unshare
    "processes",  # gone; the changelog names it
}

# Words that stand for what a reader puts in their place.
_PLACEHOLDERS = ("DIR", "RUN", "PATH", "FOLDER", "...", "path/to")
# `tests/cluster/local_cluster_test.py` runs such clusters, `PicturesTest` draws graphs.
_NOT_HERE = ("--local_parameter_device=gpu", "--local_cluster", "--graph_file")


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _commands() -> list[tuple[str, str]]:
    """(page, arguments) of each `python -m towers.train` in an indented block."""
    commands = []
    for page in _PAGES:
        joined = _text(page).replace("\\\n", " ")
        for line in re.findall(r"^    .*python -m towers\.train(.*)$", joined, re.M):
            arguments = re.split(r" #|;", line)[0]
            commands.append((page, " ".join(arguments.split())))
    return commands


def _short_runs() -> list[str]:
    """Commands that need nothing of the reader's, with few steps of small models."""
    runs = set()
    for _, arguments in _commands():
        if any(mark in arguments for mark in (*_PLACEHOLDERS, *_NOT_HERE)):
            continue
        arguments = re.sub(r"--num_(warmup_)?(batches|epochs)=\S+", "", arguments)
        arguments = re.sub(r"--model=(resnet|gpt2)\S+", "--model=lenet", arguments)
        if not arguments.count("--device="):
            arguments += " --device=cpu"
        runs.add(" ".join(arguments.split()))
    return sorted(runs)


def _snippets(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", _text(page), re.DOTALL)


class LinksTest(parameterized.TestCase):
    @parameterized.parameters(*_PAGES)
    def test_lead_to_a_file(self, page):
        folder = (ROOT / page).parent
        for target in re.findall(r"\]\(([^)#]+)", _text(page)):
            if "://" not in target:
                self.assertTrue((folder / target).exists(), f"{page}: {target}")

    @parameterized.parameters(*_PAGES)
    def test_source_files_that_are_named_are_there(self, page):
        pattern = r"`((?:towers|models|flags|tests|benchmarks|deploy)/[\w/.]+\.\w+)`"
        for path in re.findall(pattern, _text(page)):
            self.assertTrue((ROOT / path).exists(), f"{page}: {path}")

    def test_every_term_of_the_glossary_is_there_once_with_its_place(self):
        row = r"^\| (.*?) \| .*? \| (.*?) \|"
        rows = re.findall(row, _text("docs/glossary.md"), re.MULTILINE)
        terms = [term for row in rows[1:] for term in row[0].split(", ")]
        self.assertCountEqual(terms, set(terms))
        for term, places in rows[1:]:
            paths = re.findall(r"`(.+?)`", places)
            self.assertNotEmpty(paths, term)
            for path in paths:
                self.assertTrue((ROOT / path).exists(), f"{term}: {path}")

    def test_every_page_is_reached_from_the_readme(self):
        reached, left = {"README.md"}, ["README.md"]
        while left:
            page = left.pop()
            for target in re.findall(r"\]\(([^)#]+\.md)", _text(page)):
                path = os.path.normpath(os.path.join(os.path.dirname(page), target))
                if path not in reached:
                    reached.add(path)
                    left.append(path)
        self.assertContainsSubset(_PAGES, reached)


class CommandsTest(parameterized.TestCase):
    @parameterized.parameters(*_commands())
    def test_is_legal(self, page, arguments):
        words = [word for word in shlex.split(arguments) if word != "..."]
        parse.parse(["train", *words], command_line.CHOICES)
        if "--local_cluster" not in arguments:  # `test_runs` finds what a run refuses
            return
        with (
            contextlib.redirect_stdout(io.StringIO()) as printed,
            contextlib.redirect_stderr(io.StringIO()) as errors,
        ):
            status = train.main(["train", *words, "--check_flags"])
        self.assertEqual(status, 0, f"{page}: {arguments}: {errors.getvalue()}")
        self.assertIn("legal", printed.getvalue())

    @parameterized.parameters(*_short_runs())
    def test_runs(self, arguments):
        folder, before = self.create_tempdir().full_path, os.getcwd()
        os.chdir(folder)
        self.addCleanup(os.chdir, before)
        arguments = arguments.replace("=examples/", f"={ROOT}/examples/")
        words = [*arguments.split(), "--num_batches=2", "--num_warmup_batches=0"]
        with (
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}),
            contextlib.redirect_stdout(io.StringIO()) as lines,
        ):
            self.assertEqual(train.main(["train", *words]), 0, lines.getvalue())

    @parameterized.parameters(*_PAGES)
    def test_modules_that_are_run_are_there(self, page):
        folders = "towers|tests|flags|benchmarks"
        for module in re.findall(rf"python -m ((?:{folders})[\w.]+)", _text(page)):
            path = ROOT / module.replace(".", "/")
            file = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
            self.assertTrue(file.exists(), f"{page}: {module}")

    @parameterized.parameters(*_PAGES)
    def test_flags_that_are_named_are_there(self, page):
        flags = {flag for kind in config.KINDS for flag in config.all_flags(kind)}
        for name, rest in re.findall(r"(?<![\w-])--(?:no)?(\w+)(\*?)", _text(page)):
            if rest:  # --eval_during_training_*
                continue
            known = {name, f"no{name}"} & (flags | _OTHERS)
            self.assertTrue(known, f"{page}: there is no --{name}")


# `towers.verify` with the fewest cases and steps.
_FEW_CASES = (
    *("--device=cpu", "--num_towers=1,2", "--batch_size=4", "--num_steps=1"),
    *("--variable_update=parameter_server", "--pipelines=none", "--num_shards=1"),
    *("--accumulate_steps=1", "--compact_gradient_transfer=float32"),
)


def _everywhere(pattern: str) -> list[tuple[str, ...]]:
    """(page, *groups) of each match of a pattern, in blocks and in sentences."""
    matches = []
    for page in _PAGES:
        for match in re.finditer(pattern, _text(page).replace("\\\n", " ")):
            matches.append((page, *match.groups()))
    return matches


class OtherCommandsTest(parameterized.TestCase):
    """Commands besides `towers.train`; `options_test` has those of benchmarks."""

    @parameterized.parameters(
        *_everywhere(r"python -m towers\.(verify|predict)((?: --[\w.=:,/]+)*)")
    )
    def test_other_mains_are_legal(self, page, main, flags):
        kind = {"verify": config.VerifyConfig, "predict": config.PredictConfig}[main]
        choices = verify.CHOICES
        if main == "predict":  # so that the module does not take the place of the call
            flags_of_main = config.all_flags(kind)
            choices = {k: v for k, v in ALL_CHOICES.items() if k in flags_of_main}
        if flags:
            parse.parse([main, *flags.split()], choices, kind)

    def test_a_comparison_runs(self):
        (flags,) = {
            flags for _, flags in _everywhere(r"    python -m towers\.verify(.*)")
        }
        with contextlib.redirect_stdout(io.StringIO()) as lines:
            status = verify.main(["verify", *flags.split(), *_FEW_CASES])
        self.assertEqual(status, 0, lines.getvalue())
        self.assertRegex(lines.getvalue(), "3 of 3 agree with one tower")

    @parameterized.parameters(
        *_everywhere(r"pip install (?:-e )?'?(?:towers|\.)\[(\w+)\]")
    )
    def test_extras_are_there(self, page, extra):
        extras = _text("pyproject.toml").partition("[project.optional-dependencies]")[2]
        extras = extras.partition("\n[")[0]
        self.assertRegex(extras, rf"(?m)^{extra} = \[", page)

    @parameterized.parameters(*_everywhere(r"bazel (?:test|run) //([\w/]*):(\w+)"))
    def test_targets_of_bazel_are_there(self, page, folder, target):
        build = ROOT / folder / "BUILD"
        named = f'name = "{target}"' in build.read_text(encoding="utf-8")
        self.assertTrue(named or (build.parent / f"{target}.py").exists(), page)

    @parameterized.parameters(*_everywhere(r"pytest (tests/\S+)(?: -k (\w+))?"))
    def test_tests_are_there(self, page, file, word):
        self.assertRegex(_text(file), rf"def test_\w*{word or ''}", page)

    @parameterized.parameters(*_everywhere(r"python (examples/\S+\.py)"))
    def test_examples_are_there(self, page, file):
        self.assertTrue((ROOT / file).exists(), page)


class PicturesTest(tf.test.TestCase):
    def test_the_graph_is_as_its_command_draws_it(self):
        [arguments] = re.findall(
            r"towers\.train (.*--graph_file=\S+)", _text("README.md")
        )
        folder = self.create_tempdir().full_path
        flags = arguments.replace("docs/images", folder).split()
        with (
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": folder}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self.assertEqual(train.main(["train", *flags]), 0)
        pictures = [pathlib.Path(folder, "graph.svg"), ROOT / "docs/images/graph.svg"]
        drawn, committed = map(_labels, pictures)
        self.assertContainsSubset(["input", "tower_3", "update"], drawn)
        self.assertEqual(drawn, committed, arguments)


def _labels(picture: pathlib.Path) -> list[str]:
    """The texts of a picture, with 0 for each number, as the code changes some."""
    texts = re.findall(r"<text[^>]*>([^<]*)<", picture.read_text(encoding="utf-8"))
    return [re.sub(r"(?<!\w)[\d.]+", "0", text) for text in texts]


class SnippetsTest(tf.test.TestCase):
    def test_a_model_of_your_own(self):
        source, _, _ = _snippets("docs/models.md")
        self.assertLessEqual(len(source.splitlines()), 30)
        lines = self._trained("mine", source, "tiny")
        accuracy = re.search(r"Accuracy @ 1 = ([\d.]+)", lines).group(1)
        self.assertGreater(float(accuracy), 0.9)

    def test_any_inputs_and_labels(self):
        _, source, _ = _snippets("docs/models.md")
        lines = self._trained("prices", source, "net", "--num_batches=10")
        self.assertIn("total examples/sec", lines)

    def test_a_state_from_step_to_step(self):
        _, _, source = _snippets("docs/models.md")
        flags = ["--num_batches=20", "--eval_at_end", "--num_eval_batches=4"]
        lines = self._trained("letters", source, "letters", *flags)
        self.assertRegex(lines, r"bits_per_character = \d")

    def test_callbacks(self):
        [source] = _snippets("docs/callbacks.md")
        folder = self.create_tempdir()
        path = folder.create_file("mine.py", source).full_path
        train_dir = os.path.join(folder, "run")
        flags = ["--num_batches=20", "--eval_during_training_every_n_steps=10"]
        flags += ["--model=mlp", "--device=cpu", "--num_gpus=2"]
        flags += [f"--train_dir={train_dir}", f"--callbacks={path}:callbacks"]
        with (
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": digit_runs.data_dir()}),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            self.assertEqual(train.main(["train", *flags]), 0)
        with open(os.path.join(train_dir, "log.csv")) as file:
            self.assertLen(file.readlines(), 7)  # a title, 3 steps, 3 evaluations
        self.assertTrue(os.path.exists(os.path.join(train_dir, "best", "checkpoint")))

    def test_metrics(self):
        [source] = _snippets("docs/evaluation.md")
        flags = ["--num_batches=10", "--num_warmup_batches=0", "--eval_at_end"]
        folder = self.create_tempdir().full_path
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        lines = self._trained("softmax", source, "softmax", "--train_dir=run", *flags)
        self.assertRegex(lines, r"accuracy = .* mean_iou = .* auc_of_3 = \d")
        files = {name for name in os.listdir("run/eval") if "events" not in name}
        self.assertEqual(files, {"confusion-10.png", "roc_of_3-10.png", "sums-10.npz"})

    def _trained(self, module: str, source: str, function: str, *flags: str) -> str:
        """What a training of the model on four towers prints."""
        folder = self.create_tempdir().full_path
        pathlib.Path(folder, f"{module}.py").write_text(source, encoding="utf-8")
        model = f"--model={module}:{function}"
        with (
            mock.patch.object(sys, "path", [folder, *sys.path]),
            mock.patch.dict(os.environ, {"TFDS_DATA_DIR": folder}),
            contextlib.redirect_stdout(io.StringIO()) as lines,
        ):
            sys.modules.pop(module, None)  # another test may have one of this name
            arguments = ["train", model, "--num_gpus=4", "--device=cpu", *flags]
            self.assertEqual(train.main(arguments), 0)
        return lines.getvalue()

    def test_from_python(self):
        in_one_call, source = _snippets("docs/python_api.md")
        folder = self.create_tempdir().full_path
        in_one_call = in_one_call.replace('"run"', repr(folder))
        with contextlib.redirect_stdout(io.StringIO()) as lines:
            exec(in_one_call, {})
        self.assertRegex(lines.getvalue(), r"\(512, 1001\)\n$")
        source = source.replace("placement.local(4)", "placement.local(4, kind='cpu')")
        with contextlib.redirect_stdout(io.StringIO()) as lines:
            exec(source, {})
        self.assertRegex(lines.getvalue(), r"\[(np\.int64\()?20")

    def test_data_of_your_own(self):
        arrays, files, tables = _snippets("docs/data.md")
        names = {"tf": tf, "np": np}
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.create_tempdir().full_path)
        table = np.ones((6, 5), np.float32)
        image = np.zeros((6, 8, 8, 1), np.uint8)
        np.savez("train.npz", image=image, table=table, price=table[:, 0])
        exec(arrays, names)
        self.assertEqual(names["data"]("train").num_examples, 6)
        lines = ["area,rooms,city,price", "70,3,Bern,5", ",2,Basel,4"]
        pathlib.Path("train.csv").write_text("\n".join(lines), encoding="utf-8")
        exec(tables, names)
        self.assertEqual(names["homes"]("train").num_examples, 2)
        for name, encode in (("a.jpg", tf.io.encode_jpeg), ("a.png", tf.io.encode_png)):
            tf.io.write_file(name, encode(np.zeros((9, 9, 3), np.uint8)))
        exec(files, names)
        examples = from_files(["a.jpg"], names["parse"], augment=names["augment"])
        self.assertEqual(examples.num_examples, 1)
        self.assertEqual(examples.specs[0].shape, [128, 128, 3])

    def test_the_readme_is_short(self):
        self.assertLessEqual(len(_text("README.md").splitlines()), 200)
