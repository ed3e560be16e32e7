"""The log of the workers of each step, written and read."""

import os

from absl.testing import parameterized

from towers.errors.side_outputs import SideOutputs
from towers.membership_log import FILE, MembershipFile, MembershipLog


class MembershipLogTest(parameterized.TestCase):
    def _path(self, text: str) -> str:
        return self.create_tempfile(content=text).full_path

    def test_a_line_is_written_where_the_workers_change(self):
        folder = self.create_tempdir().full_path
        path = os.path.join(folder, FILE)
        file = MembershipFile(folder, SideOutputs())
        for step, workers in (
            (0, [0, 1]),
            (1, [1, 0]),
            (2, [0]),
            (5, [0]),
            (6, [0, 1]),
        ):
            file.note(step, workers)
        with open(path) as lines:
            self.assertEqual(
                lines.read(),
                '{"step": 0, "workers": [0, 1]}\n{"step": 2, "workers": [0]}\n'
                '{"step": 6, "workers": [0, 1]}\n',
            )
        log = MembershipLog.read(path)
        workers = [log.workers(step) for step in range(8)]
        self.assertEqual(workers, [(0, 1)] * 2 + [(0,)] * 4 + [(0, 1)] * 2)
        self.assertEqual([log.next_change(s) for s in (0, 2, 5, 6)], [2, 6, 6, None])

    def test_a_run_that_is_taken_up_voids_the_lines_from_there_on(self):
        folder = self.create_tempdir().full_path
        first, again = (MembershipFile(folder, SideOutputs()) for _ in range(2))
        for step, workers in ((0, [0, 1]), (4, [0]), (7, [1])):
            first.note(step, workers)
        again.note(4, [0, 1])  # written although these were not the last workers
        again.note(9, [1])
        log = MembershipLog.read(os.path.join(folder, FILE))
        self.assertEqual(log.changes, ((0, (0, 1)), (4, (0, 1)), (9, (1,))))
        self.assertEqual(log.next_change(0), 9)

    def test_without_a_folder_nothing_is_written(self):
        MembershipFile(None, SideOutputs()).note(0, [0])

    def test_a_run_from_before_the_log_is_refused(self):
        log = MembershipLog.read(self._path('{"step": 5, "workers": [0]}\n'))
        self.assertEqual(log.workers(5), (0,))
        with self.assertRaisesRegex(ValueError, "begins after step 5, .* from step 4"):
            log.workers(4)

    @parameterized.parameters(
        ("", "is empty"),
        ("{", "line 1 is '{', which names no"),
        ('{"step": 0, "workers": [0]}\n[]', "line 2 is"),
        ('{"step": 0}', "line 1 is"),
        ('{"step": -1, "workers": [0]}', "line 1 is"),
        ('{"step": 0, "workers": []}', "line 1 is"),
        ('{"step": 0, "workers": [0, 0]}', "line 1 is"),
        ('{"step": 0, "workers": [1, 0]}', "line 1 is"),
        ('{"step": 0, "workers": [true]}', "line 1 is"),
        ('{"step": 0, "workers": 1}', "line 1 is"),
    )
    def test_refuses(self, text, words):
        path = self._path(text)
        with self.assertRaisesRegex(ValueError, f"replay_membership={path}: {words}"):
            MembershipLog.read(path)

    def test_a_file_that_is_not_there_is_named(self):
        with self.assertRaisesRegex(
            ValueError, r"/no/x: cannot be read \(No such file"
        ):
            MembershipLog.read("/no/x")
