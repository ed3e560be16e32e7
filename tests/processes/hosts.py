"""Two machines with names, on which real daemons of schedulers run.

They are network namespaces, each with a host name, and with process ids of its own
for what is switched on and off.  Making them takes root.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest
from collections.abc import Callable, Iterator, Mapping

from tests.processes import machines, programs

PATIENCE = programs.PATIENCE
_ADDRESSES = {"n0": machines.FIRST, "n1": machines.SECOND}
_NAMED = 'hostname "$0" && mount --bind "$1" /etc/hosts && shift && exec "$@"'
# What is started so ends with its first process, as with a machine's power.
_APART = ("--pid", "--fork", "--kill-child", "--mount-proc")


class Hosts:
    """The machines `n0` and `n1`.

    Args:
      folder: for their `/etc/hosts`.
      environment: of all commands, in addition to this process's own.

    Raises:
      OSError, subprocess.CalledProcessError: the system does not allow it.
    """

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str]):
        self._file = folder / "hosts"
        lines = [f"{address} {name}" for name, address in _ADDRESSES.items()]
        self._file.write_text("\n".join(["127.0.0.1 localhost", *lines, ""]))
        self._environment = {**os.environ, **environment}
        self._machines = machines.Machines(as_root=True)

    def _words(self, name: str, *apart: str) -> list[str]:
        namespaces = ["unshare", "--mount", "--uts", *apart]
        return [*namespaces, "sh", "-c", _NAMED, name, str(self._file)]

    def run(self, name: str, *command: str, **options) -> str:
        """Runs a command on a machine to its end; returns what it printed.

        Raises:
          subprocess.CalledProcessError: its status is not 0.
        """
        words = [*self._words(name), *command]
        options = {"env": self._environment, **options}
        return self._machines.run(_ADDRESSES[name], *words, **options)

    def start(self, name: str, *command: str, **options) -> subprocess.Popen:
        """Starts a daemon, whose children end with it; it writes its own log."""
        return self._machines.start(
            _ADDRESSES[name],
            *(*self._words(name, *_APART), *command),
            env=self._environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            **options,
        )

    def until(self, true: Callable[[], object], said: Callable[[], str] = str) -> None:
        """Waits until something is true.

        Raises:
          AssertionError: it does not become true; the message is what `said` returns.
        """
        until = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < until, said()
            time.sleep(0.3)

    def end(self) -> None:
        """Ends all that was started."""
        self._machines.end()


def need(*commands: str) -> None:
    """Skips the test where one of these programs is missing."""
    every = (*commands, "unshare", "nsenter", "ip")
    if missing := [name for name in every if shutil.which(name) is None]:
        raise unittest.SkipTest(f"no {', '.join(missing)} here")


def needed(
    folder: pathlib.Path, environment: Mapping[str, str], *, data_dir: str
) -> Hosts:
    """Two machines for the scripts of `deploy/`.

    Skips the test where there can be none.

    Args:
      folder: as `Hosts` has it.
      environment: variables beside those that the scripts' tasks need.
      data_dir: where TFDS keeps its data sets.
    """
    tasks = {
        "PYTHON": sys.executable,
        "PYTHONPATH": str(programs.ROOT),
        "TFDS_DATA_DIR": data_dir,
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    pair = None
    try:
        pair = Hosts(folder, {**tasks, **environment})
        # Daemons do it, and in the name space of another user it is forbidden.
        pair.run("n0", "setpriv", "--clear-groups", "true")
    except (OSError, subprocess.CalledProcessError) as error:
        if pair:
            pair.end()
        words = f"machines with names take root: {error}"
        raise unittest.SkipTest(words) from error
    return pair


def pids(train_dir: str, *words: str) -> Iterator[int]:
    """The running tasks of a run, those that have these flags."""
    wanted = {"towers.train", f"--train_dir={train_dir}", *words}
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            program, *flags = path.read_text().split("\0")
        except OSError:
            continue
        if "python" in program and wanted <= set(flags):
            yield int(path.parent.name)
