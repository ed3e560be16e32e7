"""The answers of other tasks are read; `server_test` has tasks that answer."""

import dataclasses
import itertools
import json
import time
from unittest import mock

import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.cluster import comparison, messages, ports, software
from towers.layout import cluster_spec

_SPEC = cluster_spec.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w:1"], controller="c:1"
)
_PS = cluster_spec.Task("ps", 0)
_HELLO = messages.TaskInfo(tf.__version__, _SPEC.as_dict(), {"CPU": 2}, "1", 3, "reset")


def _answers(answer):
    return mock.patch.object(messages, "_call", mock.Mock(side_effect=[answer]))


class AskTest(parameterized.TestCase):
    def test_reads_what_the_task_has_written(self):
        with _answers(_HELLO.text().encode()):
            info = messages.fetch_info(_SPEC, _PS, seconds=1)
        self.assertEqual(info.text(), _HELLO.text())
        self.assertEmpty(comparison.differences(_SPEC, _PS, info))

    def test_unequal_software_is_named(self):
        mine = software.versions()
        for theirs, differences, remarks in (
            (mine, [], []),
            (
                {**mine, "towers": "0.0.9+ab", "numpy": "1.0"},
                [
                    "ps 0 at p:1 runs towers 0.0.9+ab and chief 0 runs "
                    f"{mine['towers']}; install the same"
                ],
                [f"ps 0 at p:1 runs numpy 1.0, and chief 0 runs {mine['numpy']}."],
            ),
        ):
            hello = dataclasses.replace(_HELLO, software=theirs)
            with _answers(hello.text().encode()):
                info = messages.fetch_info(_SPEC, _PS, seconds=1)
            self.assertEqual(comparison.differences(_SPEC, _PS, info), differences)
            self.assertEqual(comparison.remarks(_SPEC, _PS, info), remarks)

    def test_software_that_is_not_said_is_older(self):
        facts = dataclasses.asdict(_HELLO)
        del facts["software"]
        with _answers(json.dumps(facts).encode()):
            info = messages.fetch_info(_SPEC, _PS, seconds=1)
        (words,) = comparison.differences(_SPEC, _PS, info)
        self.assertStartsWith(words, "ps 0 at p:1 runs towers an older version and")

    @parameterized.parameters(b"2", b"{}", b'{"life": "1", "words": []}', b"hello")
    def test_what_cannot_be_read_is_of_another_version(self, text):
        with (
            _answers(text),
            self.assertRaisesRegex(
                messages.NoAnswerError,
                "^what answers there is another version of towers$",
            ),
        ):
            messages.fetch_info(_SPEC, _PS, seconds=1)


class SilenceTest(parameterized.TestCase):
    @parameterized.parameters(
        (0, ""),
        (messages.NoAnswerError("it is frozen"), "it is frozen"),
        (
            tf.errors.UnavailableError(None, None, "Connection reset"),
            "Connection reset",
        ),
    )
    def test_says_why_nothing_is_answered(self, answer, reason):
        with _answers(answer):
            self.assertEqual(messages.silence(_SPEC, _PS, seconds=1), reason)


class DismissTest(absltest.TestCase):
    def _dismiss(self, answers, refusals, seconds=60.0):
        """How often a task is told to exit."""
        with (
            mock.patch.object(messages, "_call", side_effect=answers) as call,
            mock.patch.object(messages, "_EXIT_SECONDS", 0.1),
            mock.patch.object(ports, "refusal", mock.Mock(side_effect=refusals)),
        ):
            messages.dismiss(_SPEC, _PS, status=3, seconds=seconds)
        return call.call_count

    def test_is_repeated_until_the_port_is_closed(self):
        stuck = messages.NoAnswerError("nothing was answered")
        closed = ["refused"] * 2
        self.assertEqual(self._dismiss([None], [None, *closed]), 1)
        busy = ["timed out", None, "timed out", None]
        with mock.patch.object(messages, "_PORT_SECONDS", 0.1):
            self.assertEqual(self._dismiss([stuck, None], [*busy, *closed]), 2)
        for answer in (stuck, None):  # it may not come, and may not be obeyed
            open_ports = [None] * 2
            with mock.patch.object(messages, "_PORT_SECONDS", 0.1):
                refusals = [*open_ports, *open_ports, *closed]
                self.assertEqual(self._dismiss([answer, stuck, None], refusals), 3)

    def test_is_not_repeated_for_ever(self):
        stuck = messages.NoAnswerError("nothing was answered")
        begun = time.monotonic()
        told = self._dismiss(itertools.repeat(stuck, 9), itertools.repeat(None), 0.5)
        self.assertBetween(told, 2, 6)
        self.assertBetween(time.monotonic() - begun, 0.5, 30.0)
