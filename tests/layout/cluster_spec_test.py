"""Roles from flags and from TF_CONFIG; malformed ones are refused in a sentence."""

import json
import types

from absl.testing import absltest, parameterized

from flags import config
from towers.layout import cluster_spec
from towers.layout.cluster_spec import Task

_HOSTS = {
    "chief": ["c:2222"],
    "ps": ["p0:2222", "p1:2222"],
    "worker": ["w0:2222", "w1:2222"],
}


def tf_config(kind, index=0, hosts=_HOSTS):
    """As TFJob writes it."""
    task = {"type": kind, "index": index}
    return json.dumps({"cluster": hosts, "task": task, "environment": "cloud"})


def _without_index(kind, hosts=_HOSTS):
    """As somebody writes it by hand."""
    return json.dumps({"cluster": hosts, "task": {"type": kind}})


def flags(**given):
    """The section of the settings."""
    names = "job_name task_index ps_hosts worker_hosts controller_host local_cluster"
    names += " cluster_token_file join max_workers"
    defaults = {"replication": "in_graph", "elastic": "false"}
    settings = dict.fromkeys(names.split()) | defaults
    return types.SimpleNamespace(**{**settings, "local_tasks": None, **given})


class TfConfigTest(parameterized.TestCase):
    @parameterized.parameters(
        ("chief", 0, Task("chief", 0), cluster_spec.CONTROLLER),
        ("ps", 1, Task("ps", 1), cluster_spec.SERVER),
        ("worker", 0, Task("worker", 0), cluster_spec.SERVER),
        ("evaluator", 0, Task("evaluator", 0), cluster_spec.EVALUATOR),
    )
    def test_roles(self, kind, index, me, role):
        spec = cluster_spec.from_tf_config(tf_config(kind, index))
        self.assertEqual((spec.me, spec.role), (me, role))
        self.assertEqual(spec.controller, Task("chief", 0))
        self.assertEqual(spec.as_dict(), _HOSTS)

    def test_without_a_chief_worker_0_controls(self):
        hosts = {"worker": ["w0:1", "w1:1"], "evaluator": ["e:1"]}
        spec = cluster_spec.from_tf_config(tf_config("worker", 0, hosts))
        self.assertEqual(spec.role, cluster_spec.CONTROLLER)
        self.assertEqual(spec.servers, [Task("worker", 1)])
        spec = cluster_spec.from_tf_config(tf_config("worker", "1", hosts))
        self.assertEqual(spec.role, cluster_spec.SERVER)
        self.assertEqual(spec.address(spec.me), "w1:1")

    def test_a_job_of_one_task_needs_no_index(self):
        hosts = {"ps": ["p:1"], "worker": ["w:1"], "chief": ["c:1"]}
        for kind in (*hosts, "evaluator"):
            spec = cluster_spec.from_tf_config(_without_index(kind, hosts))
            self.assertEqual(spec.me, Task(kind, 0))

    def test_master_is_an_old_name_of_the_chief(self):
        hosts = {"master": ["m:1"], "worker": ["w:1"]}
        spec = cluster_spec.from_tf_config(tf_config("master", 0, hosts))
        self.assertEqual(spec.me, spec.controller)

    @parameterized.parameters(
        "",
        "  ",
        "{}",
        '{"task": {"type": "worker"}}',
        '{"cluster": {}, "task": {"type": "master", "index": 0}}',
        tf_config("chief", 0, {"chief": ["a:1"]}),
        tf_config("master", 0, {"master": ["a:1"], "worker": [], "evaluator": ["b:1"]}),
    )
    def test_no_cluster(self, text):
        self.assertIsNone(cluster_spec.from_tf_config(text))

    def test_an_evaluator_without_hosts_does_not_train(self):
        spec = cluster_spec.from_tf_config(
            '{"task": {"type": "evaluator", "index": 0}}'
        )
        self.assertEqual((spec.role, spec.jobs), (cluster_spec.EVALUATOR, {}))

    @parameterized.parameters(
        ("{", "no JSON"),
        ("[" * 100_000, "no JSON|an object"),
        ("[1]", "must be an object"),
        ("[]", "must be an object"),
        ("0", "must be an object"),
        ('""', "must be an object"),
        ('{"cluster": []}', "'cluster' must be an object"),
        ('{"cluster": {"gpu": ["a:1"]}}', "job 'gpu' is none of"),
        ('{"cluster": {"worker": "a:1"}}', "'worker' must be a list"),
        ('{"cluster": {"worker": [1]}}', "must be a list of host:port"),
        ('{"cluster": {"worker": ["a:1"]}}', "'task' must be an object"),
        ('{"task": {"type": "worker", "index": 1}}', "worker 1, but there is no 'cl"),
        ('{"task": {"type": "worker"}, "task": {}}', "'task' is there more than once"),
        (
            '{"cluster": {"worker": ["a:1"], "worker": ["b:1", "a:1"]}, '
            '"task": {"type": "worker", "index": 0}}',
            "TF_CONFIG: 'worker' is there more than once",
        ),
        ('{"environment": {"%s": 1, "%s": 2}}' % (2 * ("g" * 999,)), "'g+' is there"),
        (tf_config("gpu"), "task type 'gpu' is none of"),
        (tf_config("g" * 999), "task type 'g+' is none of"),
        (tf_config("worker", 0, {"g" * 999: ["a:1"]}), "job 'g+' is none of"),
        (tf_config("worker", "g" * 999), "index 'g+ is no whole number"),
        (tf_config("worker", "one"), "index 'one' is no whole number"),
        (tf_config("worker", "\uff11"), "is no whole number"),
        (tf_config("worker", True), "index True is no whole number"),
        (tf_config("worker", None), "index None is no whole number"),
        (tf_config("worker", 1.0), "index 1.0 is no whole number"),
        (_without_index("worker"), "no 'index', and there are 2 tasks in job 'worker'"),
        (_without_index("ps"), "no 'index', and there are 2 tasks in job 'ps'"),
        (
            _without_index("evaluator", {"evaluator": ["a:1", "b:1"]}),
            "no 'index', and there are 2 tasks in job 'evaluator'",
        ),
        (tf_config("worker", 2), "this task is worker 2, but there are 2 tasks"),
        (tf_config("worker", -1), "index -1 is no whole number"),
        (tf_config("evaluator", -1), "index -1 is no whole number"),
        (tf_config("evaluator", 1, {"evaluator": ["a:1"]}), "but there is 1 task in"),
        (tf_config("ps", 0, {"worker": ["a:1"]}), "this task is ps 0, but there are 0"),
        (tf_config("ps", 0, {"ps": ["a:1"]}), "needs a worker"),
        (tf_config("worker", 0, {"chief": ["a:1"]}), "needs a worker"),
        (tf_config("chief", 0, {"chief": ["a:1", "b:1"]}), "needs a worker"),
        (tf_config("chief", 0, {"worker": ["a:1"]}), "this task is chief 0, but"),
        (tf_config("worker", 0, {"worker": ["a"]}), "'a', which is no host:port"),
        (tf_config("worker", 0, {"worker": ["a:0"]}), "no host:port"),
        (tf_config("worker", 0, {"worker": ["a:70000"]}), "no host:port"),
        (tf_config("worker", 0, {"worker": ["$(id):1"]}), "no host:port"),
        (tf_config("worker", 0, {"worker": ["a..b:1"]}), "no host:port"),
        (tf_config("worker", 0, {"worker": [f"a.{'b' * 64}:1"]}), "no host:port"),
        (tf_config("worker", 0, {"worker": ["b\xfc.de:1"]}), "host:port in ASCII"),
        (tf_config("worker", 0, {"worker": ["a:\uff11"]}), "host:port in ASCII"),
        (tf_config("worker", 0, {"worker": ["a:1", "a:1"]}), "address of two tasks"),
        (tf_config("worker", 0, {"worker": ["a:1", "A:01"]}), "address of two tasks"),
        (
            tf_config("chief", 0, {"chief": ["a:1", "b:1"], "worker": ["c:1"]}),
            "has one chief",
        ),
        (
            tf_config("chief", 0, {"chief": ["a:1"], "master": ["b:1"]}),
            "there under two names",
        ),
    )
    def test_refuses(self, text, words):
        with self.assertRaisesRegex(ValueError, words) as caught:
            cluster_spec.from_tf_config(text)
        self.assertRegex(str(caught.exception), "^TF_CONFIG: .*; correct or unset it$")
        self.assertLess(len(str(caught.exception)), 300)


class FindTest(absltest.TestCase):
    def test_nothing_said(self):
        self.assertIsNone(cluster_spec.find(flags(), {}))

    def test_by_flags(self):
        given = flags(
            job_name="controller",
            task_index=0,
            ps_hosts=("[::1]:2222",),
            worker_hosts=("w0:1", "w1:1"),
            controller_host="c:1",
        )
        spec = cluster_spec.find(given, {"TF_CONFIG": "{}"})
        self.assertEqual(spec.role, cluster_spec.CONTROLLER)
        self.assertEqual(list(map(str, spec.servers)), ["ps 0", "worker 0", "worker 1"])
        with self.assertRaisesRegex(ValueError, "unset TF_CONFIG"):
            cluster_spec.find(given, {"TF_CONFIG": tf_config("ps")})

    def test_an_evaluator_needs_no_hosts(self):
        given = flags(job_name="evaluator", task_index=0, ps_hosts=(), worker_hosts=())
        self.assertEqual(cluster_spec.find(given, {}).role, cluster_spec.EVALUATOR)

    def test_settings_about_tasks_need_some(self):
        settings = config.make(stall_secs=5).cluster
        with self.assertRaisesRegex(ValueError, "^stall_secs=5: needs job_name"):
            cluster_spec.find(settings, {})
        self.assertIsNotNone(
            cluster_spec.find(settings, {"TF_CONFIG": tf_config("ps")})
        )
        self.assertIsNone(cluster_spec.find(config.make().cluster, {}))

    def test_between_graph_roles(self):
        between = flags(replication="between_graph")
        hosts = {job: _HOSTS[job] for job in ("ps", "worker")}
        for kind, index, role in (
            ("ps", 0, cluster_spec.SERVER),
            ("worker", 0, cluster_spec.CONTROLLER),
            ("worker", 1, cluster_spec.FOLLOWER),
        ):
            given = {"TF_CONFIG": tf_config(kind, index, hosts)}
            spec = cluster_spec.find(between, given)
            self.assertEqual(spec.role, role)
            self.assertEqual(spec.clients, [Task("worker", 0), Task("worker", 1)])
        spec = cluster_spec.find(between, {"TF_CONFIG": tf_config("worker", 0)})
        self.assertEqual(spec.role, cluster_spec.FOLLOWER)  # a chief trains, too
        names = ["chief 0", "worker 0", "worker 1"]
        self.assertEqual(list(map(str, spec.clients)), names)
        evaluator = {"TF_CONFIG": tf_config("evaluator", 0)}
        self.assertEqual(
            cluster_spec.find(between, evaluator).role, cluster_spec.EVALUATOR
        )
        other = {"TF_CONFIG": tf_config("worker", 1, hosts)}
        spec = cluster_spec.find(between, other, evaluates=True)
        self.assertEqual((spec.role, spec.between), (cluster_spec.SERVER, False))

    def test_between_graph_needs_ps_tasks(self):
        between = flags(replication="between_graph")
        hosts = {"worker": ["w0:1", "w1:1"]}
        with self.assertRaisesRegex(ValueError, "replication=between.*ps_hosts"):
            cluster_spec.find(between, {"TF_CONFIG": tf_config("worker", 0, hosts)})
        settings = config.make(replication="between_graph").cluster
        with self.assertRaisesRegex(ValueError, "^replication=between_graph: needs"):
            cluster_spec.find(settings, {})

    def test_by_environment(self):
        spec = cluster_spec.find(flags(), {"TF_CONFIG": tf_config("ps")})
        self.assertEqual(spec.role, cluster_spec.SERVER)

    def test_local(self):
        given = flags(local_cluster="x", local_tasks={"ps": 2, "worker": 3})
        spec = cluster_spec.find(given, {})
        self.assertEqual(spec.role, cluster_spec.LAUNCHER)
        self.assertLen(spec.servers, 5)
        given.replication = "between_graph"  # then worker 0 is the controller
        spec = cluster_spec.find(given, {})
        self.assertEqual(spec.role, cluster_spec.LAUNCHER)
        self.assertEqual((spec.me, len(spec.servers)), (Task("worker", 0), 4))
