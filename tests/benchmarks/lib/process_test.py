"""Commands are run and timed, their lines are read, and none is left running."""

import os
import pathlib
import sys
import time

from absl.testing import absltest

from benchmarks.lib import process
from benchmarks.lib.process import Command, Finished


def _python(code: str, **options) -> Command:
    return Command([sys.executable, "-c", code], **options)


class ProcessTest(absltest.TestCase):
    def test_lines_come_with_their_time(self):
        finished = process.run(
            _python(
                "import sys, time\n"
                "print('early', flush=True)\n"
                "time.sleep(0.5)\n"
                "print('late', file=sys.stderr)"
            )
        )
        self.assertEqual([text for _, text in finished.lines], ["early", "late"])
        self.assertGreater(finished.when("late") - finished.when("ear"), 0.4)
        self.assertIsNone(finished.when("never"))
        self.assertGreaterEqual(finished.seconds, finished.when("late"))

    def test_cpu_seconds_are_those_of_the_command(self):
        finished = process.run(
            _python("import time\nwhile time.process_time() < 0.5: pass")
        )
        self.assertBetween(finished.cpu_seconds, 0.4, 60)
        if os.path.exists("/proc/stat"):
            self.assertGreaterEqual(finished.others, 0.0)

    def test_the_peak_is_that_of_each_command(self):
        """Measured from a small process, since that of the parent counts."""
        code = (
            "import sys\n"
            "from benchmarks.lib.process import Command, run\n"
            "for size in (200, 1):\n"
            "    code = f'import sys; x = bytearray({size} << 20); sys.exit(3)'\n"
            "    finished = run(Command([sys.executable, '-c', code]))\n"
            "    print(finished.status, finished.peak_bytes >> 20)\n"
        )
        lines = process.run(_python(code)).lines
        (first, large), (second, small) = (map(int, t.split()) for _, t in lines)
        self.assertEqual((first, second), (3, 3))
        self.assertBetween(large - small, 180, 215)

    def test_environment_and_directory(self):
        folder = self.create_tempdir().full_path
        command = _python(
            "import os; print(os.environ['A'], os.getcwd())", env={"A": "b"}, cwd=folder
        )
        self.assertEqual(process.run(command).lines[0][1], f"b {folder}")
        self.assertStartsWith(str(command), f"A=b {sys.executable} -c")

    def test_what_takes_too_long_is_killed_with_its_children(self):
        folder = pathlib.Path(self.create_tempdir().full_path)
        finished = process.run(
            _python(
                "import os, time\n"
                "child = os.fork()\n"
                f"child and open({str(folder / 'child')!r}, 'w').write(str(child))\n"
                "time.sleep(60)"
            ),
            timeout=1.0,
        )
        self.assertLess(finished.status, 0)
        self.assertRegex(finished.complaint, r"no end after \d+ s")
        child = pathlib.Path(f"/proc/{(folder / 'child').read_text()}/cmdline")
        for _ in range(50):  # until init has reaped the killed orphan
            if not child.exists() or not child.read_bytes():
                return
            time.sleep(0.1)
        self.fail("the child lives on")

    def test_finds_the_total(self):
        lines = [(0.0, text) for text in ("total images/sec: 1.50", "----")]
        self.assertEqual(Finished(0, lines, 1.0).images_per_second, 1.5)
        self.assertIsNone(Finished(1, lines, 1.0).images_per_second)
        self.assertIsNone(Finished(0, lines[1:], 1.0).images_per_second)
        zero = Finished(0, [(0.0, "total images/sec: 0.00")], 1.0)
        self.assertIsNone(zero.images_per_second)

    def test_complains_with_the_last_line(self):
        failed = process.run(_python("raise ValueError('no such thing')"))
        self.assertEqual(failed.status, 1)
        self.assertEqual(failed.complaint, "ValueError: no such thing")
        silent = process.run(_python("raise SystemExit(3)"))
        self.assertEqual(silent.complaint, "exit status 3, no output")
