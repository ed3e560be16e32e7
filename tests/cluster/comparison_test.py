"""What a task says of itself is compared with what this cluster runs."""

import dataclasses

import tensorflow as tf
from absl.testing import absltest, parameterized

from towers.cluster import comparison, messages
from towers.layout import cluster_spec
from towers.layout.cluster_spec import Task

_SPEC = cluster_spec.from_hosts(
    "chief", 0, ps=["p:1"], workers=["w:1"], controller="c:1"
)


def _info(**facts):
    known = {"tensorflow": tf.__version__, "cluster": _SPEC.as_dict()}
    known |= {"devices": {"CPU": 2}, "life": "1"}
    return messages.TaskInfo(**known | facts)


class DifferencesTest(parameterized.TestCase):
    @parameterized.parameters(
        ({}, ""),
        (
            {"flags": ["--model=mlp"]},
            "was started with --model=mlp, and chief 0 with --model=lenet; start all "
            "with the same flags",
        ),
        ({"flags": []}, "was started with the default, and chief 0 with --model=lenet"),
        ({"num_examples": None}, ""),
        ({"num_examples": 69}, "has 69 examples .*on its disk, and chief 0 has 70; gi"),
        ({"num_examples": 71}, "has 71 examples .*on its disk, and chief 0 has 70; gi"),
        (
            {"cluster": {"worker": ["x:1"], "chief": ["d:1"]}},
            "was started for the controller at d:1, and not for that at c:1",
        ),
        ({"cluster": {"worker": ["x:1"], "chief": ["c:1"]}}, ""),
    )
    def test_workers_of_an_elastic_run(self, facts, words):
        spec = dataclasses.replace(
            _SPEC, elastic=True, flags=("--model=lenet",), num_examples=70
        )
        info = _info(**{"flags": ["--model=lenet"], "num_examples": 70, **facts})
        reasons = comparison.differences(spec, Task("worker", 0), info)
        self.assertRegex(
            "; ".join(reasons), f"^worker 0 at w:1 {words}" if words else "^$"
        )

    def test_a_ps_of_an_elastic_run_reads_no_data(self):
        spec = dataclasses.replace(_SPEC, elastic=True, flags=("--model=lenet",))
        self.assertEmpty(comparison.differences(spec, Task("ps", 0), _info()))


class DisagreementTest(absltest.TestCase):
    def test_the_controller_says_in_what_clients_disagree(self):
        jobs, both = {"ps": ["p:1"], "worker": ["w:1", "w:2"]}, "--replication=x"
        chief = cluster_spec.ClusterSpec(
            jobs, Task("worker", 0), between=True, flags=(both, "--a=1", "--b=2")
        )
        for task, flags, said in (
            (Task("ps", 0), (), ""),
            (Task("worker", 1), ("--b=2", "--a=1", both), ""),
            (
                Task("worker", 1),
                (both, "--a=3"),
                "was started with --a=3, and worker 0 with --a=1 --b=2; start all with "
                "the same flags",
            ),
            (
                Task("worker", 1),
                (),
                f"was started with the default, and worker 0 with {both}; start all "
                "with the same flags",
            ),
        ):
            self.assertEqual(comparison.disagreement(chief, task, flags), said)
        in_graph = dataclasses.replace(chief, between=False, flags=())
        said = comparison.disagreement(in_graph, Task("worker", 1), chief.flags)
        self.assertRegex(said, f"^was started with {both}, and worker 0 with the def")
        other = dataclasses.replace(chief, me=Task("worker", 1), flags=(both,))
        said = comparison.disagreement(other, Task("worker", 0), chief.flags)
        self.assertEqual(said, "")


class LeaderTest(absltest.TestCase):
    def test_is_the_controller_or_the_chief_worker(self):
        self.assertEqual(comparison.leader(_info()), "c:1")
        between = _info(cluster={"ps": ["p:1"], "worker": ["w:1", "w:2"]})
        self.assertEqual(comparison.leader(between), "w:1")
