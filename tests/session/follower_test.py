"""A follower takes a step for each token; whole runs are in `between_graph_test`."""

import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from towers.session import follower
from towers.variable_update import step_quota
from towers.variable_update.between_graph import FollowerClient


def _after(hook: follower.CheckTokens, *results: int, session=None) -> None:
    context = types.SimpleNamespace(session=session)
    hook.after_run(context, types.SimpleNamespace(results=list(results)))


def _hook(**parts) -> follower.CheckTokens:
    clients = mock.create_autospec(FollowerClient, instance=True, **parts)
    feed = types.SimpleNamespace(initializer="seek")
    return follower.CheckTokens(types.SimpleNamespace(clients=clients, feed=feed), 100)


class FollowTest(absltest.TestCase):
    def test_goes_on_while_each_token_is_the_next(self):
        hook = _hook(token="token", used=None)
        self.assertEqual(hook.before_run(None).fetches, ["token"])
        _after(hook, 101)
        _after(hook, 102)
        for other in (102, 104, 2**40, -(2**40)):
            with self.assertRaises(step_quota.RestartedError) as caught:
                _after(hook, other)
            self.assertEqual(caught.exception.stamp, abs(other))

    def test_begins_anew_after_sums_that_were_not_used(self):
        hook = _hook(token="token", used="used")
        session = mock.create_autospec(tf.compat.v1.Session, instance=True)
        self.assertEqual(hook.before_run(None).fetches, ["token", "used"])
        _after(hook, 101, True, session=session)
        session.run.assert_not_called()
        # Not used; used, but not in time for the next step; used again.
        for token, used, sought in ((102, False, 1), (104, True, 2), (105, True, 2)):
            _after(hook, token, used, session=session)
            self.assertEqual(session.run.mock_calls, [mock.call("seek")] * sought)
        begun = [call.args for call in hook._client.begin.mock_calls]
        self.assertEqual(begun, [(session, 102), (session, 104)])
        with self.assertRaises(step_quota.RestartedError):
            _after(hook, 2**40, True, session=session)


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
