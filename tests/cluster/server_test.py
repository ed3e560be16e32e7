"""Tasks that serve, answer and leave; what is said of those that do not.

TensorFlow's servers listen on every interface, so they are started in a private
network, by a program of their own.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import types
from unittest import mock

from absl.testing import absltest

from tests.processes import programs
from tests.processes.programs import ROOT
from towers.cluster import messages, server
from towers.layout import cluster_spec

# Two tasks in one process; the chief asks all tasks for their state, then dismisses
# worker 0.
_INSIDE = """
import dataclasses, json, socket, threading, time
from towers.cluster import private_network
private_network.enter()
import tensorflow as tf
from towers.layout import cluster_spec
from towers.cluster import comparison, messages, server

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(8)]
chief, serving, closed, *others = (f"127.0.0.1:{s.getsockname()[1]}" for s in held)
for each in (*held[:3], *held[5:]):
    each.close()
workers = [serving, closed, *others]
def hang_up():  # as a tunnel to a task that is not there
    while True:
        held[4].accept()[0].close()
threading.Thread(target=hang_up, daemon=True).start()
def spec(job, token=b"the token of the cluster"):
    hosts = dict(ps=[], workers=workers, controller=chief)
    return dataclasses.replace(cluster_spec.from_hosts(job, 0, **hosts), token=token)

config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})

# Servers of other projects, one as this task and one as another.
tf.distribute.Server(
    {"worker": workers, "chief": [chief]}, job_name="worker", task_index=4)
tf.distribute.Server({"worker": others[3:4]}, job_name="worker", task_index=0)

def strange():  # a task of another cluster, and of another TensorFlow
    hosts = dict(ps=[], workers=workers, controller="127.0.0.1:1")
    server.serve(
        cluster_spec.from_hosts("worker", 6, **hosts), config,
        server.Patience(60, 60, 0), lambda line: None)
right, tf.__version__ = tf.__version__, "1.15.0"
threading.Thread(target=strange, daemon=True).start()
lines, left = [], []
def serve():
    left.append(
        server.serve(
            spec("worker"), config, server.Patience(60, 60, 0), lines.append)
    )
target = server.start(spec("chief"), config).target
facts = {"reasons": {}}
while "strange" not in facts:
    try:
        task = cluster_spec.Task("worker", 6)
        hello = messages.fetch_info(spec("chief", b""), task, seconds=60)
        tf.__version__ = right
        facts["strange"] = comparison.differences(spec("chief"), task, hello)
    except messages.NoAnswerError:
        pass
thread = threading.Thread(target=serve)
thread.start()
while "hello" not in facts:
    try:
        task = cluster_spec.Task("worker", 0)
        hello = messages.fetch_info(spec("chief"), task, seconds=60)
        facts["hello"] = [hello.tensorflow, hello.devices, hello.cluster]
        facts["differ"] = comparison.differences(spec("chief"), task, hello)
    except messages.NoAnswerError:
        pass
facts["tokens"] = []
asked = [(0, b"another token"), (0, b""), (0, b"another token"), (6, b"the token")]
for index, token in asked:
    try:
        task = cluster_spec.Task("worker", index)
        messages.fetch_info(spec("chief", token), task, seconds=60)
    except messages.NoAnswerError as reason:
        facts["tokens"].append(str(reason))
for index, seconds in ((1, 2), (2, 2), (3, 2), (4, 60), (5, 60)):
    begun = time.monotonic()
    try:
        task = cluster_spec.Task("worker", index)
        messages.fetch_info(spec("chief"), task, seconds=seconds)
    except messages.NoAnswerError as reason:
        facts["reasons"][index] = str(reason)
    facts.setdefault("seconds", []).append(time.monotonic() - begun)
try:
    taken = cluster_spec.from_hosts(
        "chief", 0, ps=[], workers=[chief], controller=others[0]
    )
    server.start(taken, config)
except messages.ClusterError as error:
    facts["taken"] = str(error)
for index in range(4):
    task = cluster_spec.Task("worker", index)
    messages.dismiss(spec("chief"), task, status=3, seconds=2)
thread.join(60)
class Interrupted:
    def get(self):
        raise KeyboardInterrupt
said = []
facts["interrupted"] = server.await_dismissal(
    Interrupted(), spec("chief"), server.Patience(2, 2, 0), said.append
), said
facts |= {"left": left, "lines": lines, "version": tf.__version__}
facts["spec"] = spec("chief").as_dict()
print(json.dumps(facts), flush=True)
import os
os._exit(0)
"""


class AbsenceTest(absltest.TestCase):
    def test_it_counts_from_the_first_look_that_failed(self):
        """Whoever asks may have been busy for longer than a controller may be away."""
        spec = types.SimpleNamespace(
            address=lambda task: "host:1", controller=None, me="evaluator 0"
        )
        now, refusal = [100.0], [""]
        with mock.patch.object(server.time, "monotonic", lambda: now[0]):
            absence = server.Absence(spec, wait_secs=10, look=lambda: refusal[0])
            self.assertEqual(absence(), "")
            for passed, wanted in ((50, ""), (9, ""), (1, "no controller at host:1 ")):
                refusal[0] = "refused"
                now[0] += passed
                self.assertStartsWith(absence(), wanted)
                self.assertEqual(bool(absence()), bool(wanted))
            refusal[0] = ""
            self.assertEqual(absence(), "")
            refusal[0] = "refused"  # worker 0 is refused again from now on
            self.assertEqual(absence(), "")


class ServerTest(absltest.TestCase):
    def test_two_tasks(self):
        programs.need_private_networks()
        finished = subprocess.run(
            [sys.executable, "-c", _INSIDE],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=programs.PATIENCE,
        )
        self.assertEqual(finished.returncode, 0, finished.stderr)
        facts = json.loads(finished.stdout.splitlines()[-1])
        self.assertEqual(facts["hello"], [facts["version"], {"CPU": 2}, facts["spec"]])
        self.assertEmpty(facts["differ"])
        self.assertRegex(facts["reasons"]["1"], r"^nothing answers there \(.*refused")
        self.assertRegex(
            facts["reasons"]["2"], "^its port is open, but nothing was answered for 2 s"
        )
        self.assertBetween(facts["seconds"][1], 1.9, 30)
        self.assertRegex(
            facts["reasons"]["3"],
            r"^nothing answers there \(the connection was closed at once\)",
        )
        self.assertRegex(facts["reasons"]["4"], "^a TensorFlow server is there, but it")
        other = "what answers there is another task (start all with the same hosts)"
        self.assertEqual(facts["reasons"]["5"], other)
        version, hosts = facts["strange"]
        self.assertRegex(
            version, r"^worker 6 at .* runs TensorFlow 1.15.0 and chief 0 runs 2.*same$"
        )
        self.assertRegex(hosts, '^worker 6 at .*127.0.0.1:1".*start all with the same')
        self.assertRegex(
            facts["taken"], r"^chief 0 cannot listen at .* \(Address alr.*one$"
        )
        self.assertEqual(facts["left"], [3])
        self.assertEqual(facts["interrupted"][0], 130)
        [said] = facts["interrupted"][1]
        self.assertStartsWith(said, "chief 0: stopped by SIGINT before training ended")
        self.assertRegex(facts["lines"][0], r"^worker 0 serves at 127.0.0.1:\d+\.$")
        # no warning of open ports in a private network
        remedy = "; give all tasks the same --cluster_token_file"
        first, second = facts["lines"][1:]  # each is said once
        another = f"Not used: chief 0 has another cluster token than worker 0{remedy}."
        self.assertEqual(first, another)
        lacking = (
            f"Not used: chief 0 has no cluster token, and worker 0 has one{remedy}."
        )
        self.assertEqual(second, lacking)
        another = f"it has another cluster token than chief 0{remedy}"
        lacking = f"chief 0 has no cluster token, and it has one{remedy}"
        self.assertEqual(facts["tokens"][:3], [another, lacking, another])
        none = f"it has no cluster token, and chief 0 has one{remedy}"
        self.assertEqual(facts["tokens"][3], none)

    def test_a_status_that_comes_during_a_look_is_obeyed_at_once(self):
        statuses, left, ends = queue.SimpleQueue(), threading.Event(), []

        def look(*_, **__):
            statuses.put(5)
            ends.append(left.wait(20))
            return "gone"

        spec = cluster_spec.from_hosts(
            "ps", 0, ps=["p:1"], workers=["w:1"], controller="c:1"
        )
        lines = []
        with mock.patch.object(messages, "silence", look):
            status = server.await_dismissal(
                statuses, spec, server.Patience(0.1, 0.1, 0), lines.append
            )
        self.assertEqual((status, ends), (5, []))
        left.set()
        self.assertEmpty(lines)
