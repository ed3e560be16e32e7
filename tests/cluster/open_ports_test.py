"""The warning about open ports."""

import os
import re
from unittest import mock

from absl.testing import absltest

from tests.processes.programs import ROOT
from towers.cluster import open_ports
from towers.layout import cluster_spec


class OpenPortsTest(absltest.TestCase):
    def _exposed(self, **interfaces: list[str]) -> str:
        spec = cluster_spec.from_hosts(
            "worker", 1, ps=[], workers=["a:2222", "b:2223"], controller=None
        )
        with mock.patch.object(
            open_ports.private_network, "interfaces", return_value=interfaces
        ):
            return open_ports.open_ports_warning(spec)

    def test_what_is_exposed_and_to_whom(self):
        local = {"lo": ["127.0.0.1", "::1"], "down0": []}
        self.assertEqual(self._exposed(**local), "")
        warning = self._exposed(**local, eth0=["10.0.0.2", "fe80::1"])
        self.assertRegex(
            warning,
            r"^worker 1 listens on port 2223 of every interface \(lo 127.0.0.1 ::1, "
            r"eth0 10.0.0.2 fe80::1\), unencrypted .*: whoever reaches one of these "
            r"addresses can run anything as the user ",
        )
        for file in re.findall(r"deploy/\w+\.\w+", warning):
            self.assertTrue(os.path.exists(os.path.join(ROOT, file)), file)
        self.assertLen(re.findall(r"deploy/\w+\.\w+", warning), 3)
        warning = self._exposed(**local, eth0=["10.0.0.2"], eth1=["8.8.8.8"])
        self.assertIn("whoever on the Internet reaches 8.8.8.8 can", warning)
