"""Limits on memory, read from folders like those that Linux has."""

import os
import subprocess
import sys
from unittest import mock

from absl.testing import absltest, parameterized

from tests.processes.programs import ROOT
from towers.errors import memory_limits

_MB = 10**6
_FOREVER = "9223372036854771712"  # how cgroups of version 1 spell that there is none

_STATUS = "Name:\tpython\nVmSize:\t 900 kB\nVmData:\t 90 kB\nRssAnon:\t   40 kB\n"
_MEMINFO = "MemTotal:  9000 kB\nMemAvailable:  700 kB\nSwapTotal:  300 kB\n"


class LimitsTest(parameterized.TestCase):
    def setUp(self):
        super().setUp()
        self.proc = self.create_tempdir().full_path
        self.mount = self.create_tempdir().full_path
        self._write(self.proc, "self/status", _STATUS)
        self._write(self.proc, "meminfo", _MEMINFO)
        if memory_limits.resource is not None:
            patch = mock.patch.object(memory_limits, "resource", None)
            patch.start()
            self.addCleanup(patch.stop)

    def _write(self, folder, name, text):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)

    def _group(self, name, **files):
        for file, text in files.items():
            self._write(self.mount, f"{name}/memory.{file}", f"{text}\n")

    def _in_group(self, line, *, root="/", kind="cgroup2", options="rw"):
        self._write(self.proc, "self/cgroup", f"{line}\n1:name=systemd:/elsewhere\n")
        mount = f"35 31 0:32 {root} {self.mount} rw,relatime shared:9 - {kind}"
        other = "30 1 0:2 / /proc rw - proc proc rw\n"
        self._write(self.proc, "self/mountinfo", f"{other}{mount} cgroup {options}\n")

    def _found(self):
        """Limits of cgroups: (file, bytes, or None for no such bound, bytes left)."""
        return [
            (
                os.path.relpath(limit.name.split(",")[0], self.mount),
                limit.most if limit.most < 2**50 else None,
                limit.left,
            )
            for limit in memory_limits.of_process(self.proc)
            if limit.name.startswith("/")
        ]

    # Memory beyond the limit: swap, less what the process already uses.
    _BESIDE = (300 - 40) * 1024

    def test_version_2_of_the_group_and_those_above(self):
        self._in_group("0::/a/b")
        self._group("a/b", max="max", high=3 * _MB, current=1 * _MB)
        self._group("a", max=4 * _MB, current=2 * _MB)
        self._write(
            self.mount,
            "a/memory.stat",
            f"anon 5\nactive_file {_MB // 4}\ninactive_file {_MB // 4}\n",
        )
        self.assertEqual(
            self._found(),
            [
                # The kernel slows a process above this limit down, and does not end it.
                ("a/b/memory.high", None, 2 * _MB),
                ("a/memory.max", 4 * _MB + self._BESIDE, int(2.5 * _MB)),
            ],
        )

    def test_version_1(self):
        self._in_group("4:cpu,memory:/jobs/7", kind="cgroup", options="rw,cpu,memory")
        self._group("jobs/7", limit_in_bytes=5 * _MB, usage_in_bytes=3 * _MB)
        self._group("jobs", limit_in_bytes=_FOREVER, usage_in_bytes=3 * _MB)
        self._write(
            self.mount, "jobs/7/memory.stat", f"cache 7\ntotal_active_file {_MB}\n"
        )
        self.assertEqual(
            self._found(),
            [("jobs/7/memory.limit_in_bytes", 5 * _MB + self._BESIDE, 3 * _MB)],
        )

    def test_other_kinds_of_version_1_say_nothing_of_memory(self):
        self._in_group("4:cpu:/jobs", kind="cgroup", options="rw,cpu")
        self._group("jobs", limit_in_bytes=5 * _MB, usage_in_bytes=3 * _MB)
        self.assertEmpty(self._found())

    @parameterized.parameters(
        ("/docker/12", "/docker/12"),  # the container's own group is mounted
        ("/docker/12", "/somewhere/else"),
        ("/", "/../other"),  # it was moved out of the namespace
    )
    def test_in_a_container(self, root, path):
        self._in_group(f"0::{path}", root=root)
        self._group(".", max=4 * _MB, current=1 * _MB)
        self.assertEqual(
            self._found(), [("memory.max", 4 * _MB + self._BESIDE, 3 * _MB)]
        )

    def test_a_machine_and_its_swap(self):
        (limit,) = memory_limits.of_process(self.proc)
        self.assertStartsWith(limit.name, "this machine, ")
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertEqual(limit.most, size + self._BESIDE)
        self.assertEqual(limit.left, 700 * 1024)

    def test_where_little_is_told(self):
        """As on macOS and Windows."""
        (limit,) = memory_limits.of_process(os.path.join(self.proc, "none"))
        self.assertEqual(limit.left, limit.most)
        with mock.patch.object(memory_limits.os, "sysconf", side_effect=ValueError):
            self.assertEmpty(memory_limits.of_process(os.path.join(self.proc, "none")))

    def test_the_tightest_comes_first(self):
        self._in_group("0::/a")
        self._group("a", max=4 * _MB, current=_MB)
        lefts = [limit.left for limit in memory_limits.of_process(self.proc)]
        self.assertEqual(lefts, sorted(lefts))
        self.assertLen(lefts, 2)


class UlimitTest(absltest.TestCase):
    def test_of_a_process(self):
        if memory_limits.resource is None:
            self.skipTest("this system has no ulimit")
        code = (
            "from towers.errors import memory_limits as m\n"
            "for limit in m.of_process(): print(limit.name, limit.most, sep='|')"
        )
        command = 'ulimit -v 2000000; ulimit -d 1000000; exec "$0" -c "$1"'
        printed = subprocess.check_output(
            ["sh", "-c", command, sys.executable, code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        )
        limits = dict(line.rsplit("|", 1) for line in printed.splitlines())
        self.assertBetween(
            int(limits["ulimit -v, 2.0 GB,"]), 1_500_000_000, 2_000_000 * 1024
        )
        self.assertBetween(
            int(limits["ulimit -d, 1.0 GB,"]), 800_000_000, 1_000_000 * 1024
        )
