"""The answers of other tasks are read; `server_test` has tasks that answer."""

from unittest import mock

import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.cluster import messages
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
        self.assertEmpty(messages.differences(_SPEC, _PS, info))

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


class LeaderTest(absltest.TestCase):
    def test_is_the_controller_or_the_chief_worker(self):
        self.assertEqual(messages.leader(_HELLO), "c:1")
        hosts = {"ps": ["p:1"], "worker": ["w:1", "w:2"]}
        between = messages.TaskInfo(tf.__version__, hosts, {"CPU": 2}, "1")
        self.assertEqual(messages.leader(between), "w:1")
