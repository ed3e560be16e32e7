"""The main job runs where Python has not all that it has on Linux.

What macOS and Windows lack is taken away from a process of this system, once the
libraries that know of these systems by themselves are imported.
"""

import os
import subprocess
import sys

from absl.testing import parameterized

from tests import digit_runs
from tests.processes.programs import ROOT

# Arguments: the system's name and a folder.  Prints the status of each run.
_PROGRAM = """
import builtins, io, os, sys
from towers import start
from tests import other_systems
start.import_tensorflow()
import tensorflow_datasets, tqdm
for reader in (tensorflow_datasets.core.utils, tensorflow_datasets.core.download):
    dir(reader)  # imports what it imports on first use

system, folder = sys.argv[1:]
if system == "win32":
    for name in other_systems.MODULES:
        sys.modules[name] = None
    for module, names in other_systems.ATTRIBUTES.items():
        for name in set(names) - {"statvfs"}:  # of which shutil makes use here
            vars(sys.modules[module]).pop(name, None)
else:
    sys.platform = system
    for name in [name for name in vars(os) if name.startswith("sched_")]:
        delattr(os, name)

def without_proc(known):
    def opened(path, *args, **kwargs):
        if str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", path)
        return known(path, *args, **kwargs)
    return opened

builtins.open, os.open = without_proc(open), without_proc(os.open)
io.open = builtins.open

from towers import train
small = "--model=tests.digit_runs:small_model --num_gpus=2 --device=cpu".split()
more = ["--num_batches=3", "--num_warmup_batches=0", f"--benchmark_log_dir={folder}"]
for flags in (
    [*small, *more, f"--train_dir={folder}/a", f"--trace_file={folder}/trace"],
    [*small, "--num_batches=5", f"--train_dir={folder}/a"],
    [*small, f"--train_dir={folder}/a", "--eval"],
    [*small, "--num_batches=5", "--local_cluster=worker:1"],
):
    if system == "win32" or "--local_cluster=worker:1" not in flags:
        print("status", train.main(["train", *flags]), flush=True)
"""


class OtherSystemsTest(parameterized.TestCase):
    @parameterized.parameters("win32", "darwin")
    def test_the_main_job(self, system):
        folder = self.create_tempdir().full_path
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, system, folder],
            cwd=ROOT,
            env={**os.environ, "TFDS_DATA_DIR": digit_runs.data_dir()},
            capture_output=True,
            text=True,
        )
        self.assertNotIn("Traceback", done.stderr)
        lines = done.stdout.splitlines()
        statuses = [line for line in lines if line.startswith("status")]
        wanted = ["status 0"] * 3 + ["status 2"] * (system == "win32")
        self.assertEqual(statuses, wanted, done.stderr)
        if system == "win32":
            self.assertIn("error: --local_cluster: needs Linux or macOS;", done.stderr)
