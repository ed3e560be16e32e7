"""A fake of the tasks of a cluster, for tests of what asks them."""

import tensorflow as tf

from towers.cluster import messages
from towers.layout import cluster_spec

SPEC = cluster_spec.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w0:1", "w1:1"], controller="c:1"
)


class Tasks:
    """Answers `ask` and `dismiss` as the functions of `towers.cluster.messages` would.

    Attributes:
      lives: task -> `Hello.life`, which a restart changes.
      breaks: task -> `Hello.breaks`; 0 for tasks that are not here.
      looked: the timeouts of all calls, in seconds.
      silent: task -> why it does not answer.
      hello, devices: what every task says of itself.
      dismissed: (task as text, status) of each call of `dismiss`.
    """

    def __init__(self):
        self.lives = dict.fromkeys(SPEC.servers, "1")
        self.breaks = {}
        self.looked = []
        self.silent = {}
        self.hello = {"tensorflow": tf.__version__, "cluster": SPEC.as_dict()}
        self.devices = {"CPU": 2}
        self.dismissed = []

    def ask(self, spec, task, *, seconds):
        self.looked.append(seconds)
        if task in self.silent:
            raise messages.NoAnswerError(self.silent[task])
        facts = {"life": self.lives[task], "breaks": self.breaks.get(task, 0)}
        return messages.TaskInfo(
            **self.hello, devices=self.devices, **facts, why="reset"
        )

    def dismiss(self, spec, task, *, status, seconds):
        self.looked.append(seconds)
        self.dismissed.append((str(task), status))
