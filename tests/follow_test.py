"""What a follower does with the tokens that it gets; whole runs: between_graph_test."""

import types

from absl.testing import absltest

from towers.session import follow
from towers.updates import turns


def _after(hook: follow.Obey, token: int) -> None:
    hook.after_run(None, types.SimpleNamespace(results=token))


class ObeyTest(absltest.TestCase):
    def test_goes_on_while_each_token_is_the_next(self):
        token = object()
        clients = types.SimpleNamespace(token=token, watched=True)
        train = types.SimpleNamespace(clients=clients)
        hook = follow.Obey(train, 100)
        self.assertIs(hook.before_run(None).fetches, token)
        _after(hook, 101)
        _after(hook, 102)
        for other in (102, 104, 2**40):
            with self.assertRaises(turns.BegunAnewError) as caught:
                _after(hook, other)
            self.assertEqual(caught.exception.stamp, other)


if __name__ == "__main__":
    absltest.main()
