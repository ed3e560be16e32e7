"""unshare --mount python -m tests.deploy.image_steps --model=lenet --num_batches=3

Takes the steps of `deploy/Dockerfile` where no container runtime is, as root, and gives
the words above to the entry point.  The base image's place is taken by this machine's
programs and by the Python that runs this, in a virtual environment of its own.  The
packages that this Python has count as installed; others come from pip's index.
"""

import json
import os
import pathlib
import re
import shutil
import string
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence

from tests.processes.programs import ROOT

# What is in the base image.  The mounts are of a namespace that ends with this process.
_BASE = """
set -e
mount -t tmpfs none "$0"
for path in /*; do
  case $path in
    /tmp | /run) mkdir -m 1777 "$0$path"; mount -t tmpfs -o mode=1777 none "$0$path" ;;
    /dev | /proc | /sys) mkdir "$0$path"; mount --rbind "$path" "$0$path" ;;
    *)
      if [ -L "$path" ]; then
        cp -P "$path" "$0$path"
      elif [ -d "$path" ]; then
        mkdir "$0$path"
        mount -o bind,ro "$path" "$0$path"
      fi ;;
  esac
done
mount -t tmpfs none "$0/usr/local"
mkdir "$0/python" "$0/packages"
mount -o bind,ro "$1" "$0/python"
mount -o bind,ro "$2" "$0/packages"
chroot "$0" "/python/bin/$3" -m venv /usr/local
"""
_READ_ONLY = 'mount -o remount,ro "$0" && mount -o remount,ro "$0/usr/local"'


def steps(text: str) -> Iterator[tuple[str, str]]:
    """(instruction, its words) of each step of a Dockerfile."""
    text = re.sub(r"(?m)^\s*#.*\n", "", text).replace("\\\n", " ")
    for line in filter(None, map(str.strip, text.splitlines())):
        instruction, _, words = line.partition(" ")
        yield instruction.upper(), words.strip()


class Image:
    """A root file system on which the steps are taken.

    Args:
      folder: an empty one, for it.
      given: values of `ARG`, which replace the file's.
    """

    def __init__(self, folder: pathlib.Path, given: Mapping[str, str]):
        self._root = folder
        self._work, self._user = "/", "0:0"
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": "/root",
            "LD_LIBRARY_PATH": "/python/lib",  # of this Python, not of the machine's
            # Where packages come from.
            **{k: v for k, v in os.environ.items() if k.startswith("PIP_")},
            **given,
        }
        places = sys.base_prefix, sysconfig.get_path("purelib")
        python = os.path.basename(os.path.realpath(sys.executable))
        self._shell(_BASE, *places, python)
        (packages,) = folder.glob("usr/local/lib/python*/site-packages")
        (packages / "base.pth").write_text("/packages\n")

    def _shell(self, script: str, *words: str) -> None:
        command = ["bash", "-c", script, str(self._root), *words]
        subprocess.run(command, check=True)

    def take(self, instruction: str, words: str) -> None:
        """Takes a step.

        Raises:
          NotImplementedError: it is one that the file did not have before.
        """
        if instruction != "RUN":
            words = string.Template(words).substitute(self._environment)
        if instruction == "ARG":
            name, _, value = words.partition("=")
            self._environment.setdefault(name, value)
        elif instruction == "ENV":
            self._environment |= dict(word.split("=", 1) for word in words.split())
        elif instruction == "WORKDIR":
            self._work = os.path.join(self._work, words)
            self._inside(self._work).mkdir(parents=True, exist_ok=True)
        elif instruction == "COPY":
            *sources, place = words.split()
            self._copy(sources, self._inside(os.path.join(self._work, place)))
        elif instruction == "RUN":
            self.run("sh", "-c", words)
        elif instruction == "USER":
            self._user = words
        elif instruction != "FROM":
            raise NotImplementedError(instruction)

    def _inside(self, path: str) -> pathlib.Path:
        return self._root / path.lstrip("/")

    def _copy(self, sources: Sequence[str], place: pathlib.Path) -> None:
        for source in sources:
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, place, dirs_exist_ok=True)
            else:
                shutil.copy(ROOT / source, place)

    def run(self, *command: str) -> None:
        """Runs a command as the user of the last step.

        Raises:
          subprocess.CalledProcessError: it fails.
        """
        user, group = self._user.split(":")
        rights = ["--clear-groups", "--no-new-privs", "--inh-caps=-all"]
        subprocess.run(
            [
                *("chroot", str(self._root), "setpriv", *rights),
                *(f"--reuid={user}", f"--regid={group}"),
                *("env", "-i", f"--chdir={self._work}"),
                *(f"{name}={value}" for name, value in self._environment.items()),
                *command,
            ],
            check=True,
        )

    def freeze(self) -> None:
        """Makes all but /tmp read-only, as the manifests do."""
        self._shell(_READ_ONLY)


def main(arguments: Sequence[str], given: Mapping[str, str]) -> int:
    """Builds the image and runs it.

    Args:
      arguments: for the entry point.
      given: values of `ARG`.

    Returns:
      the exit status of the first command that fails, or 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            image = Image(pathlib.Path(folder), given)
            entry: list[str] = []
            for instruction, words in steps((ROOT / "deploy/Dockerfile").read_text()):
                print(f"== {instruction} {words}", flush=True)
                if instruction == "ENTRYPOINT":
                    entry = json.loads(words)
                else:
                    image.take(instruction, words)
            image.freeze()
            image.run(*entry, *arguments)
        except subprocess.CalledProcessError as error:
            return error.returncode
        finally:
            subprocess.run(["umount", "--recursive", folder], check=False)
    return 0


if __name__ == "__main__":
    # CUDA is not among the packages that tests need.
    sys.exit(main(sys.argv[1:], {"EXTRAS": ""}))
