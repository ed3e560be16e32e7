"""Functions of the user's are found by module and by file, and run once."""

import importlib
import os
import sys
import types
from unittest import mock

from absl.testing import parameterized

from models import load

_FILE = """
import dataclasses
import beside_mine

@dataclasses.dataclass
class Kept:
    loads: "int" = 1

def tiny():
    return beside_mine.number
"""


class LoadTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.folder = self.create_tempdir().full_path
        self._write("mine.py", _FILE)
        self._write("beside_mine.py", "number = 7")
        # Forgets the loaded modules and the paths that were searched.
        self.enter_context(mock.patch.dict(sys.modules))
        sys.modules.pop("mine", None)  # of an earlier test
        self.enter_context(mock.patch.object(sys, "path", [*sys.path]))
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.folder)
        importlib.invalidate_caches()

    def _write(self, name: str, text: str) -> str:
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"{text}\n")
        return path

    @parameterized.parameters("{}/mine.py", "mine.py", "./mine.py", "~/mine.py")
    def test_a_file(self, path):
        with mock.patch.dict(os.environ, HOME=self.folder):
            tiny = load.load_function("model", f"{path.format(self.folder)}:tiny")
        self.assertEqual(tiny(), 7)

    def test_a_module(self):
        sys.path.insert(0, "")
        self._write("inside/theirs.py", _FILE)
        self.assertEqual(load.load_function("model", "inside.theirs:tiny")(), 7)

    def test_a_file_is_run_once(self):
        tiny = load.load_function("model", "mine.py:tiny")
        self.assertIs(
            load.load_function("data_name", f"{self.folder}/mine.py:tiny"), tiny
        )
        self.assertIs(load.load_function("model", "mine:tiny"), tiny)

    @parameterized.parameters("tensorflow", "models", "json", "not a name")
    def test_a_file_may_be_called_anything(self, stem):
        self._write(f"{stem}.py", _FILE)
        before = sys.modules.get(stem)
        tiny = load.load_function("model", f"{stem}.py:tiny")
        self.assertEqual(tiny(), 7)
        self.assertIs(load.load_function("model", f"./{stem}.py:tiny"), tiny)
        if before:
            self.assertIs(sys.modules[stem], before)

    def test_files_of_one_name(self):
        other = self._write("other/mine.py", "def tiny(): return 8")
        self.assertEqual(load.load_function("model", "mine.py:tiny")(), 7)
        self.assertEqual(load.load_function("model", f"{other}:tiny")(), 8)

    @parameterized.parameters(
        ("no_such_module:f", "cannot import 'no_such_module': .*No module named"),
        ("mine.py:tony", r"'mine.py' has no function 'tony'; did you mean tiny\?$"),
        ("mine.py:zzzz", "'mine.py' has no function 'zzzz'$"),
        ("beside_mine.py:number", "has no function 'number'$"),
        ("none.py:tiny", "there is no file /.*/none.py$"),
        ("./:tiny", "is no file of Python's; write path/to/file.py:function or"),
        ("./mine.txt:tiny", "mine.txt is no file of Python's; write"),
        ("mine.py:", "write path/to/file.py:function or package.module:function$"),
        (":tiny", "write path/to/file.py:function or package.module:function$"),
        (".mine:tiny", "write path/to/file.py:function or package.module:function$"),
        ("mine:tiny:er", "write path/to/file.py:function or package.module:function$"),
        ("models.mine:tiny", "'models' is a package of this project: give yours"),
        ("models:tiny", "'models' is a package of this project: give yours another"),
        ("flags.mine:tiny", "'flags' is a package of this project: give yours another"),
        ("towers.mine:tiny", "'towers' is a package of this project: give yours anoth"),
    )
    def test_refuses(self, name, sentence):
        with self.assertRaisesRegex(ValueError, f"^model={name}: .*{sentence}"):
            load.load_function("model", name)

    @parameterized.parameters(
        ("def tiny(:", r"cannot import .*: invalid syntax \(/.*/a_slip.py:1\)$"),
        ("1 / 0", r"ZeroDivisionError: division by zero \(/.*/a_slip.py:1\)$"),
        ("\ntiny", r"NameError: name 'tiny' is not defined \(/.*/a_slip.py:2\)$"),
        ("import nix", r"Error: No module named 'nix' \(/.*/a_slip.py:1\)$"),
        ("import sys; sys.exit(0)", r"SystemExit: 0 \(/.*/a_slip.py:1\)$"),
        (
            "from models.nix import f",
            r"named 'models.nix' \(.*a_slip.py:1\); 'models' is a package of this pr",
        ),
    )
    def test_a_file_that_cannot_be_imported(self, text, sentence):
        self._write("a_slip.py", text)
        sys.path.insert(0, self.folder)
        for name in ("a_slip.py:tiny", "a_slip:tiny", "a_slip.py:tiny"):
            with self.assertRaisesRegex(ValueError, f"^model={name}: .*{sentence}"):
                load.load_function("model", name)
        self.assertNotIn("a_slip", sys.modules)

    def test_no_function_is_offered_that_is_hidden_or_none(self):
        module = types.ModuleType("theirs")
        module._tiny, module.tinny = (lambda: 0), type
        sys.modules["theirs"] = module
        with self.assertRaisesRegex(ValueError, "has no function 'tiny'$"):
            load.load_function("model", "theirs:tiny")
