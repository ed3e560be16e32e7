"""A row of the tables: what is changed where, and which tests must fail then."""

import pathlib
from collections.abc import Iterable
from typing import NamedTuple


class Fault(NamedTuple):
    """One fault.

    Attributes:
      file: its path from the project's root.
      old: the text that it replaces, found once in the file.
      new: the text in its place.
      tests: words that each name tests, of which one must fail: `spec_test` all of
        tests/gradients/spec_test.py, `spec_test::test_order` those that begin so, which
        are all cases of a parameterized test.
      hangs: whether tests that do not end count as failed.
    """

    file: str
    old: str
    new: str
    tests: str
    hangs: bool = False

    def __str__(self) -> str:
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{self.file}: {old} -> {new or 'nothing'}"

    @property
    def test_files(self) -> list[str]:
        """Paths of the files that its tests are in."""
        stems = [word.partition("::")[0] for word in self.tests.split()]
        return sorted({f"tests/{stem}.py" for stem in stems})

    def chosen(self, collected: Iterable[str]) -> list[str]:
        """Those of pytest's names that its words mean.

        Args:
          collected: `tests/gradients/spec_test.py::SpecTest::test_order` and so on.

        Raises:
          ValueError: a word means none.
        """
        chosen_tests: dict[str, None] = {}  # in order
        for word in self.tests.split():
            stem, _, name = word.partition("::")
            named = [
                test
                for test in collected
                if test.startswith(f"tests/{stem}.py::")
                and test.rpartition("::")[2].startswith(name)
            ]
            if not named:
                raise ValueError(f"{self}: there is no test {word}")
            chosen_tests |= dict.fromkeys(named)
        return list(chosen_tests)

    def plant(self, root: pathlib.Path) -> str:
        """Puts it into a tree.

        Returns:
          the text of the file before.

        Raises:
          ValueError: the old text is not there once.
        """
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self}: the old text is there {count} times, not once")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")
        return text


def read(table: str) -> list[Fault]:
    """The faults of a table.

    Args:
      table: below the path of a file, which stands at the margin, the words of tests
        are indented; below those are the old lines, each after "-", and the new ones,
        after "+".  A word `test_order` is of the file's own test; `(hangs)` may follow.
    """
    faults: list[Fault] = []
    file, words, texts = "", "", ([], [])
    for line in [*table.splitlines(), ""]:
        if texts[1] and line[:1] != "+":
            old, new = ("\n".join(text) for text in texts)
            hangs = words.endswith(" (hangs)")
            faults.append(Fault(file, old, new, words.removesuffix(" (hangs)"), hangs))
            texts = ([], [])
        if line[:1] in ("-", "+") and line:
            texts["-+".index(line[0])].append(line[2:])
        elif line.startswith("  "):
            words = " ".join(_whole_name(file, word) for word in line.split())
        elif line and line[0] != "#":
            file = line
    return faults


def _whole_name(file: str, word: str) -> str:
    """A word of a table as `Fault.tests` has it."""
    if not word.startswith("test_"):
        return word
    folder, _, stem = file.removesuffix(".py").removeprefix("towers/").rpartition("/")
    stem = folder.rpartition("/")[2] if stem == "__init__" else stem
    return f"{folder}/{stem}_test::{word}".removeprefix("/")
