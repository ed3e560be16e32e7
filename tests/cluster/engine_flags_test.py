"""`engine_flags`: command lines, and the tasks that follow from them."""

import contextlib
import io

from absl.testing import parameterized

from towers.cluster import engine_flags
from towers.cluster.engine_flags import EngineFlags

_DOC = """python program.py -- --model=resnet50 ...

More words.
"""
_CONTROLLER, _PS, _WORKER_0, _WORKER_1 = (
    *(("controller", 0), ("ps", 0)),
    *(("worker", 0), ("worker", 1)),
)


def _read(*argv: str) -> EngineFlags:
    parser = engine_flags.parser(_DOC)
    parser.add_argument("--address", default="here")
    return engine_flags.read(parser, argv)


class EngineFlagsTest(parameterized.TestCase):
    def ended(self, *argv: str) -> tuple[int, str]:
        """The status of a program that ends with this command line; what it prints."""
        printed = io.StringIO()
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            self.assertRaises(SystemExit) as end,
        ):
            _read(*argv)
        return end.exception.code, printed.getvalue()

    def test_a_command_line(self):
        given = _read()
        self.assertEqual(given.tasks, {"ps": 1, "worker": 2})
        self.assertEqual(given.flags, [])
        self.assertEqual((given.max_restarts, given.max_workers), (3, None))
        words = "--tasks=worker:3", "--address=there", "--max_restarts=0"
        given = _read(*words, "--max_workers=5", "--", "--elastic", "--num_gpus=2")
        self.assertEqual(given.tasks, {"worker": 3})
        self.assertEqual(given.flags, ["--elastic", "--num_gpus=2"])
        self.assertEqual((given.max_restarts, given.max_workers), (0, 5))
        self.assertEqual(given.address, "there")
        status, printed = self.ended("--help")
        self.assertEqual(status, 0)
        self.assertIn("python program.py -- --model=resnet50 ...", printed)
        self.assertNotIn("More words.", printed)

    @parameterized.parameters(
        ((), None, [_CONTROLLER, _PS, _WORKER_0], {0, 1, 2}, 0),
        (("--replication=between_graph",), None, [_PS, _WORKER_0], {0, 1}, 1),
        (("--elastic",), 2, [_CONTROLLER, _PS, _WORKER_0, _WORKER_1], {0, 1}, 0),
        (("--elastic",), None, [_CONTROLLER, _PS, _WORKER_0], {0, 1}, 0),
    )
    def test_tasks(self, flags, max_workers, names, needed, leader):
        tasks = {"worker": 1, "ps": 1}
        given = EngineFlags(tasks=tasks, flags=flags, max_workers=max_workers)
        self.assertEqual(given.names, names)
        self.assertEqual(given.needed, needed)
        self.assertEqual(given.leader, leader)
        self.assertEqual(given.at_once, len(names) - (max_workers == 2))

    def test_tasks_beyond_the_most_workers(self):
        tasks = {"worker": 2}
        given = EngineFlags(tasks=tasks, flags=("--elastic",), max_workers=1)
        self.assertEqual(given.names, [_CONTROLLER, _WORKER_0, _WORKER_1])
        self.assertEqual((given.most_workers, given.at_once), (2, 3))

    @parameterized.parameters(
        (("--elastic",), True),
        (("--elastic=keep_batch",), True),
        (("-elastic", "keep_batch"), True),
        (("--elastic=false",), False),
        (("--elastic", "--elastic=false"), False),
        (("--model=elastic",), False),
    )
    def test_whether_a_run_is_elastic(self, flags, wanted):
        self.assertEqual(EngineFlags(flags=flags).elastic, wanted)

    @parameterized.parameters(
        (
            ("--", "--num_gpus=2", "--worker_hosts=a:1"),
            "--worker_hosts=a:1: the engine places the tasks that --tasks names; leave "
            "it out",
        ),
        (
            ("--max_workers=2", "--", "--elastic=false"),
            "--max_workers needs --elastic among the flags of towers.train",
        ),
        (("--max_workers=0", "--", "--elastic"), "--max_workers=0 is below 1"),
        (("--max_restarts=-1",), "--max_restarts=-1 is below 0"),
        (
            ("--tasks=worker:x",),
            "argument --tasks: 'worker:x' must say how many tasks of each job, 999 at "
            "most, as in ps:1,worker:2 or worker:2",
        ),
    )
    def test_what_is_refused(self, argv, words):
        status, printed = self.ended(*argv)
        self.assertEqual(status, 2)
        self.assertEndsWith(printed, f": error: {words}\n")

    def test_what_only_looks_like_it_is_not_refused(self):
        self.assertEqual(_read("--", "--model=ps_hosts").flags, ["--model=ps_hosts"])
