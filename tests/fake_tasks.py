"""A fake of the tasks of a cluster, for tests of what asks them."""

import types
from unittest import mock

import tensorflow as tf
from absl.testing import absltest

from towers.cluster import connections, controller, messages, open_ports, server
from towers.layout import cluster_spec

SPEC = cluster_spec.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w0:1", "w1:1"], controller="c:1"
)


def around_a_controller(test: absltest.TestCase) -> "Tasks":
    """Patches what a controller does with tasks, for one test; returns the fake."""
    tasks, no_server = Tasks(), types.SimpleNamespace(target="")
    for where, name, value in (
        (server, "start", lambda spec, config: no_server),
        (messages, "fetch_info", tasks.ask),
        (messages, "dismiss", tasks.dismiss),
        (open_ports, "open_ports_warning", lambda spec: "open ports"),
        (connections, "limit", lambda spec, seconds: None),
        (controller, "QUIET_SECONDS", 0.0),
        (controller, "_PAUSE_SECONDS", 0.0),
    ):
        patch = mock.patch.object(where, name, value)
        patch.start()
        test.addCleanup(patch.stop)
    return tasks


class Tasks:
    """Answers `ask` and `dismiss` as the functions of `towers.cluster.messages` would.

    Attributes:
      lives: task -> `Hello.life`, which a restart changes.
      breaks: task -> `Hello.breaks`; 0 for tasks that are not here.
      looked: the timeouts of all calls, in seconds.
      silent: task -> why it does not answer.
      hello, devices: what every task says of itself.
      differing: task -> what it says in their place.
      strangers: the tasks with another cluster token.
      dismissed: (task as text, status) of each call of `dismiss`.
    """

    def __init__(self):
        self.lives = dict.fromkeys(SPEC.servers, "1")
        self.breaks = {}
        self.looked = []
        self.silent = {}
        self.hello = {"tensorflow": tf.__version__, "cluster": SPEC.as_dict()}
        self.devices = {"CPU": 2}
        self.differing = {}
        self.strangers = set()
        self.dismissed = []

    def ask(self, spec, task, *, seconds):
        self.looked.append(seconds)
        if task in self.silent:
            raise messages.NoAnswerError(self.silent[task])
        facts = {"life": self.lives[task], "breaks": self.breaks.get(task, 0)}
        facts |= self.hello | self.differing.get(task, {})
        info = messages.TaskInfo(devices=self.devices, **facts, why="reset")
        if task in self.strangers:
            raise messages.WrongTokenError("it has another cluster token", info)
        return info

    def dismiss(self, spec, task, *, status, seconds):
        self.looked.append(seconds)
        self.dismissed.append((str(task), status))
