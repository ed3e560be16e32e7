"""Tasks connect to one another without the proxy that is set."""

import os
from unittest import mock

from absl.testing import absltest

from tests import digit_runs, in_process_cluster
from towers.cluster import proxies
from towers.layout import cluster_spec

# The address of a proxy that does not run.
_DEAD = "http://127.0.0.1:9"


class ProxiesTest(absltest.TestCase):
    def test_hosts_of_the_cluster_are_excepted(self):
        spec = cluster_spec.from_hosts(
            "ps", 0, ps=["p:1", "[fe80::1]:2"], workers=["w:1", "p:2"], controller=None
        )
        for given, wanted in (
            ({}, None),
            ({"no_proxy": "x"}, None),
            ({"http_proxy": ""}, None),
            ({"http_proxy": _DEAD}, "p,fe80::1,w"),
            ({"https_proxy": _DEAD, "no_proxy": "x,.y,,w"}, "x,.y,w,p,fe80::1"),
            (
                {"grpc_proxy": _DEAD, "no_grpc_proxy": "z", "no_proxy": "x"},
                "z,p,fe80::",
            ),
        ):
            environment = dict(given)
            proxies.bypass_proxies(spec, environment)
            excepted = environment.pop("no_grpc_proxy", None)
            if wanted is None:
                self.assertIsNone(excepted)
            else:
                self.assertStartsWith(excepted, wanted)
            given.pop("no_grpc_proxy", None)
            # the other settings, those for downloads, stay
            self.assertEqual(environment, given)

    def test_tasks_reach_each_other(self):
        flags = [
            "--model=tests.digit_runs:small_model",
            "--num_batches=2",
            "--wait_secs=30",
        ]
        behind = dict(http_proxy=_DEAD, https_proxy=_DEAD, no_proxy="example.org")
        with mock.patch.dict(os.environ, behind):
            in_process_cluster.ended(
                *flags, between=False, data_dir=digit_runs.data_dir()
            )
