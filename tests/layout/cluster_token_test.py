"""A token is read from a file of its owner; a proof depends on all that it proves."""

import os
import pathlib
from unittest import mock

from absl.testing import parameterized

from towers.layout import cluster_token

_TOKEN = "a" * 16


class ReadTest(parameterized.TestCase):
    def _file(self, text: str, mode: int = 0o600) -> str:
        path = pathlib.Path(self.create_tempdir(), "token")
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    def _refused(self, path: str) -> str:
        with self.assertRaises(ValueError) as caught:
            cluster_token.read(path)
        return str(caught.exception)

    def test_no_file_is_no_token(self):
        self.assertEqual(cluster_token.read(None), b"")

    @parameterized.parameters(0o600, 0o400)
    def test_reads_what_only_the_owner_can(self, mode):
        path = self._file(f" {_TOKEN}\n", mode)
        self.assertEqual(cluster_token.read(path), _TOKEN.encode())

    @parameterized.parameters(0o640, 0o604, 0o620, 0o602, 0o644)
    def test_a_file_that_others_can_read_or_change_is_refused(self, mode):
        path = self._file(_TOKEN, mode)
        self.assertEqual(
            self._refused(path),
            f"cluster_token_file={path}: may be read or changed by others "
            f"(its mode is {mode:04o}); chmod 600 {path}",
        )

    def test_the_group_reads_a_file_of_another_owner(self):
        """As a secret of Kubernetes, which a task reads by its group only."""
        owner = os.geteuid()
        with mock.patch.object(os, "geteuid", lambda: owner + 1):
            self.assertNotEmpty(cluster_token.read(self._file(_TOKEN, 0o440)))
            self.assertIn("mode is 0444", self._refused(self._file(_TOKEN, 0o444)))

    @parameterized.parameters("", "short", "x" * 5000)
    def test_what_is_no_token(self, text):
        self.assertIn("must hold 16 to 4096 bytes", self._refused(self._file(text)))

    def test_what_is_no_file(self):
        self.assertIn("(No such file or directory)", self._refused("/no/such"))
        self.assertIn(": is no file", self._refused("/dev/zero"))


class ProofTest(parameterized.TestCase):
    def test_depends_on_the_token_and_on_each_word(self):
        right = cluster_token.proof(b"token", "question", "7").encode()
        self.assertTrue(cluster_token.is_proof(right, b"token", "question", "7"))
        for token, words in (
            (b"other", ("question", "7")),
            (b"token", ("answer", "7")),
            (b"token", ("question7",)),
        ):
            self.assertFalse(cluster_token.is_proof(right, token, *words))

    def test_there_is_none_of_an_empty_token(self):
        words = cluster_token.proof(b"", "question")
        self.assertFalse(cluster_token.is_proof(words.encode(), b"", "question"))
