"""A follower takes a step for each token; whole runs are in `between_graph_test`."""

import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from towers.session import follower
from towers.variable_update import step_quota
from towers.variable_update.between_graph import FollowerClient


def _after(hook: follower.CheckTokens, token: int) -> None:
    hook.after_run(None, types.SimpleNamespace(results=token))


class FollowTest(absltest.TestCase):
    def test_goes_on_while_each_token_is_the_next(self):
        token = object()
        clients = mock.create_autospec(FollowerClient, instance=True, token=token)
        train = types.SimpleNamespace(clients=clients)
        hook = follower.CheckTokens(train, 100)
        self.assertIs(hook.before_run(None).fetches, token)
        _after(hook, 101)
        _after(hook, 102)
        for other in (102, 104, 2**40):
            with self.assertRaises(step_quota.RestartedError) as caught:
                _after(hook, other)
            self.assertEqual(caught.exception.stamp, other)


class OldTokenTest(absltest.TestCase):
    def test_a_data_set_of_another_length_is_no_old_token(self):
        """To wait for another token, without a word, would hang all clients."""
        plan = types.SimpleNamespace(source=types.SimpleNamespace(path="/data"))
        for text, wanted in (
            ("Could not find variable conv1/kernel", True),
            (
                "Input dataset was expected to contain 70 elements but contained only "
                "69 elements.\n\t [[{{node input/IteratorGetNext}}]]",
                False,
            ),
        ):
            error = tf.errors.FailedPreconditionError(None, None, text)
            self.assertEqual(follower._may_be_old(error, plan), wanted)
