"""The rules of the project that ruff and mypy do not know, held by `ast`.

A rule is a function from the project's files to sentences, one for each place that
breaks it, which say what to do there.  A new rule is one function and one row in
`RULES`, with an example that the rule must find fault with.
"""

import ast
import graphlib
import pathlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from absl.testing import parameterized

from tests import other_systems
from tests.processes.programs import ROOT

SOURCE = ("flags", "models", "towers", "benchmarks")

# They may import everything; no file imports them.
MAINS = ("towers/train.py", "towers/verify.py")

# Files that run on Linux only, or nearly so.
OF_LINUX = (
    "tests/processes/machines.py",
    "tests/processes/programs.py",
    "towers/cluster/local_cluster.py",
    "towers/cluster/private_network.py",
)

# The folders and files of `towers/`; each imports from earlier ones only.
FLOORS = """
    errors membership_log layout cluster data checkpoints compute gradients optimizers
    variable_update pipelines options graph run_state callbacks evaluation/eval_settings
    planning session evaluation prepared membership rebalance run
    choices api verification start data/__main__ models predict command_line train
    tf_cnn_benchmarks
    verify
""".split()

# Folder -> the packages that its files may import, beside the standard library.
MAY_IMPORT = {
    "flags": {"absl", "flags"},
    "models": {"matplotlib", "models", "numpy", "tensorflow"},
    "towers": set(
        "flags models numpy pyarrow tensorflow tensorflow_datasets towers tqdm".split()
    ),
}

# Import name -> the name that pip installs it by, where they differ.
INSTALLED_AS = {
    "absl": "absl-py",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "tensorflow_datasets": "tensorflow-datasets",
}

# Files that define one public thing of another name, and why.
NAMED_OTHERWISE = {
    "flags/tf_cnn_benchmarks.py": "it is tables of that program's flags",
    "models/user_model.py": "`models.get` asks it for a model of the user's",
}

SAY_NOTHING = set("found got it made one own these".split())

MAX_FILE = 400  # lines
MAX_FUNCTION = 60  # lines, signature included, docstring not
MAX_BRANCHES = 12
MAX_PARAMETERS = 6
# The intent is "by keyword after two".  The strict form outlaws what the field passes
# by position, a layer's size and stride say; past four nobody remembers the order.
MAX_POSITIONAL = 4

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = Function | ast.ClassDef
BRANCHES = (
    ast.If,
    ast.IfExp,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.match_case,
)
MUTATORS = """
    add append clear discard extend insert pop popitem remove setdefault update
""".split()


class Project:
    """The project's files by path from its root, those of Python parsed."""

    def __init__(self, texts: Mapping[str, str]):
        self.texts = texts
        self.trees = {
            path: ast.parse(text, path)
            for path, text in sorted(texts.items())
            if path.endswith(".py")
        }

    @classmethod
    def read(cls, root: pathlib.Path) -> "Project":
        """The project that stands at `root`."""
        paths = [root / "pyproject.toml"]
        for folder in (*SOURCE, "tests"):
            paths += [*(root / folder).rglob("BUILD"), *(root / folder).rglob("*.py")]
        texts = {p.relative_to(root).as_posix(): p.read_text() for p in paths}
        # Bazel adds an empty `__init__.py` where a folder has none.
        return cls({path: text for path, text in texts.items() if text})

    def files(self, *folders: str) -> list[str]:
        """The Python files of these folders, and of the folders in them."""
        return [path for path in self.trees if path.split("/")[0] in folders]

    def packages(self) -> list[str]:
        """The folders of the source, each with a BUILD file of its own."""
        folders = {str(pathlib.PurePosixPath(path).parent) for path in self.texts}
        return sorted(f for f in folders if f.split("/")[0] in SOURCE)

    def nodes(self, *folders: str) -> Iterator[tuple[str, ast.AST]]:
        """Every node of those files, beside its file's path."""
        for path in self.files(*folders):
            for node in ast.walk(self.trees[path]):
                yield path, node

    def imports(self, path: str) -> Iterator[tuple[int, str]]:
        """The lines of a file that import, and what: `module` or `module.name`."""
        for node in ast.walk(self.trees[path]):
            if isinstance(node, ast.Import):
                yield from ((node.lineno, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                yield from ((node.lineno, f"{module}.{a.name}") for a in node.names)

    def imported_files(self, path: str) -> set[str]:
        """The project's files that a file imports."""
        files = {self.file_of(name) for _, name in self.imports(path)} - {path}
        return {file for file in files if file in self.trees}

    def file_of(self, name: str) -> str:
        """Where an imported name is, or would be were it the project's."""
        words = name.split(".")
        for end in range(len(words), 0, -1):
            path = "/".join(words[:end])
            for file in (f"{path}.py", f"{path}/__init__.py"):
                if file in self.trees:
                    return file
        return f"{words[0]}/__init__.py"


def import_direction(project: Project) -> Iterator[str]:
    """flags -> absl; models -> TensorFlow; towers -> both of them; main -> all."""
    for path in project.files(*MAY_IMPORT):
        may = MAY_IMPORT[path.split("/")[0]]
        for line, name in project.imports(path):
            top = name.split(".")[0]
            if path not in MAINS and top not in may | sys.stdlib_module_names:
                yield f"{path}:{line}: must not import {name}; hand over what it needs"


def benchmarks_are_imported_by_their_tests(project: Project) -> Iterator[str]:
    """What tests and benchmarks share is in `tests/processes/`."""
    for path in project.files(*SOURCE, "tests"):
        if path.startswith(("benchmarks/", "tests/benchmarks/")):
            continue
        for line, name in project.imports(path):
            if name.split(".")[0] == "benchmarks":
                yield f"{path}:{line}: imports {name}; move it to tests/processes/"


def imports_of_test_files(project: Project) -> Iterator[str]:
    """Bazel gives a test only the files that are no tests."""
    for path in project.files("tests"):
        for line, name in project.imports(path):
            if (other := project.file_of(name) or "").endswith("_test.py"):
                yield f"{path}:{line}: imports {other}; move what it needs to a file"


def main_is_imported_by_nobody(project: Project) -> Iterator[str]:
    """Tests aside, what two files need is in no main."""
    for path in project.files(*SOURCE):
        for line, name in project.imports(path):
            if (main := project.file_of(name)) in MAINS:
                yield f"{path}:{line}: imports {main}; move what it needs to a file"


def no_cycles(project: Project) -> Iterator[str]:
    """An order exists in which every file imports only files before it."""
    files = project.files(*SOURCE)
    try:
        graphlib.TopologicalSorter(
            {path: project.imported_files(path) for path in files}
        ).prepare()
    except graphlib.CycleError as error:
        cycle = " <- ".join(error.args[1])
        yield f"{error.args[1][0]}:1: imports in a circle: {cycle}; cut it"


def floors(project: Project) -> Iterator[str]:
    """A file of `towers/` imports from its own room and from the floors below."""
    for path in project.files("towers"):
        if (floor := _floor(path)) not in FLOORS:
            if floor != "__init__":
                yield f"{path}:1: {floor} has no floor; put it into FLOORS"
            continue
        below = FLOORS[: FLOORS.index(floor) + 1]
        for line, name in project.imports(path):
            file = project.file_of(name)
            if file.startswith("towers/") and _floor(file) not in (*below, "__init__"):
                yield f"{path}:{line}: {floor} stands below {_floor(file)}; move one"


def _floor(path: str) -> str:
    """The room of a file of `towers/`, or the file itself if it stands by itself."""
    file = path.removeprefix("towers/").removesuffix(".py")
    return file if file in FLOORS else file.split("/")[0]


def runs_on_other_systems(project: Project) -> Iterator[str]:
    """What Windows or macOS lack is asked for before it is used, by `hasattr` or `try`.

    What needs Linux as a whole says so to the user.
    """
    for path in project.files(*MAY_IMPORT):
        tree, asked = project.trees[path], set()
        if path in OF_LINUX:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Try):
                asked.update(inner for part in node.body for inner in ast.walk(part))
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "hasattr":
                asked.add(ast.unparse(node))
        for node in set(ast.walk(tree)) - asked:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [getattr(node, "module", None), *(a.name for a in node.names)]
                if lacking := set(names).intersection(other_systems.MODULES):
                    yield f"{path}:{node.lineno}: try to import {', '.join(lacking)}"
            elif isinstance(node, ast.Attribute):
                where, name = ast.unparse(node.value), node.attr
                known = f"hasattr({where}, '{name}')" in asked
                if name in other_systems.ATTRIBUTES.get(where, ()) and not known:
                    yield f"{path}:{node.lineno}: ask whether {where} has {name}"


def no_global_switches(project: Project) -> Iterator[str]:
    """Importing changes nothing in the process, and nothing switches TensorFlow, but
    where a run settles its process."""
    for path in project.files(*SOURCE):
        for node in project.trees[path].body:
            if isinstance(node, ast.Expr) and not isinstance(node.value, ast.Constant):
                yield f"{path}:{node.lineno}: runs at import; move it to a function"
    exempt = {
        node
        for path, function in project.nodes("towers")
        if isinstance(function, Function) and function.name == "settle_process"
        for node in ast.walk(function)
    }
    for path, node in project.nodes("flags", "models", "towers"):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if node in exempt:
            continue
        if re.match("(en|dis)able_", node.func.attr):
            yield f"{path}:{node.lineno}: {node.func.attr} switches the whole process"


def no_mutable_module_state(project: Project) -> Iterator[str]:
    """What a module holds is settled once it is imported."""
    for path in project.files(*SOURCE):
        held = set()
        for name, node in _module_names(project.trees[path]):
            held.add(name)
            alias = isinstance(node.value, ast.Attribute | ast.Name)
            if name.islower() and not alias and not name.startswith("__"):
                yield f"{path}:{node.lineno}: {name}: a constant is in CAPITALS"
        for node in ast.walk(project.trees[path]):
            if isinstance(node, ast.Global):
                yield f"{path}:{node.lineno}: no `global`: return it, or use a class"
            elif (name := _changed(node)) in held:
                yield f"{path}:{node.lineno}: changes {name}, which the module holds"


def _module_names(tree: ast.Module) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from ((t.id, node) for t in targets if isinstance(t, ast.Name))


def _changed(node: ast.AST) -> str | None:
    """`X` if the node is `X[...] = `, `X.name = `, `del X[...]` or `X.append()`."""
    if isinstance(node, ast.Subscript | ast.Attribute):
        changes = not isinstance(node.ctx, ast.Load)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func
        changes = node.attr in MUTATORS
    else:
        changes = False
    return node.value.id if changes and isinstance(node.value, ast.Name) else None


def devices_are_spelled_in_placement(project: Project) -> Iterator[str]:
    """One file makes device strings, and one their placeholders; a model says no word
    of devices."""
    spelled = [f"towers/layout/{stem}.py" for stem in ("placement", "placeholders")]
    for path, node in project.nodes("models", "towers"):
        if path in spelled:
            continue
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.match("/(job|replica|task|device|cpu|gpu):", node.value, re.I):
                yield f"{path}:{node.lineno}: ask placement.py for the device"
        elif isinstance(node, ast.Attribute) and path.startswith("models/"):
            if node.attr in ("device", "colocate_with", "control_dependencies"):
                yield f"{path}:{node.lineno}: tf.{node.attr} is not a model's business"


def sizes(project: Project) -> Iterator[str]:
    """Files and functions that fit on a page and in a head."""
    for path in project.files(*SOURCE):
        if (lines := project.texts[path].count("\n")) > MAX_FILE:
            yield f"{path}:{lines}: {lines} lines; split it, {MAX_FILE} at most"
    for path, node in project.nodes(*SOURCE):
        if isinstance(node, Function):
            for number, most, what in _measures(node):
                if number > most:
                    yield (
                        f"{path}:{node.lineno}: {node.name}: "
                        f"{number} {what}; {most} at most"
                    )


def _measures(function: Function) -> Iterator[tuple[int, int, str]]:
    """(how many, how many at most, of what) of a function."""
    docstring = ast.get_docstring(function, clean=False)
    lines = function.end_lineno - function.lineno + 1
    lines -= docstring.count("\n") + 1 if docstring else 0
    yield lines, MAX_FUNCTION, "lines"
    branches = sum(
        isinstance(node, BRANCHES) or len(getattr(node, "ifs", ()))
        for node in ast.walk(function)
    )
    yield branches, MAX_BRANCHES, "branches"
    arguments = function.args
    positional = [
        argument
        for argument in arguments.posonlyargs + arguments.args
        if argument.arg not in ("self", "cls")
    ]
    yield len(positional), MAX_POSITIONAL, "parameters by position"
    parameters = len(positional) + len(arguments.kwonlyargs)
    yield parameters, MAX_PARAMETERS, "parameters"


def names_say_something(project: Project) -> Iterator[str]:
    """No file for whatever found no place."""
    for path in project.files(*SOURCE, "tests"):
        if re.search(r"(?:^|[/_])(utils?|helpers?|misc|common)(_test)?\.py$", path):
            yield f"{path}:1: name it after what it does"


def files_are_named_by_what_they_define(project: Project) -> Iterator[str]:
    """A file that defines one public thing has a word of its name.

    A folder's base class is in its `base.py`, as in sonnet and tensorpack.
    """
    for path in project.files(*SOURCE):
        stem = path.removesuffix(".py").rpartition("/")[2]
        if path in NAMED_OTHERWISE or stem in ("__init__", "base"):
            continue
        names = {
            node.name
            for node in project.trees[path].body
            if isinstance(node, Definition) and not node.name.startswith("_")
        } - {"main", "program"}
        if len(names) == 1 and not _words(stem) & _words(name := names.pop()):
            yield f"{path}:1: defines {name} alone; name one after the other"


def _words(name: str) -> set[str]:
    """The words of a name, the first letters of each: plurals are the same words."""
    snake = re.sub("(?<=[a-z])(?=[A-Z])", "_", name).lower()
    return {word[:4] for word in snake.split("_")}


def variables_say_what_they_hold(project: Project) -> Iterator[str]:
    """No variable is called by a word that fits whatever it holds."""
    for path, node in project.nodes(*SOURCE, "tests"):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        else:
            name = node.arg if isinstance(node, ast.arg) else ""
        if name in SAY_NOTHING:
            yield f"{path}:{node.lineno}: {name}: name it by what it holds"


def class_names_are_unique(project: Project) -> Iterator[str]:
    """A public class has a name that no other class of the project has."""
    places = {}
    for path in project.files(*SOURCE):
        for node in project.trees[path].body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                if places.setdefault(node.name, path) != path:
                    first = places[node.name]
                    yield f"{path}:{node.lineno}: {first} has a {node.name}; rename one"


def every_file_is_tested(project: Project) -> Iterator[str]:
    """`tests/` has the folders of the source: tests/data/stream_test.py is that of
    towers/data/stream.py, and tests/models/models_test.py of models/__init__.py, which
    is that of each model, too."""
    swept = _without_rows(project, "models")
    for path in project.files(*SOURCE):
        folder, _, stem = path.removesuffix(".py").rpartition("/")
        if folder == "models" and stem in swept:
            continue
        if stem == "__init__" and not project.trees[path].body[1:]:
            continue
        place = pathlib.PurePosixPath("tests", folder.removeprefix("towers").strip("/"))
        name = folder.rpartition("/")[2] if stem == "__init__" else stem
        test = (place / f"{name}_test.py").as_posix()
        if test not in project.trees:
            yield f"{path}:1: has no {test}; write it"


def runs_under_both_runners(project: Project) -> Iterator[str]:
    """Bazel runs `tests/program.py` with a test's name, and without pytest."""
    for path in project.files("tests"):
        if not path.endswith("_test.py"):
            continue
        for node in project.trees[path].body:
            if isinstance(node, Function) and node.name.startswith("test"):
                yield f"{path}:{node.lineno}: {node.name}: put it into a TestCase"
            elif isinstance(node, ast.If) and "__main__" in ast.unparse(node.test):
                yield f"{path}:{node.lineno}: remove it: tests/program.py is the main"
        for line, name in project.imports(path):
            if name.split(".")[0] == "pytest":
                yield f"{path}:{line}: Bazel runs it without pytest; use absltest"


def root_is_found_once(project: Project) -> Iterator[str]:
    """One file of a top folder says where the project is, and the others ask it."""
    said = {}
    for path, node in project.nodes(*SOURCE, "tests"):
        if not isinstance(node, ast.Assign):
            continue
        words = re.findall(r"\w+", ast.unparse(node.value))
        ups = sum(words.count(word) for word in ("dirname", "parent", "parents"))
        if "__file__" not in words or (ups < 2 and "parents" not in words):
            continue
        if said.setdefault(path.split("/")[0], path) != path:
            where = said[path.split("/")[0]]
            yield f"{path}:{node.lineno}: {where} says where the project is; import it"


def benchmarks_check_numbers(project: Project) -> Iterator[str]:
    """Their flags are of `benchmarks.lib.options`, whose errors are sentences."""
    for path, node in project.nodes("benchmarks"):
        if path == "benchmarks/lib/options.py" or not isinstance(node, ast.Call):
            continue
        if ast.unparse(node.func).endswith("ArgumentParser"):
            yield f"{path}:{node.lineno}: make it by options.parser_for"
        for keyword in node.keywords:
            if keyword.arg == "type" and ast.unparse(keyword.value) in ("float", "int"):
                yield f"{path}:{node.lineno}: say which numbers make sense, by options"


def dependencies_are_declared(project: Project) -> Iterator[str]:
    """pyproject.toml names whatever is imported."""
    for path in project.files("flags", "models", "towers", "tests"):
        for line, name in project.imports(path):
            top = name.split(".")[0]
            if top in {*SOURCE, "tests"} | sys.stdlib_module_names:
                continue
            package = INSTALLED_AS.get(top, top)
            if f'"{package}>=' not in project.texts["pyproject.toml"]:
                yield f"{path}:{line}: imports {top}; name {package} in pyproject.toml"


def bazel_deps(project: Project) -> Iterator[str]:
    """The BUILD files list what the files import, so Bazel holds the rules again."""
    for folder in project.packages():
        build = f"{folder}/BUILD"
        wanted = _wanted_rows(project, folder)
        others = _argument(project.texts[build], "others")
        table = _argument(project.texts[build], "table") or "__init__"
        for name in _without_rows(project, folder):
            wanted[table] = [d for d in wanted[table] if d != f":{name}"]
            if not {*wanted.pop(name)} <= {*others}:
                yield f"{build}:1: {name} imports more than `others`: give it a row"
        for line, name, deps in _rows(project.texts[build]):
            if name not in wanted:
                yield f"{build}:{line}: remove {name}: no such file, or a second row"
            elif deps != (right := wanted.pop(name)):
                yield f"{build}:{line}: must be\n{_row(name, right)}"
        for name, deps in wanted.items():
            yield f"{build}:1: a row is missing:\n{_row(name, deps)}"
        inner = [
            p.split("/")[-1]
            for p in project.packages()
            if p.rpartition("/")[0] == folder
        ]
        if _argument(project.texts[build], "folders") != inner:
            yield f"{build}:1: the folders are {inner}"


def _wanted_rows(project: Project, package: str) -> dict[str, list[str]]:
    """File of a package, without `.py` -> the Bazel names of what it imports."""
    rows = {}
    for path in project.trees:
        folder, _, name = path.removesuffix(".py").rpartition("/")
        if folder == package:
            deps = [_label(file, package) for file in project.imported_files(path)]
            rows[name] = sorted(deps, key=lambda d: (d.startswith("//"), d))
    return rows


def bazel_options(project: Project) -> Iterator[str]:
    """Options of a test that is gone are gone."""
    builds = [path for path in project.texts if re.match("tests/(.*/)?BUILD", path)]
    for build in builds:
        folder = build.removesuffix("/BUILD")
        for line, name, _ in _rows(project.texts[build]):
            if f"{folder}/{name}.py" not in project.trees:
                yield f"{build}:{line}: remove the row of {name}, which is no test"
        inner = [
            p.split("/")[-2] for p in builds if p.split("/")[:-2] == folder.split("/")
        ]
        if sorted(_argument(project.texts[build], "folders")) != sorted(inner):
            yield f"{build}:1: the folders are {sorted(inner)}"


def _rows(build: str) -> Iterator[tuple[int, str, Any]]:
    """(line, key, value) of the table in a BUILD file: its last call's argument."""
    table = ast.parse(build).body[-1].value.args[0]
    for key, value in zip(table.keys, table.values):
        yield key.lineno, key.value, ast.literal_eval(value)


def _without_rows(project: Project, folder: str) -> list[str]:
    """Files of a folder that its BUILD file has no rows for, and need none."""
    build = project.texts.get(f"{folder}/BUILD", "")
    if not build or not _argument(build, "others"):
        return []
    listed = {name for _, name, _ in _rows(build)}
    return [name for name in _wanted_rows(project, folder) if name not in listed]


def _argument(build: str, name: str) -> Any:
    """What a BUILD file's last call gives as an argument; [] where it does not."""
    keywords = ast.parse(build).body[-1].value.keywords
    values = [ast.literal_eval(k.value) for k in keywords if k.arg == name]
    return values[0] if values else []


def _label(path: str, folder: str) -> str:
    """The Bazel name of a file for the targets of a folder."""
    package, _, name = path.removesuffix(".py").rpartition("/")
    return f":{name}" if package == folder else f"//{package}:{name}"


def _row(name: str, deps: list[str]) -> str:
    """A row as buildifier would leave it."""
    quoted = [f'"{label}"' for label in deps]
    if len(row := f'    "{name}": [{", ".join(quoted)}],') <= 88:
        return row
    return "\n".join([f'    "{name}": [', *(f"        {q}," for q in quoted), "    ],"])


Rule = Callable[[Project], Iterator[str]]
_MAIN_CALL = 'if __name__ == "__main__":\n    absltest.main()\n'

# Rule -> a project that breaks it, and where.
RULES: dict[Rule, tuple[dict[str, str], list[str]]] = {
    import_direction: (
        {
            "flags/a.py": "import absl.flags, re, tensorflow",
            "models/a.py": "import numpy\nfrom towers import b",
            "towers/a.py": "import flags, models\nfrom . import b\nfrom absl import x",
            "towers/train.py": "import flags, models",
            "towers/verify.py": "import flags, models",
            "benchmarks/a.py": "import flags, models, anything",
        },
        ["flags/a.py:1", "models/a.py:2", "towers/a.py:2", "towers/a.py:3"],
    ),
    benchmarks_are_imported_by_their_tests: (
        {
            "benchmarks/lib/b.py": "from benchmarks import a",
            "tests/a_test.py": "from benchmarks.lib import b",
            "tests/benchmarks/a_test.py": "from benchmarks import a",
            "towers/a.py": "import benchmarks.a",
        },
        ["tests/a_test.py:1", "towers/a.py:1"],
    ),
    imports_of_test_files: (
        {
            "tests/a_test.py": "",
            "tests/b.py": "",
            "tests/c_test.py": "from tests.a_test import A\nfrom tests import b",
        },
        ["tests/c_test.py:1"],
    ),
    main_is_imported_by_nobody: (
        {
            "towers/train.py": "",
            "towers/verify.py": "from towers import train",
            "benchmarks/a.py": "from towers import train\nimport towers.train",
            "towers/a.py": "from towers.verify import main",
            "tests/train_test.py": "from towers import train",
        },
        [
            "benchmarks/a.py:1",
            "benchmarks/a.py:2",
            "towers/a.py:1",
            "towers/verify.py:1",
        ],
    ),
    no_cycles: (
        {
            "towers/a.py": "from towers import b",
            "towers/b.py": "import towers.c",
            "towers/c.py": "from towers.a import name",
        },
        ["towers/a.py:1"],
    ),
    floors: (
        {
            "towers/data/a.py": "from towers.layout import b\nfrom towers import graph",
            "towers/graph.py": "import towers.data.a",
            "towers/layout/b.py": "from towers.layout import c\nimport towers.data.a",
            "towers/layout/c.py": "import towers",
            "towers/attic/d.py": "",
        },
        ["towers/attic/d.py:1", "towers/data/a.py:2", "towers/layout/b.py:2"],
    ),
    runs_on_other_systems: (
        {
            "models/a.py": "import os, fcntl\nfrom resource import getrusage\n"
            "try:\n    import fcntl\nexcept ImportError:\n    fcntl = None",
            "towers/a.py": "import os, signal\nos.getuid()\nsignal.SIGHUP\n"
            "if hasattr(os, 'sysconf'):\n    os.sysconf()",
            "towers/cluster/private_network.py": "import fcntl",
        },
        ["models/a.py:1", "models/a.py:2", "towers/a.py:2", "towers/a.py:3"],
    ),
    no_global_switches: (
        {
            "models/a.py": '"""Text."""\nregister()',
            "towers/a.py": "def f():\n    v1.disable_v2_behavior()",
            "towers/cluster/sessions.py": "def settle_process():\n"
            "    config.enable_x()\n"
            "def f():\n    config.enable_x()",
        },
        ["models/a.py:2", "towers/a.py:2", "towers/cluster/sessions.py:4"],
    ),
    no_mutable_module_state: (
        {
            "towers/a.py": "cache = {}\nSEEN = []\nv1 = tf.compat.v1\n"
            "def f(local):\n    local[0] = 1\n    SEEN[0] = 1\n    SEEN.append(1)\n"
            "    SEEN.name = 1\n    del SEEN[0]\n    global v1\n    return SEEN[0]"
        },
        [f"towers/a.py:{line}" for line in (1, 6, 7, 8, 9, 10)],
    ),
    devices_are_spelled_in_placement: (
        {
            "models/a.py": "with tf.device(d):\n    pass",
            "towers/a.py": '"""On `/cpu:0`."""\nx = f"/GPU:{i}"\ny = "/job:ps"',
            "towers/layout/placement.py": 'x = "/device:CPU:0"',
        },
        ["models/a.py:1", "towers/a.py:2", "towers/a.py:3"],
    ),
    sizes: (
        {
            "towers/a.py": "\n" * 401,
            "towers/b.py": "def f():\n    '''One.\n    Two.'''" + "\n    x" * 60,
            "towers/c.py": "def f():" + "\n    if x: pass" * 13,
            "towers/d.py": "class C:\n    def f(self, a, b, *, c, d, e, f, g): pass",
            "towers/e.py": "def f(a, b, c, d, e): pass",
            "towers/f.py": "def f(a, b, c, d, *rest, e, f, **names): pass",
        },
        [
            "towers/a.py:401",
            "towers/b.py:1",
            "towers/c.py:1",
            "towers/d.py:2",
            "towers/e.py:1",
        ],
    ),
    names_say_something: (
        {"towers/utils.py": "", "tests/test_util.py": "", "towers/futile.py": ""},
        ["tests/test_util.py:1", "towers/utils.py:1"],
    ),
    files_are_named_by_what_they_define: (
        {
            "towers/a/base.py": "class Gate: pass",
            "towers/kernels.py": "class KernelTable: pass\ndef main(): pass",
            "towers/many.py": "class A: pass\nclass B: pass",
            "towers/wide.py": "def narrow(): pass\ndef _wide(): pass",
        },
        ["towers/wide.py:1"],
    ),
    variables_say_what_they_hold: (
        {
            "tests/a_test.py": "def f(made, rows):\n    got = [one for one in rows]",
            "towers/a.py": "def g(self):\n    return [self.own for row in found]",
        },
        ["tests/a_test.py:1", "tests/a_test.py:2", "tests/a_test.py:2"],
    ),
    class_names_are_unique: (
        {
            "flags/a.py": "class Part: pass\nclass _Row: pass",
            "models/a.py": "class _Row: pass\nclass Row: pass",
            "towers/a.py": "class Piece: pass\nclass Part: pass",
        },
        ["towers/a.py:2"],
    ),
    every_file_is_tested: (
        {
            "flags/__init__.py": '"""Only words."""',
            "models/__init__.py": '"""Words."""\nX = 1',
            "models/a.py": "",
            "towers/a.py": "",
            "towers/data/b.py": "",
            "tests/a_test.py": "",
            "tests/data/b_test.py": "",
        },
        ["models/__init__.py:1", "models/a.py:1"],
    ),
    runs_under_both_runners: (
        {
            "tests/a_test.py": "import os\nclass ATest: pass",
            "tests/b_test.py": f"import pytest\ndef test(): pass\n{_MAIN_CALL}",
            "tests/conftest.py": _MAIN_CALL,
        },
        ["tests/b_test.py:2", "tests/b_test.py:3", "tests/b_test.py:1"],
    ),
    root_is_found_once: (
        {
            "towers/a.py": "R = Path(__file__).absolute().parents[1]",
            "towers/b/c.py": "D = Path(__file__).parent\nR = Path(__file__).parents[2]",
            "tests/a_test.py": "R = dirname(dirname(towers.__file__))",
            "tests/b_test.py": "def f():\n    r = Path(__file__).parent.parent / 'c'",
        },
        ["towers/b/c.py:2", "tests/b_test.py:2"],
    ),
    benchmarks_check_numbers: (
        {
            "benchmarks/a.py": "p = argparse.ArgumentParser()\np.add(type=positive)\n"
            "p.add('--n', type=int)\np.add('--x', type=float)",
            "benchmarks/lib/options.py": "p = argparse.ArgumentParser()",
        },
        [f"benchmarks/a.py:{n}" for n in (1, 3, 4)],
    ),
    dependencies_are_declared: (
        {
            "pyproject.toml": '"absl-py>=2.1"',
            "tests/a_test.py": "import os\nfrom absl import app\nfrom towers import b",
            "towers/a.py": "import tensorflow_datasets as tfds",
        },
        ["towers/a.py:1"],
    ),
    bazel_deps: (
        {
            "flags/BUILD": 'load("//:x")\npython_files({"a": [":c"],\n"a": [":b"]})',
            "flags/a.py": "from flags import b",
            "flags/b.py": "",
            "models/BUILD": 'python_files({"gone": []})',
            "towers/BUILD": "python_files({})",
            "towers/a.py": "import flags.a",
            "towers/b/BUILD": 'python_files({"c": ["//flags:a"]})',
            "towers/b/c.py": "import flags.a",
            "towers/d/BUILD": 'python_files({"__init__": [":e"], "e": []},\n'
            'others = [":e"])',
            "towers/d/__init__.py": "from towers.d import e, f, g",
            "towers/d/e.py": "",
            "towers/d/f.py": "from towers.d import e",
            "towers/d/g.py": "from towers.d import f",
            "towers/h/BUILD": 'python_files({"t": [], "b": []}, others = [":b"],\n'
            'table = "t")',
            "towers/h/b.py": "",
            "towers/h/m.py": "from towers.h import b",
            "towers/h/n.py": "from towers.h import b",
            "towers/h/t.py": "from towers.h import m",
            "towers/h/u.py": "from towers.h import n, t",
        },
        [f"flags/BUILD:{n}" for n in (1, 2, 3)]
        + ["models/BUILD:1"]
        + ["towers/BUILD:1"] * 2
        + ["towers/d/BUILD:1", "towers/h/BUILD:1"],
    ),
    bazel_options: (
        {
            "tests/BUILD": 'python_tests({"a_test": {}}, folders = ["c"])',
            "tests/b_test.py": "",
            "tests/c/BUILD": 'python_tests({"d_test": {}})',
            "tests/e/BUILD": "python_tests({})",
        },
        ["tests/BUILD:1", "tests/BUILD:1", "tests/c/BUILD:1"],
    ),
}

_ROWS = [(rule.__name__, rule) for rule in RULES]
_PROJECT = Project.read(ROOT)


class RulesTest(parameterized.TestCase):
    @parameterized.named_parameters(*_ROWS)
    def test_the_project_keeps(self, rule: Rule):
        problems = list(rule(_PROJECT))
        if problems:
            self.fail("\n".join([rule.__doc__.split("\n")[0], *problems]))

    @parameterized.named_parameters(*_ROWS)
    def test_finds_fault_with_its_example(self, rule: Rule):
        texts, places = RULES[rule]
        faults = list(rule(Project(texts)))
        self.assertCountEqual([line.split(": ")[0] for line in faults], places, faults)

    def test_every_rule_has_a_row(self):
        rules = {
            name
            for name, value in globals().items()
            if getattr(value, "__annotations__", {}).get("project") is Project
            and not name.startswith("_")
        }
        self.assertEqual(rules, {rule.__name__ for rule in RULES})

    def test_a_long_row_is_broken(self):
        self.assertEqual(_row("a", [":b", "//c:d"]), '    "a": [":b", "//c:d"],')
        self.assertEqual(
            _row("a", ["b" * 80]).splitlines()[1], f'        "{"b" * 80}",'
        )
