"""Faults in `towers/cluster/`: who answers, who is waited for, how long, what is
said."""

from tests.mutants.fault import of_file

FAULTS = [
    *of_file(
        "towers/cluster/health_check.py",
        (
            "self._tasks = [spec.controller, *ps]",
            "self._tasks = [spec.controller]",
            "cluster/health_check_test::test_who_follows_asks_the_controller_and_the_ps",
        ),
        (
            "if hello.life != previous.life:",
            "if hello.life == previous.life:",
            "cluster/health_check_test::test_processes_are_told_from_those_that_trained",
        ),
        (
            "elif hello.breaks != previous.breaks:",
            "elif hello.breaks > previous.breaks + 1:",
            "cluster/health_check_test::test_processes_are_told_from_those_that_trained",
        ),
        (
            "    if failed:\n        raise failed[0]\n",
            "",
            "cluster/health_check_test::test_what_fails_is_no_answer",
        ),
    ),
    *of_file(
        "towers/cluster/watchdog.py",
        (
            "self._silent(time.monotonic() - begun)",
            "self._silent(time.monotonic() - checked_at)",
            "cluster/watchdog_test::test_a_slow_call",
        ),
    ),
    *of_file(
        "towers/cluster/ports.py",
        (
            'return None if spoken else "the connection was closed at once"',
            "return None",
            "cluster/ports_test",
        ),
    ),
    *of_file(
        "towers/cluster/messages.py",
        (
            "if hello.tensorflow != tf.__version__:",
            "if not hello.tensorflow:",
            "cluster/health_check_test::test_a_wrong_task_is_named",
        ),
        (
            "if hello.cluster != spec.as_dict():",
            "if hello.cluster.keys() != spec.as_dict().keys():",
            "cluster/health_check_test::test_a_wrong_task",
        ),
        (
            "if has >= count:",
            "if has:",
            "cluster/health_check_test::test_a_worker_without_the_devices_is_named",
        ),
        (
            '(jobs.get("chief") or jobs["worker"])[0]',
            'jobs["worker"][0]',
            "cluster/messages_test::test_is_the_controller_or_the_chief_worker",
        ),
    ),
    *of_file(
        "towers/cluster/server.py",
        (
            "if self._gone_since is None:",
            "if True:",
            "cluster/server_test::test_it_counts_from_the_first_look_that_failed",
        ),
        (
            "self._gone_since, self._met, self._named = None, True, False",
            "self._met, self._named = True, False",
            "cluster/server_test::test_it_counts",
        ),
    ),
    *of_file(
        "towers/cluster/controller.py",
        (
            "if not resumes:",
            "if resumes is None:",
            "cluster/controller_test::test_without_checkpoints_a_loss_is_the_end",
        ),
        (
            "self._unexplained <= _LIMIT_UNEXPLAINED",
            "self._unexplained <= _LIMIT_UNEXPLAINED + 1",
            "cluster/controller_test::test_a_broken_connection_is_mended_some_times",
        ),
        (
            "self._unexplained = 0  # it took steps",
            "pass",
            "cluster/controller_test::test_broken_connections_are_counted_in_a_row",
        ),
        (
            "if given_up or self._roll_call.is_ours(task):",
            "if True:",
            "cluster/controller_test::test_tasks_of_another_controller_are_left_alone",
        ),
        (
            "reasons.pop(self._spec.controller, None)",
            "",
            "cluster/controller_test::test_a_follower_waits_for_its_chief_in_one_call",
        ),
        (
            "_SWALLOWED_STALLS * 2**self._swallowed * self._stall_secs",
            "_SWALLOWED_STALLS * self._stall_secs",
            "cluster/controller_test::test_a_chief_begins_again_where_a_message_was_swallowed",
        ),
        (
            "error = error.__cause__",
            "error = None",
            "cluster/controller_test::test_a_loss_behind_another_error",
        ),
    ),
    *of_file(
        "towers/cluster/sessions.py",
        (
            "intra_threads=devices.num_intra_threads,",
            "intra_threads=devices.num_inter_threads,",
            "cluster/sessions_test::test_the_config_is_that_of_the_settings",
        ),
    ),
]
