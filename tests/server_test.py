"""Tasks that serve, answer and leave; what is said of those that do not.

TensorFlow's servers listen on every interface, so they are started in a private
network, by a program of their own.
"""

import json
import os
import subprocess
import sys

from absl.testing import absltest

import towers
from benchmarks import launched

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(towers.__file__)))

# Two tasks in one process; the chief asks everybody, then sends worker 0 away.
_INSIDE = """
import json, socket, threading
from towers import private_network
private_network.enter()
import tensorflow as tf
from towers import cluster, server

held = [socket.create_server(("127.0.0.1", 0)) for _ in range(4)]
chief, serving, closed, other = (f"127.0.0.1:{s.getsockname()[1]}" for s in held)
for each in held[:3]:
    each.close()
workers = [serving, closed, other]
def spec(job):
    return cluster.from_hosts(job, 0, ps=[], workers=workers, controller=chief)

config = tf.compat.v1.ConfigProto(device_count={"CPU": 2})
lines, left = [], []
def serve():
    left.append(
        server.serve(spec("worker"), config, wait_secs=60, console=lines.append)
    )
thread = threading.Thread(target=serve)
thread.start()
target = server.start(spec("chief"), config).target
facts = {"reasons": {}}
while "hello" not in facts:
    try:
        task = cluster.Task("worker", 0)
        hello = server.ask(target, spec("chief"), task, seconds=60)
        facts["hello"] = [hello.tensorflow, hello.devices, hello.cluster]
        facts["differ"] = server.differences(spec("chief"), task, hello)
    except server.SilentError:
        pass
for index in (1, 2):
    try:
        server.ask(target, spec("chief"), cluster.Task("worker", index), seconds=2)
    except server.SilentError as reason:
        facts["reasons"][index] = str(reason)
try:
    server.start(
        cluster.from_hosts("chief", 0, ps=[], workers=[chief], controller=other), config
    )
except server.ClusterError as error:
    facts["taken"] = str(error)
for index in range(3):
    task = cluster.Task("worker", index)
    server.dismiss(target, spec("chief"), task, status=3, seconds=2)
thread.join(60)
facts |= {"left": left, "lines": lines, "version": tf.__version__}
facts["spec"] = spec("chief").as_dict()
print(json.dumps(facts), flush=True)
import os
os._exit(0)
"""


class ServerTest(absltest.TestCase):
    def test_two_tasks(self):
        if not launched.have_private_networks():
            self.skipTest("this system has no private networks")
        found = subprocess.run(
            [sys.executable, "-c", _INSIDE],
            env={**os.environ, "PYTHONPATH": _ROOT},
            capture_output=True,
            text=True,
            timeout=launched.PATIENCE,
        )
        self.assertEqual(found.returncode, 0, found.stderr)
        facts = json.loads(found.stdout.splitlines()[-1])
        self.assertEqual(facts["hello"], [facts["version"], {"CPU": 2}, facts["spec"]])
        self.assertEmpty(facts["differ"])
        self.assertRegex(facts["reasons"]["1"], r"^nothing answers there \(.*refused")
        self.assertRegex(facts["reasons"]["2"], "^its port is open, but nothing was")
        self.assertRegex(facts["taken"], "^chief 0 cannot listen at .*another one$")
        self.assertEqual(facts["left"], [3])
        self.assertRegex(facts["lines"][0], r"^worker 0 serves at 127.0.0.1:\d+\.$")
        self.assertLen(facts["lines"], 1)  # in a private network nothing is exposed


if __name__ == "__main__":
    absltest.main()
