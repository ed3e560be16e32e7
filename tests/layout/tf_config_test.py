"""`TF_CONFIG` that describes a part of a cluster, and what cannot be understood."""

import json

from absl.testing import parameterized

from flags.cluster import ClusterFlags
from flags.problem import SettingError
from towers.layout import cluster_spec, tf_config
from towers.layout.cluster_spec import Task

_PS = ["p0:2222", "p1:2222"]
_CHIEF = {"controller_host": "c:2222"}
_WORKERS = {"0": "w0:2222", "2": "w2:2222", "10": "w10:2222"}


def _text(kind, index=0, key="cluster", **hosts):
    return json.dumps({key: hosts, "task": {"type": kind, "index": index}})


def _spec(text, **flags):
    settings = ClusterFlags(**{"elastic": "true", "max_workers": 3, **flags})
    return cluster_spec.find(settings, {"TF_CONFIG": text})


class DynamicWorkersTest(parameterized.TestCase):
    @parameterized.parameters("cluster", "sparseCluster")
    def test_the_tasks_of_a_tfjob(self, key):
        """Kubeflow's operator leaves out all that a task need not know."""
        flags = {**_CHIEF, "ps_hosts": tuple(_PS)}
        for kind, index, hosts, me, jobs in (
            ("chief", 0, {"ps": [], "worker": {}}, Task("chief", 0), {}),
            ("ps", 1, {"ps": ["p1:2222"], "worker": {}}, Task("ps", 1), {}),
            (
                *("worker", 7, {"ps": _PS, "worker": {"7": "w7:2222"}}),
                *(Task("worker", 0), {"worker": ("w7:2222",)}),
            ),
            ("evaluator", 0, {"ps": [], "worker": {}}, Task("evaluator", 0), {}),
        ):
            text = _text(kind, index, key, **hosts)
            self.assertTrue(tf_config.is_sparse(text))
            spec = _spec(text, **flags)
            self.assertTrue(spec.elastic)
            self.assertEqual(spec.me, me)
            self.assertEqual(spec.controller, Task("chief", 0))
            known = {"ps": tuple(_PS), "chief": ("c:2222",), **jobs}
            self.assertEqual(dict(spec.jobs), known)
            self.assertEqual(spec.role == cluster_spec.CONTROLLER, kind == "chief")

    def test_a_controller_that_knows_no_worker_plans_for_the_most(self):
        spec = _spec(_text("chief", chief=["c:1"], ps=_PS, worker={}))
        self.assertEqual(spec.workers, [Task("worker", k) for k in range(3)])
        self.assertEqual(spec.servers, [Task("ps", 0), Task("ps", 1)])

    def test_workers_that_are_named_are_known(self):
        hosts = {"chief": {"0": "c:1"}, "ps": {"1": "p1:1", "0": "p0:1"}}
        spec = _spec(_text("chief", **hosts, worker=_WORKERS))
        self.assertEqual(spec.jobs["worker"], ("w0:2222", "w2:2222", "w10:2222"))
        self.assertEqual(spec.jobs["ps"], ("p0:1", "p1:1"))
        spec = _spec(_text("worker", 2, **hosts, worker=_WORKERS))
        self.assertEqual(spec.address(spec.me), "w2:2222")

    def test_a_list_of_all_tasks_is_no_part(self):
        hosts = {"chief": ["c:1"], "worker": ["w:1", "w:2"]}
        for text in ("", "{", _text("chief", **hosts)):
            self.assertFalse(tf_config.is_sparse(text))

    @parameterized.parameters(
        ({"0": "a:1"}, 1, "'worker' does not have this task, worker 1"),
        ({}, 0, "'worker' does not have this task, worker 0"),
        ({"one": "a:1"}, 1, "job 'worker' has 'one' in the place of a number"),
        ({"01": "a:1"}, 1, "job 'worker' has '01' in the place of a number"),
        ({"-1": "a:1"}, 1, "job 'worker' has '-1' in the place of a number"),
        ({"1": ["a:1"]}, 1, "job 'worker' must be an object of host:port"),
        ({"1": None}, 1, "job 'worker' must be an object of host:port"),
        ({"1": "a"}, 1, "'a', which is no host:port"),
        ({"1": "c:2222"}, 1, "address of two tasks"),
    )
    def test_refuses(self, worker, index, words):
        text = _text("worker", index, ps=_PS, worker=worker)
        self.assertTrue(tf_config.is_sparse(text))  # so `--max_workers` is not at fault
        with self.assertRaisesRegex(ValueError, words) as caught:
            _spec(text, **_CHIEF)
        self.assertRegex(str(caught.exception), "^TF_CONFIG: .*; correct or unset it$")

    def test_refuses_what_contradicts_itself(self):
        for text, flags, words in (
            (
                '{"cluster": {}, "sparseCluster": {}}',
                {},
                "'cluster' and 'sparseCluster' are both there",
            ),
            (_text("ps", 1, ps=["p1:1"], worker={}), {}, "but there is 1 task in"),
            (
                _text("chief", ps=[], worker={}),
                {"max_workers": None},
                "needs a worker; where all workers join, .* --max_workers",
            ),
            (_text("chief", key="sparseCluster"), {"max_workers": None}, "a worker; w"),
        ):
            with self.assertRaisesRegex(ValueError, f"^TF_CONFIG: .*{words}"):
                _spec(text, **_CHIEF, **flags)

    def test_flags_say_what_is_left_out(self):
        part = _text("worker", 1, ps=_PS, worker={"1": "w1:1"})
        whole = _text("worker", 1, chief=["c:1"], worker=["w0:1", "w1:1"])
        for text, flags, sentence in (
            (
                part,
                {},
                "--controller_host: is needed, as TF_CONFIG names a part of the tasks; "
                "give it to every task",
            ),
            (
                part,
                {**_CHIEF, "elastic": "false", "max_workers": None},
                "--elastic=false: TF_CONFIG names a part of the tasks, as workers come "
                "and go; leave --elastic out",
            ),
            (
                whole,
                _CHIEF,
                "--controller_host=c:2222: needs --job_name, or a TF_CONFIG that names "
                "a part of the tasks",
            ),
            (
                "",
                {"ps_hosts": ("p:1",)},
                "--ps_hosts=p:1: needs --job_name, or a TF_CONFIG that names a part of "
                "the tasks",
            ),
        ):
            with self.assertRaises(SettingError) as caught:
                _spec(text, **flags)
            self.assertEqual(caught.exception.errors, [sentence])
