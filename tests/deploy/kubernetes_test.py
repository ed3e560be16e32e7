"""The manifests of Kubernetes: their fields, their safety, and the task of each pod."""

import contextlib
import copy
import io
import json
import re
from collections.abc import Iterator
from typing import Any

import yaml
from absl.testing import absltest, parameterized

from flags import config, parse
from flags.cluster import ClusterFlags
from tests.deploy import manifest_fields
from tests.processes.programs import ROOT
from towers.layout import cluster_spec
from towers.optimizers.optimizer import OPTIMIZERS

_JOBS = ("tfjob", "jobset", "statefulset")
_FILES = (*_JOBS, "volumes", "networkpolicy")


def _documents(name: str, *, elastic: bool = False) -> list[Any]:
    text = (ROOT / "deploy" / f"{name}.yaml").read_text()
    if elastic:  # as the command in the file does
        text = text.replace("#elastic ", "")
    return list(yaml.safe_load_all(text))


def _templates(name: str, **form: bool) -> Iterator[tuple[str, int, Any]]:
    """(job, number of pods, template) of each group of pods."""
    for document in _documents(name, **form):
        spec = document["spec"]
        if document["kind"] == "TFJob":
            for job, replica in spec["tfReplicaSpecs"].items():
                yield job.lower(), replica["replicas"], replica["template"]
        elif document["kind"] == "JobSet":
            for job in spec["replicatedJobs"]:
                inner = job["template"]["spec"]
                yield job["name"], inner["completions"], inner["template"]
        elif "template" in spec:
            job = document["metadata"]["name"].removeprefix("towers-")
            yield job, spec.get("replicas", 1), spec["template"]


def _settings(template: Any, index: int) -> config.Config:
    (container,) = template["spec"]["containers"]
    words = [w.replace("$(TASK_INDEX)", str(index)) for w in container["args"]]
    return parse.parse(["train", *words], {"optimizer": OPTIMIZERS})


class ManifestsTest(parameterized.TestCase):
    @parameterized.parameters(*_FILES)
    def test_the_fields_are_those_of_the_published_apis(self, name):
        for elastic in (False, True):
            for document in _documents(name, elastic=elastic):
                self.assertEqual(list(manifest_fields.problems(document)), [])

    def test_a_wrong_field_is_named(self):
        (job,) = _documents("jobset")
        for change, words in (
            (lambda spec: spec.update(ttlSeconds=1), "JobSet.spec has no field ttlSec"),
            (lambda spec: spec.update(suspend="no"), "JobSet.spec.suspend is no bool"),
            (
                lambda spec: spec["replicatedJobs"][1].pop("name"),
                "JobSet.spec.replicatedJobs[1] lacks name",
            ),
        ):
            edited = copy.deepcopy(job)
            change(edited["spec"])
            path = self.create_tempfile("mine.yaml", yaml.safe_dump(edited)).full_path
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(manifest_fields.main([path]), 2)
            self.assertRegex(
                said.getvalue(), f"^error: {path}: {re.escape(words)}.*\n$"
            )

    def test_a_file_that_is_no_manifest_is_named(self):
        for text, words in (
            ("kind: JobSets", "kind 'JobSets' is not known here"),
            ("kind: [", "while parsing"),
            ("- kind", "kind None is not known"),
        ):
            path = self.create_tempfile("mine.yaml", text).full_path
            with contextlib.redirect_stderr(io.StringIO()) as said:
                self.assertEqual(manifest_fields.main([path]), 2)
            self.assertStartsWith(said.getvalue(), f"error: {path}: {words}")

    @parameterized.parameters(*_JOBS)
    def test_pods_are_confined_and_have_time_to_save(self, name):
        claims = {each["metadata"]["name"] for each in _documents("volumes")}
        (policy,) = _documents("networkpolicy")
        dockerfile = (ROOT / "deploy" / "Dockerfile").read_text()
        for job, _, template in _templates(name):
            labels, pod = template["metadata"]["labels"], template["spec"]
            chosen = policy["spec"]["podSelector"]["matchLabels"]
            self.assertContainsSubset(chosen.items(), labels.items())
            security = pod["securityContext"]
            self.assertTrue(security["runAsNonRoot"] and security["runAsUser"], job)
            self.assertEqual(security["seccompProfile"]["type"], "RuntimeDefault")
            grace = ClusterFlags().stop_grace_secs
            self.assertGreater(pod["terminationGracePeriodSeconds"], grace)
            (container,) = pod["containers"]
            self.assertIn(f" -t {container['image']} ", dockerfile)
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"])
            resources = container["resources"]
            self.assertContainsSubset(("cpu", "memory"), resources["requests"])
            gpus = resources["limits"].get("nvidia.com/gpu", 0)
            self.assertEqual(gpus, 1 if job in ("worker", "evaluator") else 0)
            volumes = {each["name"]: each for each in pod["volumes"]}
            mounts = {
                each["name"]: each["mountPath"] for each in container["volumeMounts"]
            }
            self.assertEqual(set(volumes), set(mounts))
            for each in volumes.values():
                if "persistentVolumeClaim" in each:
                    self.assertIn(each["persistentVolumeClaim"]["claimName"], claims)
            output = _settings(template, 0).output
            self.assertEqual(mounts["checkpoints"], output.train_dir)

    def test_the_policy_lets_tasks_and_names_through(self):
        (policy,) = _documents("networkpolicy")
        spec = policy["spec"]
        self.assertEqual(spec["policyTypes"], ["Ingress", "Egress"])
        (into,) = spec["ingress"]
        out, names = spec["egress"]
        tasks = {"podSelector": spec["podSelector"]}
        self.assertEqual((into["from"], out["to"]), ([tasks], [tasks]))
        for rule in (into, out):
            self.assertEqual(rule["ports"], [{"protocol": "TCP", "port": 2222}])
        self.assertLen(names["to"], 2)  # of the cluster, and of the node
        self.assertEqual({each["port"] for each in names["ports"]}, {53})


_ROLES = {
    "chief 0": cluster_spec.CONTROLLER,
    "ps 0": cluster_spec.SERVER,
    "worker 0": cluster_spec.SERVER,
    "worker 1": cluster_spec.SERVER,
    "evaluator 0": cluster_spec.EVALUATOR,
}


def _known_to(job: str, index: int, hosts: dict[str, list[str]]) -> dict[str, Any]:
    """The cluster in a pod's TF_CONFIG, from a TFJob with `enableDynamicWorker`.

    As Kubeflow's operator makes it: convertClusterSpecToSparseClusterSpec.
    """
    ps = {"worker": hosts["ps"], "ps": hosts["ps"][index : index + 1]}.get(job, [])
    workers = {str(index): hosts["worker"][index]} if job == "worker" else {}
    return {"ps": ps, "worker": workers}


class TasksTest(absltest.TestCase):
    def test_the_tfjob_s_pods_find_their_roles(self):
        pods = {job: count for job, count, _ in _templates("tfjob")}
        hosts = {
            job: [f"towers-{job}-{i}.default.svc:2222" for i in range(count)]
            for job, count in pods.items()
            if job != "evaluator"
        }
        roles = {}
        for job, count, template in _templates("tfjob"):
            for index in range(count):
                given = {"cluster": hosts, "task": {"type": job, "index": index}}
                flags = _settings(template, index).cluster
                spec = cluster_spec.find(flags, {"TF_CONFIG": json.dumps(given)})
                roles[str(spec.me)] = spec.role
        self.assertEqual(roles, _ROLES)

    def test_the_pods_of_the_others_find_their_roles(self):
        for name, pattern in (
            ("jobset", "towers-{}-0-{}.towers:2222"),
            ("statefulset", "towers-{}-{}.towers:2222"),
        ):
            roles = {}
            for job, count, template in _templates(name):
                for index in range(count):
                    spec = cluster_spec.find(_settings(template, index).cluster, {})
                    roles[str(spec.me)] = spec.role
                    if job == "evaluator":
                        continue
                    if "hostname" in template["spec"]:  # of a Job
                        address = "{hostname}.{subdomain}:2222".format(
                            **template["spec"]
                        )
                    else:
                        address = pattern.format(job, index)
                    self.assertEqual(spec.address(spec.me), address)
            self.assertEqual(roles, _ROLES)

    def test_pods_of_an_elastic_tfjob_join(self):
        """Those of the replicas that it begins with, and those that are added."""
        pods = {job: count for job, count, _ in _templates("tfjob")}
        hosts = {
            job: [f"towers-{job}-{i}.default.svc:2222" for i in range(count)]
            for job, count in {**pods, "worker": 4}.items()
        }
        for job, _, template in _templates("tfjob", elastic=True):
            for index, address in enumerate(hosts[job]):
                task = {"type": job, "index": index}
                config = {"cluster": _known_to(job, index, hosts), "task": task}
                flags = _settings(template, index).cluster
                spec = cluster_spec.find(flags, {"TF_CONFIG": json.dumps(config)})
                self.assertTrue(spec.elastic)
                self.assertEqual(spec.address(spec.controller), "towers-chief-0:2222")
                if job == "worker":
                    self.assertEqual(spec.address(spec.me), address)
                else:
                    self.assertLen(spec.workers, flags.max_workers)
                    self.assertEqual(spec.jobs["ps"], ("towers-ps-0:2222",))

    def test_pods_of_the_other_elastic_forms_join(self):
        for name, pattern in (
            ("jobset", "towers-worker-0-{}.towers:2222"),
            ("statefulset", "towers-worker-{}.towers:2222"),
        ):
            controllers = set()
            for job, count, template in _templates(name, elastic=True):
                for index in range(4 if job == "worker" else count):
                    spec = cluster_spec.find(_settings(template, index).cluster, {})
                    self.assertTrue(spec.elastic)
                    controllers.add(spec.address(spec.controller))
                    if job == "worker":
                        self.assertEqual(spec.address(spec.me), pattern.format(index))
                    elif job == "controller":
                        listed = tuple(pattern.format(k) for k in range(2))
                        self.assertEqual(spec.jobs["worker"], listed)
            self.assertLen(controllers, 1)
