"""Faults in `towers/errors/`: statuses, notes, locks, sentences."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/checkpoints/run_status.py",
        (
            "for name in (_NAME, _END):",
            "for name in (_NAME,):",
            "checkpoints/run_status_test::test_an_end_before_its_time",
        ),
        (
            "if self._which() in (None, self._before):",
            "if self._which() is None:",
            "checkpoints/run_status_test::test_an_earlier_failure_is_none",
        ),
        (
            "_write(directory, _END, str(step))",
            "_write(directory, _NAME, str(step))",
            "checkpoints/run_status_test::test_an_end_before_its_time",
        ),
    ),
    *of_file(
        "towers/errors/collected.py",
        (
            "if error.errno == errno.EPIPE:",
            "if error.errno == errno.ENOSPC:",
            "errors/collected_test::test_lines_that_cannot_be_printed",
        ),
        (
            'say(f"error: {error}")\n    return status',
            'say(f"error: {error}")\n    return 1',
            "errors/collected_test::test_refused_on_one_line_each",
        ),
        (
            "c if c.isprintable() else repr(c)[1:-1]",
            "c",
            "errors/collected_test::test_refused_on_one_line_each",
        ),
        (
            "self.errors += error.errors",
            "self.errors += error.errors[:1]",
            "errors/collected_test::test_every_part_runs_and_every_complaint_is_kept",
        ),
    ),
    *of_file(
        "towers/errors/output_paths.py",
        (
            "if not os.path.isabs(home):",
            "if not home:",
            "errors/output_paths_test::test_caches_are_where_the_user_has_them",
        ),
        (
            "if free < num_bytes:",
            "if free > num_bytes:",
            "errors/output_paths_test::test_a_disk_that_is_too_small",
        ),
    ),
    *of_file(
        "towers/errors/interrupts.py",
        (
            "self.status = 128 + number",
            "self.status = number",
            "errors/interrupts_test::test_a_signal_is_raised_at_once",
        ),
        (
            "if came and now - came[-1][1] <= ECHO_SECONDS:",
            "if came:",
            "errors/interrupts_test::test_an_echo_is_none_but_another_one_is",
        ),
    ),
    *of_file(
        "towers/errors/lock.py",
        (
            "fcntl.LOCK_EX | fcntl.LOCK_NB",
            "fcntl.LOCK_SH | fcntl.LOCK_NB",
            "errors/lock_test::test_a_folder_is_kept_to_one_run",
        ),
        (
            "moved = _identity(self._directory) != self._identity",
            "moved = False",
            "errors/lock_test::test_a_folder_that_is_gone_is_locked_anew",
        ),
    ),
    *of_file(
        "towers/errors/explain.py",
        (
            'if "No space left on device" in text:',
            'if "No space left" == text:',
            "errors/explain_test::test_a_full_disk_is_not_the_memory",
        ),
        (
            'write --data_format=NHWC"',
            'write --data_format=NCHW"',
            "errors/explain_test::test_channels_first_where_only_channels_last_has_a_kernel",
        ),
    ),
    *of_file(
        "towers/errors/terminal.py",
        (
            "(1, 2)))",
            "(1,)))",
            "errors/terminal_test::test_lines_after_the_hangup_are_no_error",
        ),
        (
            "return [n for n in ENDING if signal.getsignal(n) is not signal.SIG_IGN]",
            "return list(ENDING)",
            "errors/terminal_test::test_what_is_ignored_is_not_heeded",
        ),
    ),
    *of_file(
        "towers/errors/lock.py",
        (
            "_age(path) > _STALE_SECONDS",
            "_age(path) > 1e9",
            "errors/lock_test::test_which_notes",
        ),
        (
            "if moved or (self._note and not self._note.is_mine()):",
            "if moved:",
            "errors/lock_test::test_a_note_that",
        ),
        (
            'return os.open(directory, os.O_RDONLY) if os.name == "posix" else None',
            "return os.open(directory, os.O_RDONLY) if fcntl else None",
            "errors/lock_test::test_a_folder_that_is_gone",
        ),
    ),
    *of_file(
        "towers/errors/side_outputs.py",
        (
            "self._left_out[what] = place, count + 1",
            "self._left_out[what] = place, 1",
            "errors/side_outputs_test::test_is_said_once",
        ),
        (
            "            os.ftruncate(file, before)\n",
            "            pass\n",
            "errors/side_outputs_test::test_a_line_is_whole",
        ),
        (
            "if os.path.isfile(path) and not os.path.islink(path):",
            "if os.path.isfile(path):",
            "errors/side_outputs_test::test_what_a_path",
        ),
    ),
]
