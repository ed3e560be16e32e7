"""How the mains import TensorFlow, in processes of their own."""

import importlib.util
import logging
import os
import pathlib
import platform
import subprocess
import sys
import unittest
from unittest import mock

import tensorflow as tf
from absl.testing import parameterized

from tests.processes.programs import ROOT
from towers import start

_NAMES = ("TF_CPP_MIN_LOG_LEVEL", "TF_ENABLE_ONEDNN_OPTS")

_PROGRAM = """
import logging, os, sys
from towers import start
start.import_tensorflow()
from towers import train
print({"keras", "tf_keras", "pyarrow"} & set(sys.modules))
from tensorflow.keras import initializers
print(initializers.HeNormal.__module__.split(".")[0])
import tensorflow as tf
print(initializers.HeNormal is tf.keras.initializers.HeNormal)
print(os.environ["TF_CPP_MIN_LOG_LEVEL"], os.environ.get("TF_ENABLE_ONEDNN_OPTS"))
class Said(logging.Handler):
    def emit(self, record):
        print(record.getMessage().split(":")[0])
logging.getLogger("tensorflow").addHandler(Said())
for name, file in ("remove_checkpoint", tf.__file__), ("checkpoint_exists", "here"):
    exec(compile(f"tf.compat.v1.train.{name}('none')", file, "exec"))
"""


_INTERRUPTED = """
import os, signal, sys
from towers import start
# The tests may run in the background, where shells have it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGTERM, signal.SIG_DFL)
sys.modules["tensorflow"] = os  # no matter what is imported
start.import_tensorflow()
number = getattr(signal, sys.argv[1])
if sys.argv[2:]:
    try:
        start.take_interrupts()
        os.kill(os.getpid(), number)
    except KeyboardInterrupt:
        sys.exit(7)
os.kill(os.getpid(), number)
"""


# Begins as a main; prints where it finds the project's packages and another one.
_SHADOWED = """
import importlib.util, os, sys
from towers import start
assert "tensorflow" not in sys.modules  # which is to be imported by `start`
sys.modules["tensorflow"] = os
start.import_tensorflow()
for name in ("flags", "models", "tests"):
    print(os.path.dirname(importlib.util.find_spec(name).origin or ""))
"""


# Begins as a main that a shell has started in the background.
_IGNORING = """
import os, signal, sys
from towers import start
from towers.errors import terminal
sys.modules["tensorflow"] = os
start.import_tensorflow()
os.kill(os.getpid(), signal.SIGINT)
start.take_interrupts()
os.kill(os.getpid(), signal.SIGINT)
print([number.name for number in terminal.heeded()])
"""


# As a user other than root, for whom the limit does not hold.
_FEW_THREADS = """
import os, resource, sys
from towers import start
sys.modules["tensorflow"] = os
if not os.getuid():
    os.setuid(54321)
resource.setrlimit(resource.RLIMIT_NPROC, (8, 8))
start.import_tensorflow()
"""

# Prints and creates the path of its argument.
_PATH = """
import os, sys
from towers import start
sys.modules["tensorflow"] = os
start.import_tensorflow()
print(sys.argv[1], flush=True)
os.mkdir(sys.argv[1].encode())
os.rmdir(sys.argv[1])
"""


# What `pip install` makes of `towers-train`.
_SCRIPT = """
import sys
from towers.start import train
sys.exit(train())
"""


_CLOSED = """
import os, sys
from towers import start
sys.modules["tensorflow"] = os
start.import_tensorflow()
with open(sys.argv[1], "w") as file:
    print("lost")
    print("lost", file=sys.stderr, flush=True)
    os.write(2, b"lost")
    file.write(f"{sys.stdin.read()}{file.fileno() > 2}")
"""


class StartTest(parameterized.TestCase, tf.test.TestCase):
    def test_keras_comes_when_it_is_used(self):
        state = self._run(dict(zip(_NAMES, ("3", "0"))))
        self.assertEqual(state[:3], ["set()", "keras", "True"])
        # What is set stays; and only what callers can mend is warned of.
        self.assertEqual(state[3:], ["3 0", "From here"])

    @unittest.skipUnless(importlib.util.find_spec("tf_keras"), "no tf-keras here")
    def test_legacy_keras_comes_when_it_is_asked_for(self):
        state = self._run({"TF_USE_LEGACY_KERAS": "1"})
        self.assertEqual(state[:3], ["set()", "tf_keras", "True"])

    @parameterized.parameters(("x86_64", "1"), ("AMD64", "1"), ("aarch64", None))
    def test_onednn_is_on_where_it_was_measured(self, machine, wanted):
        modules = {"tensorflow": os}  # what is imported does not matter
        with (
            mock.patch.dict(os.environ),
            mock.patch.dict(sys.modules, modules),
            mock.patch.object(logging.getLogger("tensorflow"), "filters", []),
            mock.patch.object(platform, "machine", return_value=machine),
        ):
            os.environ.pop("TF_ENABLE_ONEDNN_OPTS", None)
            start.import_tensorflow()
            start.take_interrupts()
            self.assertEqual(os.environ.get("TF_ENABLE_ONEDNN_OPTS"), wanted)

    @parameterized.parameters(
        (["SIGINT"], 130, "Stopped by SIGINT: nothing was begun; the same .*\n"),
        (["SIGTERM"], 143, "Stopped by SIGTERM: nothing was begun; the same .*\n"),
        (["SIGINT", "taken"], 7, ""),
        (["SIGTERM", "taken"], -15, ""),
    )
    def test_a_signal_is_a_sentence(self, taken, status, said):
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", _INTERRUPTED, *taken],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, status)
        self.assertRegex(done.stderr, f"^{said}$")

    @parameterized.parameters("{}/", "{}/__init__.py", "{}.py", "{}/more/__init__.py")
    def test_what_the_user_has_does_not_hide_the_project(self, shadow):
        folder = self.create_tempdir().full_path
        for name in ("flags", "models", "tests"):
            path = os.path.join(folder, shadow.format(name))
            os.makedirs(os.path.dirname(path), exist_ok=True)
            if path.endswith(".py"):
                pathlib.Path(path).touch()
        path = os.pathsep.join([folder, *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", _SHADOWED],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            check=True,
        )
        flags, models, others = done.stdout.splitlines()
        self.assertEqual((flags, models), (str(ROOT / "flags"), str(ROOT / "models")))
        # the script's folder comes first, as always
        if shadow in ("{}/__init__.py", "{}.py"):
            self.assertTrue(others.startswith(folder), others)

    def test_the_script_is_the_main(self):
        """With the current folder on its path, where that of a script is not."""
        folder = self.create_tempdir().full_path
        pathlib.Path(folder, "mine.py").write_text("tiny = None\n")
        words = [sys.executable, self.create_tempfile(content=_SCRIPT).full_path]
        path = os.pathsep.join(filter(None, sys.path))
        flag = "--model=mine:tiny"
        done = subprocess.run(
            [*words, flag, "--check_flags"],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 2)
        said = done.stderr.splitlines()[-1]
        self.assertEqual(said, f"error: {flag}: 'mine' has no function 'tiny'")

    def test_a_limit_on_threads_is_a_sentence(self):
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", _FEW_THREADS],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        if "OSError" in done.stderr:
            self.skipTest(f"this root may not be another user: {done.stderr}")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(
            done.stderr, r"^error: only \d more threads can be started, .*\n$"
        )

    @parameterized.parameters(
        ({"LC_ALL": "C", "PYTHONUTF8": "0"}, "é"),
        ({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}, r"\xe9"),
        ({"PYTHONIOENCODING": "ascii:strict"}, r"\xe9"),
        ({"LC_ALL": "C.UTF-8"}, "é"),
    )
    def test_a_path_is_utf_8_and_is_printed(self, settings, shown):
        folder = self.create_tempdir().full_path
        done = subprocess.run(
            [sys.executable, "-c", _PATH, f"{folder}/caf\u00e9".encode()],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PYTHON")},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                **settings,
            },
            capture_output=True,
        )
        self.assertEqual(done.stderr.decode(), "")
        self.assertEqual(done.stdout.decode(), f"{folder}/caf{shown}\n")

    def test_an_interrupt_that_is_ignored_stays_so(self):
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            ["sh", "-c", 'trap "" INT; exec "$@"', "", sys.executable, "-c", _IGNORING],
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("SIGINT", done.stdout)
        self.assertIn("SIGTERM", done.stdout)

    @parameterized.parameters(">&-", "2>&-", "<&- >&- 2>&-", "")
    def test_no_file_takes_the_place_of_a_closed_stream(self, closed):
        file = self.create_tempfile().full_path
        path = os.pathsep.join(filter(None, sys.path))
        subprocess.run(
            [
                "sh",
                "-c",
                f'exec "$@" {closed}',
                "",
                sys.executable,
                "-c",
                _CLOSED,
                file,
            ],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )
        with open(file) as written:
            self.assertEqual(written.read(), "True")

    def _run(self, settings: dict[str, str]) -> list[str]:
        names = (*_NAMES, "TF_USE_LEGACY_KERAS")
        left = {k: v for k, v in os.environ.items() if k not in names}
        path = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**left, "PYTHONPATH": path, **settings},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.splitlines()
