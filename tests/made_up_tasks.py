"""A cluster whose tasks are made up: what they would say if they were asked."""

import tensorflow as tf

from towers.layout import cluster
from towers.tasks import server

SPEC = cluster.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w0:1", "w1:1"], controller="c:1"
)


class Tasks:
    """Made-up tasks: what each says, or why it does not."""

    def __init__(self):
        self.lives = dict.fromkeys(SPEC.servers, "1")
        self.breaks = {}
        self.looked = []  # how long it was to be waited for each answer
        self.silent = {}
        self.hello = {"tensorflow": tf.__version__, "cluster": SPEC.as_dict()}
        self.devices = {"CPU": 2}
        self.dismissed = []

    def ask(self, spec, task, *, seconds):
        self.looked.append(seconds)
        if task in self.silent:
            raise server.SilentError(self.silent[task])
        facts = {"life": self.lives[task], "breaks": self.breaks.get(task, 0)}
        return server.Hello(**self.hello, devices=self.devices, **facts, why="reset")

    def dismiss(self, spec, task, *, status, seconds):
        self.looked.append(seconds)
        self.dismissed.append((str(task), status))
